"""What must be true of a model before a head of it is removed."""

from __future__ import annotations

import math
from collections.abc import Iterable
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from cel_lens.errors import InvalidInput, ModelLoadError, UnsupportedModel
from cel_lens.models.quiet import quiet

if TYPE_CHECKING:
    import torch

__all__ = [
    "check_finite",
    "check_in_memory",
    "check_model",
    "check_parity",
    "check_structure",
    "check_value_biases",
    "parity_error",
]

# Architectures of TransformerLens whose attention has a value bias. GPT-Neo, for one, has an output
# bias without a value bias, so zeros alone prove nothing.
VALUE_BIAS_ARCHITECTURES = frozenset(
    {
        "BloomForCausalLM",
        "GPT2LMHeadCustomModel",
        "GPT2LMHeadModel",
        "GPTNeoXForCausalLM",
        "GptOssForCausalLM",
        "OPTForCausalLM",
        "PhiForCausalLM",
        "QWenLMHeadModel",
        "Qwen2ForCausalLM",
        "mingpt",
        "neel",
        "neel-solu-old",
    }
)

_PARITY_TOKENS = 24
_TOLERANCE = {"float64": 1e-3, "float32": 2e-3, "float16": 5e-2, "bfloat16": 1.5e-1}


def check_model(model: Any, name: str) -> None:
    """Refuse a model whose heads cannot be removed exactly.

    Args:
        model: What is meant to be a ``HookedTransformer``.
        name: How messages call it.

    Raises:
        InvalidInput: If it is no model at all.
        UnsupportedModel: If it is another class, lacks ``hook_z``, is not causal, has weights that are not
            in memory, or has its value biases folded.
        ModelLoadError: If a weight is NaN or infinite.
    """
    check_structure(model, name)
    check_in_memory(model.named_parameters(), name)
    check_finite(model.named_parameters(), name)
    check_value_biases(model, name)


def check_structure(model: Any, name: str) -> None:
    """Refuse what is not a causal ``HookedTransformer`` with ``hook_z`` in every block."""
    with quiet():
        import torch
        from transformer_lens import HookedTransformer
    if not isinstance(model, HookedTransformer):
        kind = type(model).__name__
        if not isinstance(model, torch.nn.Module):
            raise InvalidInput(
                f"a model is a name, a folder, a .gguf file or a HookedTransformer, not {kind}"
            )
        raise UnsupportedModel(
            f"a {kind} cannot be used: give a HookedTransformer, or the name, folder or .gguf file of a "
            f"decoder-only language model"
        )
    if getattr(model.cfg, "attention_dir", "causal") != "causal":
        raise UnsupportedModel(f"{name!r} attends in both directions: only causal language models work")
    for layer, block in enumerate(model.blocks):
        if not hasattr(getattr(block, "attn", None), "hook_z"):
            raise UnsupportedModel(f"layer {layer} of {name!r} has no hook_z, so its heads cannot be removed")


def check_in_memory(tensors: Iterable[tuple[str, torch.Tensor]], name: str) -> None:
    """Refuse weights on the meta device: they were offloaded to disk or never loaded."""
    for key, tensor in tensors:
        if tensor.device.type == "meta":
            raise UnsupportedModel(
                f"weight {key!r} of {name!r} is not in memory (offloaded, or on the meta device): load the "
                f"model whole, on a device where it fits"
            )


def check_finite(tensors: Iterable[tuple[str, torch.Tensor]], name: str) -> None:
    """Refuse NaN and infinite weights, naming the first tensor that has one."""
    import torch

    for key, tensor in tensors:
        if tensor.numel() == 0 or not tensor.is_floating_point():
            continue
        # aminmax carries NaN through and, unlike isfinite, allocates no mask.
        lowest, highest = (float(x) for x in torch.aminmax(tensor.detach()))
        if not (math.isfinite(lowest) and math.isfinite(highest)):
            what = "NaN" if math.isnan(lowest) else "infinite values"
            dtype = str(tensor.dtype).removeprefix("torch.")
            raise ModelLoadError(
                f"weight {key!r} of {name!r} holds {what} in {dtype}: the checkpoint is damaged"
                + (", or needs bfloat16 or float32" if dtype == "float16" else "")
            )


