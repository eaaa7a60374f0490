"""What a run records about its model: name, size, precision, special tokens, digest of the weights."""

from __future__ import annotations

import hashlib
import json
import weakref
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from cel_lens.models.backends import backend_of
from cel_lens.models.protocol import Backend
from cel_lens.models.sources import ModelSource, SourceKind

__all__ = ["ModelFacts", "model_facts", "weights_digest"]

_SAMPLE = 1024  # elements read per tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFacts:
    """Facts of one loaded model.

    Attributes:
        name: What the user asked for; for a caller's own object, its ``cfg.model_name``.
        source: Where it came from.
        backend: The class of TransformerLens that runs it: ``HookedTransformer`` or ``TransformerBridge``.
        backend_reason: Why ``load_model`` took the bridge although it was not asked to; ``None`` otherwise.
        n_layers: Transformer blocks.
        n_heads: Query heads per block.
        n_key_value_heads: Key/value heads per block; equal to ``n_heads`` without grouping.
        d_head: Width of one head.
        d_model: Width of the residual stream.
        n_ctx: Largest number of tokens in one sequence.
        dtype: Precision of the weights, for example ``"float32"``.
        device: Where the weights lie, for example ``"cuda:0"``.
        weights_digest: See ``weights_digest``; taken when the facts are asked for.
        prepends_bos: Whether encoding with special tokens begins with the BOS token.
        eos_token_ids: Tokens that end a generation, as the checkpoint lists them.
        template: SHA-256 of the chat template; ``None`` without one.
    """

    name: str
    source: SourceKind
    backend: Backend
    backend_reason: str | None = None
    n_layers: int
    n_heads: int
    n_key_value_heads: int
    d_head: int
    d_model: int
    n_ctx: int
    dtype: str
    device: str
    weights_digest: str
    prepends_bos: bool
    eos_token_ids: tuple[int, ...]
    template: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Origin:
    name: str
    source: SourceKind
    eos_token_ids: tuple[int, ...]
    backend_reason: str | None = None


# TransformerLens' object has no place for these, and adding attributes to it would change the user's model.
_ORIGINS: weakref.WeakKeyDictionary[Any, _Origin] = weakref.WeakKeyDictionary()


def remember(
    model: Any,
    source: ModelSource,
    *,
    eos_token_ids: Iterable[int],
    backend_reason: str | None = None,
) -> None:
    """Note where a model came from, for as long as the model lives."""
    _ORIGINS[model] = _Origin(
        name=source.name,
        source=source.kind,
        eos_token_ids=tuple(eos_token_ids),
        backend_reason=backend_reason,
    )


def is_remembered(model: object) -> bool:
    """Whether ``load_model`` has made this very object."""
    try:
        return model in _ORIGINS
    except TypeError:  # not hashable, or without weak references: certainly not a model
        return False


def model_facts(model: Any) -> ModelFacts:
    """Collect the facts of a model; takes milliseconds, so it can be asked again after an edit.

    Args:
        model: A model from ``load_model``, or any ``HookedTransformer`` or ``TransformerBridge``.
    """
    cfg = model.cfg
    weight = next(model.parameters())
    origin = _ORIGINS.get(model)
    if origin is None:
        origin = _Origin(name=str(cfg.model_name), source="object", eos_token_ids=_object_eos(model))
    return ModelFacts(
        name=origin.name,
        source=origin.source,
        backend=backend_of(model) or "hooked",
        backend_reason=origin.backend_reason,
        n_layers=cfg.n_layers,
        n_heads=cfg.n_heads,
        n_key_value_heads=cfg.n_key_value_heads or cfg.n_heads,
        d_head=cfg.d_head,
        d_model=cfg.d_model,
        n_ctx=cfg.n_ctx,
        dtype=str(weight.dtype).removeprefix("torch."),
        device=str(weight.device),
        weights_digest=weights_digest(model),
        prepends_bos=model.tokenizer is not None and bool(cfg.default_prepend_bos),
        eos_token_ids=origin.eos_token_ids,
        template=_template_digest(model.tokenizer),
    )


def weights_digest(model: Any) -> str:
    """SHA-256 over name, shape, precision and an evenly spaced sample of every weight tensor.

    The sample has about a thousand elements per tensor: enough to tell checkpoints, precisions and edits of
    whole heads apart, not to notice one changed number.

    Args:
        model: The model; on any device.

    Returns:
        64 hexadecimal digits.
    """
    import torch

    digest = hashlib.sha256()
    for name, parameter in sorted(model.named_parameters()):
        flat = parameter.detach().reshape(-1)
        step = max(1, flat.numel() // _SAMPLE) | 1  # odd, so that it does not fall in step with a width
        sample = flat[::step].cpu().contiguous().view(torch.uint8)
        digest.update(f"{name} {tuple(parameter.shape)} {parameter.dtype}\n".encode())
        digest.update(sample.numpy().tobytes())
    return digest.hexdigest()


def _object_eos(model: Any) -> tuple[int, ...]:
    """What ends an answer of a caller's own object: the generation config of a bridge, else the tokenizer."""
    inside = getattr(model, "original_model", None)
    ids = getattr(getattr(inside, "generation_config", None), "eos_token_id", None)
    listed = tuple(ids) if isinstance(ids, (list, tuple)) else (ids,)
    return tuple(one for one in listed if isinstance(one, int)) or tokenizer_eos(model.tokenizer)


def tokenizer_eos(tokenizer: Any) -> tuple[int, ...]:
    """The end-of-text id of a tokenizer, as a tuple that is empty without one."""
    eos = getattr(tokenizer, "eos_token_id", None)
    return (eos,) if isinstance(eos, int) else ()


def _template_digest(tokenizer: Any) -> str | None:
    template = getattr(tokenizer, "chat_template", None)
    if not template:
        return None
    text = template if isinstance(template, str) else json.dumps(template, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()
