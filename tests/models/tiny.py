"""Tiny random models of every supported family, built offline in well under a second.

``tiny_folder`` writes a checkpoint, ``tiny_model`` loads one with ``load_model``, ``tiny_hf`` gives the
transformers model with the same weights. Every bias is non-zero, so that a wrongly treated one shows.
"""

from __future__ import annotations

import ast
import functools
import json
import math
import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch

from cel_lens.models import load_model
from cel_lens.models.backends import has_hooked, transformer_lens_name
from cel_lens.models.quiet import quiet
from tests.models.templates import ChatTemplate

FAMILIES = ("llama", "qwen2", "qwen3", "mistral", "phi3", "gpt2", "gpt_neox")
"""Families that ``HookedTransformer`` expresses; the bridge does too."""

BRIDGE_ONLY = ("smollm3", "gemma2", "gemma3")
"""Families that need the bridge."""

needs_hooked = pytest.mark.skipif(
    not has_hooked(), reason=f"{transformer_lens_name()} has no HookedTransformer, which this is about"
)

LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}

PARITY_CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "Llama": ("llama", {}),
    "Llama, llama3 positions": ("llama", {"rope_parameters": LLAMA3_ROPE}),
    "Llama, llama3 positions, tied embeddings": (
        "llama",
        {"rope_parameters": LLAMA3_ROPE, "tie_word_embeddings": True},
    ),
    "Qwen2": ("qwen2", {}),
    "Qwen3": ("qwen3", {}),
    "SmolLM3": ("smollm3", {}),
    "Gemma-2": ("gemma2", {}),
    "Gemma-3": ("gemma3", {}),
    "Mistral": ("mistral", {}),
    "Mistral, sliding window": ("mistral", {"sliding_window": 8}),
    "Phi-3": ("phi3", {}),
    "GPT-2": ("gpt2", {}),
    "GPT-NeoX": ("gpt_neox", {}),
    "GPT-NeoX, sequential": ("gpt_neox", {"use_parallel_residual": False}),
}
"""What the parity suite runs: a name, its family, and entries of the config."""

BOS, EOS, UNK = "<|bos|>", "<|eos|>", "<|unk|>"
_ROLES = ("<|system|>", "<|user|>", "<|assistant|>")
_MERGES = ("t h", "th e", "Ġ t", "Ġ a", "i n", "a n", "an d", "o n", "e r", "Ġ i", "Ġ =", "Ġ +", "Ġ -", "Ġ ?")
_MERGES += ("r e", "o r", "e n", "Ġ o", "i s", "a t", "Ġt h", "Ġth e", "i t", "e s", "1 2")

CHAT_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}<|{{ message['role'] }}|>{{ message['content'] }}{{ eos_token }}"
    "{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)

_GROUPED = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "tie_word_embeddings": False,
}

_SHAPES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("Llama", _GROUPED),
    "qwen2": ("Qwen2", _GROUPED),
    "qwen3": ("Qwen3", {**_GROUPED, "head_dim": 12}),
    "mistral": ("Mistral", {**_GROUPED, "sliding_window": None}),
    "phi3": ("Phi3", _GROUPED),
    "smollm3": ("SmolLM3", {**_GROUPED, "no_rope_layers": [1, 0, 1]}),
    "gemma2": (
        "Gemma2",
        {
            **_GROUPED,
            "head_dim": 12,
            "sliding_window": 5,
            "query_pre_attn_scalar": 10,
            "attn_logit_softcapping": 2.0,
            "final_logit_softcapping": 8.0,
        },
    ),
    "gemma3": (
        "Gemma3",
        {
            **_GROUPED,
            "head_dim": 12,
            "sliding_window": 5,
            "query_pre_attn_scalar": 10,
            "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
        },
    ),
    "gpt2": ("GPT2", {"n_embd": 32, "n_layer": 3, "n_head": 4, "n_positions": 256}),
    "gpt_neox": (
        "GPTNeoX",
        {
            "hidden_size": 32,
            "intermediate_size": 48,
            "num_hidden_layers": 3,
            "num_attention_heads": 4,
            "max_position_embeddings": 256,
            "tie_word_embeddings": False,
            "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5},
        },
    ),
}


