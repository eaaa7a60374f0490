"""``load_model``: one way to a ``HookedTransformer`` whose heads can be removed exactly."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from cel_lens.errors import InvalidInput, ModelLoadError
from cel_lens.models.checkpoints import Checkpoint, read_folder, read_gguf
from cel_lens.models.checks import check_finite, check_model, check_parity, check_structure
from cel_lens.models.convert import RESEARCH_OWNERS, load_research_model, to_hooked
from cel_lens.models.embedded import read_embedded
from cel_lens.models.facts import remember, tokenizer_eos
from cel_lens.models.hub import fetch, reachable
from cel_lens.models.quiet import quiet
from cel_lens.models.sources import ModelSource, resolve_source

if TYPE_CHECKING:
    import torch
    from transformer_lens import HookedTransformer

__all__ = ["load_model"]

_DTYPES = ("float32", "bfloat16", "float16", "float64")


def load_model(
    source: str | os.PathLike[str] | HookedTransformer,
    *,
    dtype: str | torch.dtype = "float32",
    device: str | torch.device = "auto",
    local_files_only: bool = False,
) -> HookedTransformer:
    """Load a language model as TransformerLens' ``HookedTransformer``, with raw weights.

    Nothing is folded or centred: folded value biases would survive the removal of a head. The logits are
    compared with those of transformers on a short prompt. The tokenizer is the checkpoint's own; whether it
    begins with a BOS token stands in ``cfg.default_prepend_bos``.

    Args:
        source: ``"smollm2-135m-instruct"`` (embedded), a folder with ``config.json`` and safetensors, a
            ``.gguf`` file, a name that TransformerLens knows, another ``owner/name`` on Hugging Face, or a
            ``HookedTransformer``, which is checked and returned as it is (``dtype`` and ``device`` then
            have no effect).
        dtype: ``"float32"``, ``"bfloat16"``, ``"float16"`` or a ``torch.dtype``.
        device: ``"auto"`` takes cuda, then mps, then cpu; or the name of a device.
        local_files_only: Never use the network.

    Returns:
        The model, in evaluation mode, with its tokenizer attached.

    Raises:
        InvalidInput: If an argument has no meaning.
        ModelLoadError: If the model is unknown, missing, out of reach or damaged.
        UnsupportedModel: If TransformerLens cannot express it exactly, or its value biases are folded.
    """
    if not isinstance(source, (str, os.PathLike)):
        check_model(source, _object_name(source))
        return source
    torch_dtype = _parse_dtype(dtype)
    torch_device = _parse_device(device)
    found = resolve_source(source)
    if found.listed and str(found.repo).startswith(RESEARCH_OWNERS):
        reachable(found, local_files_only=local_files_only)
        model = load_research_model(found, torch_dtype)
        check_model(model, found.name)
        return _finish(model, found, torch_device, tokenizer_eos(model.tokenizer))
    checkpoint = _read(found, torch_dtype, local_files_only)
    check_finite(checkpoint.hf_model.named_parameters(), found.name)
    model = to_hooked(checkpoint, torch_dtype, listed=found.repo if found.listed else None)
    check_structure(model, found.name)
    check_parity(model, checkpoint.hf_model, found.name)
    return _finish(model, found, torch_device, checkpoint.eos_token_ids)


def _finish(
    model: HookedTransformer, source: ModelSource, device: torch.device, eos_token_ids: tuple[int, ...]
) -> HookedTransformer:
    import torch

    try:
        with quiet():
            model.to(device, print_details=False)
    except torch.OutOfMemoryError as error:
        raise ModelLoadError(
            f"{source.name!r} does not fit on {device}: use bfloat16, another device or a smaller model"
        ) from error
    remember(model, source.name, source.kind, eos_token_ids)
    return model


def _read(source: ModelSource, dtype: torch.dtype, local_files_only: bool) -> Checkpoint:
    if source.kind == "embedded":
        return read_embedded(dtype)
    if source.kind == "hub":
        folder = fetch(source, local_files_only=local_files_only)
        return read_folder(folder, source.name, dtype, pickles=source.listed)
    assert source.path is not None
    if source.kind == "gguf":
        return read_gguf(source.path, source.name, dtype)
    return read_folder(source.path, source.name, dtype)


def _object_name(model: object) -> str:
    return str(getattr(getattr(model, "cfg", None), "model_name", None) or "the given model")


def _parse_dtype(dtype: str | torch.dtype) -> torch.dtype:
    import torch

    named: dict[str, torch.dtype] = {name: getattr(torch, name) for name in _DTYPES}
    if isinstance(dtype, str) and dtype in named:
        return named[dtype]
    if isinstance(dtype, torch.dtype) and dtype in named.values():
        return dtype
    raise InvalidInput(f"dtype {dtype!s} cannot be used: choose one of {', '.join(_DTYPES[:3])}")


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