def check_value_biases(model: Any, name: str) -> None:
    """Refuse folded value biases, which survive a removal of the head inside the output bias.

    Folding leaves the intact model equal but moves ``b_V @ W_O`` into ``b_O``: a removed head would keep
    that part of its output. It shows as value biases that are all zero, beside an output bias that is not,
    in an architecture that has value biases.
    """
    if model.cfg.original_architecture not in VALUE_BIAS_ARCHITECTURES:
        return
    attentions = [block.attn for block in model.blocks]
    if any(bool(attn.b_V.any()) for attn in attentions):
        return
    if any(bool(attn.b_O.any()) for attn in attentions):
        raise UnsupportedModel(
            f"the value biases of {name!r} are folded into its output biases, so a removed head would keep "
            f"part of its effect: load it with HookedTransformer.from_pretrained_no_processing, or by name "
            f"with cel_lens.load_model"
        )


def check_parity(model: Any, hf_model: Any, name: str) -> float:
    """Refuse a conversion whose logits differ from those of the transformers model.

    Also checks that ``hook_z`` is ``[batch, position, head, d_head]`` in every layer.

    Args:
        model: The converted ``HookedTransformer``, on the CPU.
        hf_model: The transformers model it was made from.
        name: How messages call it.

    Returns:
        The largest difference, as a fraction of the largest logit.

    Raises:
        UnsupportedModel: If they differ by more than the precision explains, or a ``hook_z`` has another
            shape.
        ModelLoadError: If the checkpoint itself gives logits that are not finite.
    """
    error = parity_error(model, hf_model, name)
    dtype = str(model.cfg.dtype).removeprefix("torch.")
    if not error <= _TOLERANCE.get(dtype, 1.5e-1):  # also when the difference is NaN
        raise UnsupportedModel(
            f"{name!r} gives other logits in TransformerLens {version('transformer-lens')} than in "
            f"transformers {version('transformers')} (relative difference {error:.2g} in {dtype}): "
            f"TransformerLens does not carry this architecture over exactly, so it is refused"
        )
    return error


def parity_error(model: Any, hf_model: Any, name: str, n_tokens: int = _PARITY_TOKENS) -> float:
    """Largest logit difference on one fixed prompt, as a fraction of the largest logit.

    Args:
        model: The converted ``HookedTransformer``.
        hf_model: The transformers model, on the same device.
        name: How messages call it.
        n_tokens: Length of the prompt, cut to the context of the model.

    Raises:
        UnsupportedModel: If a ``hook_z`` is not ``[batch, position, head, d_head]``.
        ModelLoadError: If the checkpoint itself gives logits that are not finite.
    """
    import torch

    n_tokens = min(n_tokens, model.cfg.n_ctx)
    # Fixed ids, spread over the vocabulary: no tokenizer is needed and no two are neighbours.
    ids = (torch.arange(n_tokens) * 7919 + 11) % model.cfg.d_vocab
    tokens = ids[None].to(next(model.parameters()).device)
    shapes: dict[str, tuple[int, ...]] = {}

    def record(z: torch.Tensor, hook: Any) -> None:
        shapes[hook.name] = tuple(z.shape)

    with quiet(), torch.inference_mode():
        hooks = [(f"blocks.{layer}.attn.hook_z", record) for layer in range(model.cfg.n_layers)]
        ours = model.run_with_hooks(tokens, fwd_hooks=hooks, prepend_bos=False).float()
        theirs = hf_model(tokens, use_cache=False).logits.float()
    expected = (1, n_tokens, model.cfg.n_heads, model.cfg.d_head)
    for hook_name, shape in shapes.items():
        if shape != expected:
            raise UnsupportedModel(f"{hook_name} of {name!r} has shape {shape} instead of {expected}")
    if not bool(theirs.isfinite().all()):
        dtype = str(model.cfg.dtype).removeprefix("torch.")
        raise ModelLoadError(
            f"{name!r} gives logits that are not finite in {dtype}: try float32, or check the checkpoint"
        )
    if ours.shape != theirs.shape:
        return math.inf
    return float((ours - theirs).abs().max() / theirs.abs().max().clamp_min(1e-9))