def tiny_tokenizer(*, add_bos: bool = False, pad: bool = False, chat: ChatTemplate | None = None) -> Any:
    """A byte-level tokenizer for ASCII text with 128 tokens; digits stay single.

    Args:
        add_bos: Whether it begins with BOS.
        pad: Whether it has a padding token of its own.
        chat: A template with special tokens of its own, in place of ``CHAT_TEMPLATE``.
    """
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers, processors
    from tokenizers.decoders import ByteLevel as ByteLevelDecoder
    from transformers import PreTrainedTokenizerFast

    pairs = [tuple(merge.split(" ")) for merge in _MERGES]
    letters = [chr(code) for code in range(33, 127)] + ["Ġ", "Ċ"]
    bos = BOS if chat is None else chat.bos
    roles = _ROLES if chat is None else chat.marks
    words = [bos or BOS, EOS, UNK, *roles, *letters, *(a + b for a, b in pairs)]
    words += [f"<|spare{index}|>" for index in range(128 - len(words))]
    vocabulary = {word: index for index, word in enumerate(words)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=pairs, unk_token=UNK))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(r"\p{N}"), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    tokenizer.decoder = ByteLevelDecoder()
    if add_bos:
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{bos} $A", pair=f"{bos} $A $B", special_tokens=[(bos, vocabulary[bos])]
        )
    extra = {"pad_token": "<|spare0|>"} if pad else {}
    if bos is not None:
        extra["bos_token"] = bos
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=EOS,
        unk_token=UNK,
        additional_special_tokens=list(roles),
        clean_up_tokenization_spaces=False,
        **extra,
    )
    wrapped.chat_template = CHAT_TEMPLATE if chat is None else chat.source
    return wrapped


def build_hf(family: str, *, seed: int = 0, **changes: Any) -> Any:
    """A fresh transformers model with random weights; ``changes`` are entries of its config."""
    import transformers

    prefix, shape = _SHAPES[family]
    config_class = getattr(transformers, "Gemma3TextConfig" if family == "gemma3" else f"{prefix}Config")
    suffix = "LMHeadModel" if family == "gpt2" else "ForCausalLM"
    entries = {
        "vocab_size": 128,
        "bos_token_id": 0,
        "eos_token_id": 1,
        "pad_token_id": None,
        **shape,
        **changes,
    }
    with quiet():
        model = getattr(transformers, prefix + suffix)._from_config(
            config_class(**entries), attn_implementation="eager"
        )
    _randomise(model, seed, scale=0.0 if family.startswith("gemma") else 1.0)
    return model.eval().requires_grad_(False)


def tiny_folder(
    family: str, path: Path, *, seed: int = 0, add_bos: bool | None = None, pad: bool = False, **changes: Any
) -> Path:
    """Write a tiny random checkpoint with its tokenizer.

    Args:
        family: One of ``FAMILIES`` or ``BRIDGE_ONLY``.
        path: The folder to write, made if absent.
        seed: Of the weights.
        add_bos: Whether the tokenizer begins with BOS; by default it does for ``"llama"`` only.
        pad: Whether the tokenizer has a padding token of its own.
        **changes: Entries of the config, for example ``num_hidden_layers=2``.
    """
    model = build_hf(family, seed=seed, **changes)
    with quiet():
        model.save_pretrained(path)
        tiny_tokenizer(add_bos=family == "llama" if add_bos is None else add_bos, pad=pad).save_pretrained(
            path
        )
    return path


def tiny_model(family: str, *, seed: int = 0, backend: str = "auto", **changes: Any) -> Any:
    """The same model as ``tiny_hf``, loaded with ``load_model``; one object per session and arguments."""
    return _cached_model(family, seed, backend, _frozen(changes))


def tiny_hf(family: str, *, seed: int = 0, **changes: Any) -> Any:
    """The transformers model; one object per session and arguments."""
    return _cached_hf(family, seed, _frozen(changes))


