"""What must be true of a model before a head of it is removed."""

from __future__ import annotations

import math
from collections.abc import Iterable
from contextlib import ExitStack
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from cel_lens.errors import InvalidInput, ModelLoadError, UnsupportedModel
from cel_lens.models.backends import backend_of, transformer_lens_name
from cel_lens.models.bridge import raw
from cel_lens.models.lens import lens_of
from cel_lens.models.quiet import quiet

if TYPE_CHECKING:
    import torch

__all__ = [
    "check_cache",
    "check_finite",
    "check_in_memory",
    "check_model",
    "check_parity",
    "check_structure",
    "check_value_biases",
    "parity_error",
    "reference_logits",
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
_CACHED_TOKENS = 12
_TOLERANCE = {"float64": 1e-3, "float32": 2e-3, "float16": 5e-2, "bfloat16": 1.5e-1}


def check_model(model: Any, name: str) -> None:
    """Refuse a model whose heads cannot be removed exactly.

    Args:
        model: What is meant to be a ``HookedTransformer`` or a ``TransformerBridge``.
        name: How messages call it.

    Raises:
        InvalidInput: If it is no model at all.
        UnsupportedModel: If it is another class, lacks ``hook_z``, is not causal, has weights that are not
            in memory or lie on several devices, or has its value biases folded.
        ModelLoadError: If a weight is NaN or infinite.
    """
    check_structure(model, name)
    check_in_memory(model.named_parameters(), name)
    check_finite(model.named_parameters(), name)
    check_value_biases(model, name)


def check_structure(model: Any, name: str) -> None:
    """Refuse what is not a causal model of TransformerLens with ``hook_z`` in every block."""
    import torch

    backend = backend_of(model)
    if backend is None:
        kind = type(model).__name__
        if not isinstance(model, torch.nn.Module):
            raise InvalidInput(
                f"a model is a name, a folder, a .gguf file, a HookedTransformer or a TransformerBridge, not {kind}"
            )
        raise UnsupportedModel(
            f"a {kind} cannot be used: give a HookedTransformer or a TransformerBridge, or the name, folder or "
            f".gguf file of a decoder-only language model"
        )
    if getattr(model.cfg, "attention_dir", "causal") != "causal":
        raise UnsupportedModel(f"{name!r} attends in both directions: only causal language models work")
    if backend == "bridge":
        _check_bridge(model, name)
        return
    for layer, block in enumerate(model.blocks):
        if not hasattr(getattr(block, "attn", None), "hook_z"):
            raise UnsupportedModel(f"layer {layer} of {name!r} has no hook_z, so its heads cannot be removed")


def _check_bridge(model: Any, name: str) -> None:
    """Refuse bridges without the parts that evaluation needs, or with heads that differ between layers."""
    inside = getattr(model.original_model, "config", None)
    if getattr(inside, "is_encoder_decoder", False) or not getattr(
        model.adapter, "supports_causal_loss", True
    ):
        raise UnsupportedModel(f"{name!r} does not predict next tokens: only causal language models work")
    absent = [part for part in ("embed", "blocks", "ln_final", "unembed") if part not in model._modules]
    if absent:
        raise UnsupportedModel(f"the bridge of {name!r} has no {absent[0]}, so it cannot be evaluated")
    width = model.cfg.n_heads * model.cfg.d_head * model.cfg.d_model
    for layer, block in enumerate(model.blocks):
        projection = raw(getattr(block._modules.get("attn"), "o", None))
        if projection is None or getattr(projection, "weight", None) is None:
            raise UnsupportedModel(f"layer {layer} of {name!r} has no hook_z, so its heads cannot be removed")
        if projection.weight.numel() != width:
            raise UnsupportedModel(
                f"layer {layer} of {name!r} does not have {model.cfg.n_heads} heads of width {model.cfg.d_head} like "
                f"the others, so its heads cannot be removed"
            )


def check_in_memory(tensors: Iterable[tuple[str, torch.Tensor]], name: str) -> None:
    """Refuse weights on the meta device (offloaded to disk, or never loaded), or spread over several devices."""
    places: dict[str, str] = {}
    for key, tensor in tensors:
        places.setdefault(str(tensor.device), key)
        if tensor.device.type == "meta":
            raise UnsupportedModel(
                f"weight {key!r} of {name!r} is not in memory (offloaded, or on the meta device): load the "
                f"model whole, on a device where it fits"
            )
    if len(places) > 1:
        spread = ", ".join(f"{key!r} on {place}" for place, key in places.items())
        raise UnsupportedModel(
            f"the weights of {name!r} lie on several devices ({spread}): load the model whole, without device_map"
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
    bridged = backend_of(model) == "bridge"
    architecture = model.cfg.architecture if bridged else model.cfg.original_architecture
    if architecture not in VALUE_BIAS_ARCHITECTURES:
        return
    biases = [_value_and_output_bias(block.attn, bridged) for block in model.blocks]
    if any(value is not None and bool(value.any()) for value, _ in biases):
        return
    if any(output is not None and bool(output.any()) for _, output in biases):
        raw_way = (
            "leave out enable_compatibility_mode, or give it no_processing=True"
            if bridged
            else "load it with HookedTransformer.from_pretrained_no_processing"
        )
        raise UnsupportedModel(
            f"the value biases of {name!r} are folded into its output biases, so a removed head would keep "
            f"part of its effect: {raw_way}, or load it by name with cel_lens.load_model"
        )


def _value_and_output_bias(attention: Any, bridged: bool) -> tuple[Any, Any]:
    if not bridged:
        return attention.b_V, attention.b_O
    return getattr(raw(attention.v), "bias", None), getattr(raw(attention.o), "bias", None)


def check_parity(model: Any, reference: Any, name: str) -> float:
    """Refuse a conversion whose logits differ from those of the transformers model.

    Also checks that ``hook_z`` is ``[batch, position, head, d_head]`` in every layer.

    Args:
        model: The converted model, on the CPU.
        reference: The transformers model it was made from, or its :func:`reference_logits`, which have to be
            taken before a bridge is put around it.
        name: How messages call it.

    Returns:
        The largest difference, as a fraction of the largest logit.

    Raises:
        UnsupportedModel: If they differ by more than the precision explains, or a ``hook_z`` has another
            shape.
        ModelLoadError: If the checkpoint itself gives logits that are not finite.
    """
    error = parity_error(model, reference, name)
    dtype = str(model.cfg.dtype).removeprefix("torch.")
    if not error <= _tolerance(model):  # also when the difference is NaN
        raise UnsupportedModel(
            f"{name!r} gives other logits in {transformer_lens_name()} than in "
            f"transformers {version('transformers')} (relative difference {error:.2g} in {dtype}): "
            f"TransformerLens does not carry this architecture over exactly, so it is refused"
        )
    return error


def reference_logits(hf_model: Any, name: str, n_tokens: int = _PARITY_TOKENS) -> torch.Tensor:
    """Logits of a transformers model on one fixed prompt, ``[1, pos, vocabulary]``, in float32.

    Raises:
        ModelLoadError: If they are not finite.
    """
    import torch

    weight = next(hf_model.parameters())
    vocabulary = hf_model.get_input_embeddings().weight.shape[0]
    longest = getattr(hf_model.config, "max_position_embeddings", None) or n_tokens
    tokens = _fixed_prompt(min(n_tokens, longest), vocabulary, weight.device)
    with quiet(), torch.inference_mode():
        logits: torch.Tensor = hf_model(tokens, use_cache=False).logits.float()
    if not bool(logits.isfinite().all()):
        dtype = str(weight.dtype).removeprefix("torch.")
        raise ModelLoadError(
            f"{name!r} gives logits that are not finite in {dtype}: try float32, or check the checkpoint"
        )
    return logits


def parity_error(model: Any, reference: Any, name: str, n_tokens: int = _PARITY_TOKENS) -> float:
    """Largest logit difference on one fixed prompt, as a fraction of the largest logit.

    Args:
        model: The converted model.
        reference: The transformers model on the same device, or its :func:`reference_logits`.
        name: How messages call it.
        n_tokens: Length of the prompt, cut to the context of the model.

    Raises:
        UnsupportedModel: If a ``hook_z`` is not ``[batch, position, head, d_head]``.
        ModelLoadError: If the checkpoint itself gives logits that are not finite.
    """
    import torch

    lens = lens_of(model)
    n_tokens = min(n_tokens, lens.n_ctx)
    theirs = (
        reference[:, :n_tokens]
        if isinstance(reference, torch.Tensor)
        else reference_logits(reference, name, n_tokens)
    )
    tokens = _fixed_prompt(n_tokens, theirs.shape[-1], lens.device)
    shapes: dict[int, tuple[int, ...]] = {}

    def record(layer: int) -> Any:
        return lambda module, inputs, output: shapes.__setitem__(layer, tuple(output.shape))

    with quiet(), torch.inference_mode(), ExitStack() as hooks:
        for layer in range(lens.n_layers):
            hooks.callback(lens.hook_z(layer).register_forward_hook(record(layer)).remove)
        ours = lens.logits(lens.residual(tokens, torch.ones_like(tokens)))
    expected = (1, n_tokens, lens.n_heads, lens.d_head)
    for layer in range(lens.n_layers):
        if shapes.get(layer) != expected:
            raise UnsupportedModel(
                f"blocks.{layer}.attn.hook_z of {name!r} has shape {shapes.get(layer)} instead of {expected}"
            )
    if ours.shape != theirs.shape:
        return math.inf
    return float((ours - theirs).abs().max() / theirs.abs().max().clamp_min(1e-9))


def check_cache(model: Any, name: str) -> float:
    """Refuse a model that decodes something else with a cache, or behind padding, than without.

    TransformerLens reads names inside transformers that change between releases; where they do not fit
    together, a cache stays empty without an error.

    Args:
        model: The loaded model.
        name: How messages call it.

    Returns:
        The largest difference, as a fraction of the largest logit.

    Raises:
        UnsupportedModel: If they differ by more than the precision explains.
    """
    import torch

    lens = lens_of(model)
    n_tokens = min(_CACHED_TOKENS, lens.n_ctx)
    tokens = _fixed_prompt(n_tokens, _vocabulary(model), lens.device)
    mask, padded = torch.ones_like(tokens), torch.nn.functional.pad(tokens, (2, 0))
    with quiet(), torch.inference_mode():
        whole = lens.logits(lens.residual(tokens, mask)[:, -1])
        cache, start = lens.new_cache(1), 2 + n_tokens // 2
        shown = torch.nn.functional.pad(mask, (2, 0))
        last = lens.residual(padded[:, :start], shown[:, :start], cache)
        for place in range(start, padded.shape[1]):
            last = lens.residual(padded[:, place : place + 1], shown[:, place : place + 1], cache)
        off = float((lens.logits(last[:, -1]) - whole).abs().max() / whole.abs().max().clamp_min(1e-9))
    if not off <= _tolerance(model):
        raise UnsupportedModel(
            f"{name!r} decodes other text with a cache than without (relative difference {off:.2g}): "
            f"{transformer_lens_name()} and transformers {version('transformers')} do not fit together for it"
        )
    return off


def _fixed_prompt(n_tokens: int, vocabulary: int, device: torch.device) -> torch.Tensor:
    """Fixed ids, spread over the vocabulary: no tokenizer is needed and no two are neighbours, ``[1, pos]``."""
    import torch

    return ((torch.arange(n_tokens) * 7919 + 11) % vocabulary)[None].to(device)


def _vocabulary(model: Any) -> int:
    return int(model.cfg.d_vocab)


def _tolerance(model: Any) -> float:
    return _TOLERANCE.get(str(next(model.parameters()).dtype).removeprefix("torch."), 1.5e-1)
