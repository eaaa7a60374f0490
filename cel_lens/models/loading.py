"""``load_model``: one way to a model of TransformerLens whose heads can be removed exactly."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, get_args

from cel_lens.errors import InvalidInput, ModelLoadError, UnsupportedModel
from cel_lens.models.backends import has_hooked, transformer_lens_name
from cel_lens.models.bridge_load import to_bridge
from cel_lens.models.checkpoints import Checkpoint, read_folder, read_gguf
from cel_lens.models.checks import (
    check_cache,
    check_finite,
    check_model,
    check_parity,
    check_structure,
    reference_logits,
)
from cel_lens.models.convert import RESEARCH_OWNERS, load_research_model, to_hooked
from cel_lens.models.embedded import read_embedded
from cel_lens.models.facts import remember, tokenizer_eos
from cel_lens.models.hub import fetch, reachable
from cel_lens.models.protocol import Backend
from cel_lens.models.quiet import quiet
from cel_lens.models.size import check_memory
from cel_lens.models.sources import ModelSource, resolve_source

if TYPE_CHECKING:
    import torch

__all__ = ["load_model", "read_checkpoint"]

_DTYPES = ("float32", "bfloat16", "float16", "float64")


def load_model(
    source: Any,
    *,
    dtype: str | torch.dtype = "auto",
    device: str | torch.device = "auto",
    backend: Literal["auto"] | Backend = "auto",
    local_files_only: bool = False,
) -> Any:
    """Load a language model as TransformerLens' ``HookedTransformer`` or ``TransformerBridge``, with raw weights.

    Nothing is folded or centred: folded value biases would survive the removal of a head. The logits are
    compared with those of transformers on a short prompt, and decoding with a cache with decoding without.
    The tokenizer is the checkpoint's own; whether it begins with a BOS token stands in
    ``cfg.default_prepend_bos``.

    Args:
        source: ``"smollm2-135m-instruct"`` (embedded), a folder with ``config.json`` and safetensors, a
            ``.gguf`` file, a name that TransformerLens knows, another ``owner/name`` on Hugging Face, or a
            ``HookedTransformer`` or ``TransformerBridge``, which is checked and returned as it is (the other
            arguments then have no effect).
        dtype: ``"auto"`` is bfloat16 on a CUDA device that has it, else float32; or ``"float32"``,
            ``"bfloat16"``, ``"float16"`` or a ``torch.dtype``.
        device: ``"auto"`` takes cuda, then mps, then cpu; or the name of a device.
        backend: ``"hooked"`` gives a ``HookedTransformer``; ``"bridge"`` gives a ``TransformerBridge``, which
            knows more architectures and wraps the transformers model itself; ``"auto"`` takes the first
            where it is exact, else the second. :func:`model_facts` says which it was, and why.
        local_files_only: Never use the network.

    Returns:
        The model, in evaluation mode, with its tokenizer attached.

    Raises:
        InvalidInput: If an argument has no meaning.
        ModelLoadError: If the model is unknown, missing, out of reach or damaged, or does not fit into memory.
        UnsupportedModel: If TransformerLens cannot express it exactly, or its value biases are folded.
    """
    if backend not in ("auto", *get_args(Backend)):
        raise InvalidInput(f"backend is auto, hooked or bridge, not {backend!r}")
    if not isinstance(source, (str, os.PathLike)):
        check_model(source, _object_name(source))
        return source
    torch_device = _parse_device(device)
    torch_dtype = _parse_dtype(dtype, torch_device)
    found = resolve_source(source)
    if found.listed and str(found.repo).startswith(RESEARCH_OWNERS):
        return _load_research(found, torch_dtype, torch_device, backend, local_files_only=local_files_only)
    if found.kind == "hub":
        found = replace(found, path=fetch(found, local_files_only=local_files_only))
    check_memory(found, torch_dtype, torch_device, hooked=backend != "bridge" and has_hooked())
    checkpoint = read_checkpoint(found, torch_dtype, local_files_only=local_files_only)
    check_finite(checkpoint.hf_model.named_parameters(), found.name)
    model, reason = _convert(checkpoint, found, torch_dtype, backend)
    model = _on_device(model, found, torch_device)
    check_cache(model, found.name)
    remember(model, found, eos_token_ids=checkpoint.eos_token_ids, backend_reason=reason)
    return model


def _convert(
    checkpoint: Checkpoint, source: ModelSource, dtype: torch.dtype, backend: Literal["auto"] | Backend
) -> tuple[Any, str | None]:
    """The model, and why it is a bridge although it was not asked for."""
    if backend == "bridge":
        return _bridge(checkpoint), None
    if not has_hooked():
        reason = f"{transformer_lens_name()} has no HookedTransformer"
        if backend == "hooked":
            raise UnsupportedModel(
                f"{source.name!r} cannot be loaded with backend 'hooked': {reason}; use bridge"
            )
        return _bridge(checkpoint), reason
    try:
        model = to_hooked(checkpoint, dtype, listed=source.repo if source.listed else None)
        check_structure(model, source.name)
        check_parity(model, checkpoint.hf_model, source.name)
    except UnsupportedModel as error:
        if backend == "hooked":
            raise
        try:
            return _bridge(checkpoint), str(error)
        except UnsupportedModel as second:
            raise UnsupportedModel(f"{error}; and as a bridge: {second}") from error
    return model, None


def _bridge(checkpoint: Checkpoint) -> Any:
    expected = reference_logits(checkpoint.hf_model, checkpoint.name)
    model = to_bridge(checkpoint)
    check_structure(model, checkpoint.name)
    check_parity(model, expected, checkpoint.name)
    return model


def _load_research(
    source: ModelSource,
    dtype: torch.dtype,
    device: torch.device,
    backend: Literal["auto"] | Backend,
    *,
    local_files_only: bool,
) -> Any:
    if backend == "bridge":
        raise UnsupportedModel(
            f"{source.name!r} exists for HookedTransformer only: use backend hooked or auto"
        )
    reachable(source, local_files_only=local_files_only)
    model = _on_device(load_research_model(source, dtype), source, device)
    check_model(model, source.name)
    remember(model, source, eos_token_ids=tokenizer_eos(model.tokenizer))
    return model


def _on_device(model: Any, source: ModelSource, device: torch.device) -> Any:
    import torch

    try:
        with quiet():
            model.to(device, print_details=False)
    except torch.OutOfMemoryError as error:
        raise ModelLoadError(
            f"{source.name!r} does not fit on {device}: use bfloat16, another device or a smaller model"
        ) from error
    return model


def read_checkpoint(source: ModelSource, dtype: torch.dtype, *, local_files_only: bool = False) -> Checkpoint:
    """Read a model as transformers has it.

    Args:
        source: Where it lies.
        dtype: Precision to read the weights in.
        local_files_only: Never use the network.

    Raises:
        ModelLoadError: If it is missing, out of reach or damaged.
        UnsupportedModel: If it is of another kind or quantised.
    """
    if source.kind == "embedded":
        return read_embedded(dtype)
    if source.kind == "hub":
        folder = source.path or fetch(source, local_files_only=local_files_only)
        return read_folder(folder, source.name, dtype, pickles=source.listed)
    assert source.path is not None
    if source.kind == "gguf":
        return read_gguf(source.path, source.name, dtype)
    return read_folder(source.path, source.name, dtype)


def _object_name(model: object) -> str:
    return str(getattr(getattr(model, "cfg", None), "model_name", None) or "the given model")


def _parse_dtype(dtype: str | torch.dtype, device: torch.device) -> torch.dtype:
    import torch

    if isinstance(dtype, str) and dtype == "auto":
        half = device.type == "cuda" and torch.cuda.is_bf16_supported()
        return torch.bfloat16 if half else torch.float32
    named: dict[str, torch.dtype] = {name: getattr(torch, name) for name in _DTYPES}
    if isinstance(dtype, str) and dtype in named:
        return named[dtype]
    if isinstance(dtype, torch.dtype) and dtype in named.values():
        return dtype
    raise InvalidInput(f"dtype {dtype!s} cannot be used: choose one of auto, {', '.join(_DTYPES[:3])}")


def _parse_device(device: str | torch.device) -> torch.device:
    import torch

    has_mps = torch.backends.mps.is_available()
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "mps" if has_mps else "cpu")
    try:
        chosen = torch.device(device)
    except (RuntimeError, TypeError) as error:
        raise InvalidInput(f"there is no device {device!r}: write auto, cpu, mps, cuda or cuda:1") from error
    count = {"cpu": 1, "mps": int(has_mps), "cuda": torch.cuda.device_count()}.get(chosen.type, 0)
    if (chosen.index or 0) >= count:
        raise InvalidInput(f"device {str(device)!r} is not available here: use auto or cpu")
    return chosen