def edit_config(folder: Path, **entries: Any) -> None:
    """Change entries of a checkpoint's ``config.json``; ``...`` removes one."""
    file = folder / "config.json"
    config = json.loads(file.read_text())
    config.update(entries)
    file.write_text(json.dumps({k: v for k, v in config.items() if v is not ...}))


def prompt(n_tokens: int, *, batch: int = 1, seed: int = 0) -> torch.Tensor:
    """Random token ids, ``[batch, n_tokens]``."""
    return torch.randint(3, 128, (batch, n_tokens), generator=torch.Generator().manual_seed(seed))


def _frozen(changes: dict[str, Any]) -> str:
    return repr(sorted(changes.items()))


@functools.cache
def _cached_model(family: str, seed: int, backend: Any, changes: str) -> Any:
    with tempfile.TemporaryDirectory(prefix="tiny-") as folder:
        tiny_folder(family, Path(folder), seed=seed, **_thawed(changes))
        return load_model(Path(folder), device="cpu", backend=backend)


@functools.cache
def _cached_hf(family: str, seed: int, changes: str) -> Any:
    return build_hf(
        family, seed=seed, **{k: v for k, v in _thawed(changes).items() if k not in ("add_bos", "pad")}
    )


def _thawed(changes: str) -> dict[str, Any]:
    return dict(ast.literal_eval(changes))


def _randomise(model: Any, seed: int, *, scale: float) -> None:
    """``scale`` is what the weight of a normalisation is near: Gemma adds one to it."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in sorted(model.named_parameters()):
            noise = torch.randn(parameter.shape, generator=generator)
            if parameter.ndim == 1:
                is_scale = name.endswith("weight")
                parameter.copy_(scale + 0.2 * noise if is_scale else 0.3 * noise)
            else:
                # Large enough that heads matter, small enough that activations stay moderate.
                parameter.copy_(noise / math.sqrt(min(parameter.shape)))


def tiny_gguf(file: Path, *, seed: int = 0, pre: str = "smollm") -> Path:
    """Write the tiny Llama model as an unquantised GGUF file, laid out as llama.cpp does.

    Args:
        file: The file to write.
        seed: Of the weights, as in ``tiny_hf("llama", seed=seed)``.
        pre: The pre-tokenizer rule named in the file.
    """
    import gguf

    model = build_hf("llama", seed=seed)
    config, tokenizer = model.config, tiny_tokenizer()
    writer = gguf.GGUFWriter(file, "llama")
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_rope_dimension_count(config.hidden_size // config.num_attention_heads)
    writer.add_rope_freq_base(10000.0)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_vocab_size(config.vocab_size)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    vocabulary = sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])
    writer.add_token_list([word for word, _ in vocabulary])
    writer.add_token_types([3 if word.startswith("<|") else 1 for word, _ in vocabulary])
    writer.add_token_merges(list(_MERGES))
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)
    writer.add_unk_token_id(2)
    writer.add_add_bos_token(False)
    writer.add_chat_template(CHAT_TEMPLATE)
    for name, tensor in model.state_dict().items():
        writer.add_tensor(_gguf_name(name), _gguf_layout(name, tensor, config).numpy().copy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file


_GGUF_NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def _gguf_name(name: str) -> str:
    stem = name.removesuffix(".weight")
    if not stem.startswith("model.layers."):
        return f"{_GGUF_NAMES[stem]}.weight"
    _, _, layer, part = stem.split(".", 3)
    return f"blk.{layer}.{_GGUF_NAMES[part]}.weight"


def _gguf_layout(name: str, tensor: torch.Tensor, config: Any) -> torch.Tensor:
    """llama.cpp rotates neighbouring rows instead of halves, so it stores queries and keys interleaved."""
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    for part, n_heads in heads.items():
        if part in name:
            rows, columns = tensor.shape
            halves = tensor.reshape(n_heads, 2, rows // n_heads // 2, columns)
            return halves.swapaxes(1, 2).reshape(rows, columns)
    return tensor
