"""The checkpoint that a model came from, as files."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cel_lens.errors import InvalidInput, ModelLoadError, UnsupportedModel
from cel_lens.models.checkpoints import Checkpoint, first_line, read_gguf
from cel_lens.models.convert import RESEARCH_OWNERS
from cel_lens.models.embedded import cached_folder, read_embedded
from cel_lens.models.facts import model_facts, weights_digest
from cel_lens.models.hub import fetch
from cel_lens.models.loading import load_model
from cel_lens.models.quiet import quiet
from cel_lens.models.sources import ModelSource, resolve_source

if TYPE_CHECKING:
    from transformer_lens import HookedTransformer

__all__ = ["Original", "check_unedited", "digest_in", "open_original", "source_of"]

_EMBEDDED_REPO = "HuggingFaceTB/SmolLM2-135M-Instruct"


@dataclass(frozen=True, slots=True, kw_only=True)
class Original:
    """A checkpoint on disk.

    Attributes:
        name: What the user asked for.
        folder: Holds config, safetensors and tokenizer files.
        repo: The Hugging Face repository it comes from, if that is known.
    """

    name: str
    folder: Path
    repo: str | None


def source_of(model: Any) -> str:
    """The name or path that a model was loaded from.

    Args:
        model: A model from ``load_model``, or the name or path itself.

    Raises:
        InvalidInput: If it is a model object that ``load_model`` did not make, or no model.
    """
    if isinstance(model, (str, os.PathLike)):
        return os.fspath(model)
    if not hasattr(model, "named_parameters"):
        raise InvalidInput(
            f"a model is a name, a folder, a .gguf file or an object from load_model, not {type(model).__name__}"
        )
    facts = model_facts(model)
    if facts.source == "object":
        raise InvalidInput(
            f"the checkpoint of this {type(model).__name__} is not known, because load_model did not make it: "
            "give the name or the folder of its checkpoint instead"
        )
    return facts.name


def check_unedited(model: HookedTransformer) -> None:
    """Refuse a loaded model whose weights are no longer those of its checkpoint.

    The checkpoint is read once more and every number is compared, so memory for two models is needed.

    Args:
        model: A model from ``load_model``.

    Raises:
        InvalidInput: If any weight differs.
    """
    import torch

    facts = model_facts(model)
    fresh = dict(load_model(facts.name, dtype=facts.dtype, device="cpu").named_parameters())
    for key, weight in model.named_parameters():
        if key not in fresh or not torch.equal(weight.detach().cpu(), fresh[key].detach()):
            raise InvalidInput(
                f"weight {key} of the model in memory is not that of its checkpoint {facts.name!r}, from which "
                "files are written: save the edited model with transformers first, and give that folder"
            )


def digest_in(source: str, dtype: str) -> str:
    """The :func:`weights_digest` of a checkpoint, loaded in a precision."""
    return weights_digest(load_model(source, dtype=dtype, device="cpu"))


@contextmanager
def open_original(source: str, workspace: Path) -> Iterator[Original]:
    """The files of a checkpoint; those of a GGUF file are unpacked in float32 for as long as the block lasts.

    Args:
        source: Anything by which :func:`load_model` finds a model.
        workspace: An existing folder, in which a GGUF file is unpacked.

    Raises:
        InvalidInput: If the source has no meaning.
        ModelLoadError: If it is missing, out of reach or damaged.
        UnsupportedModel: If it exists in TransformerLens' own format only.
    """
    import torch

    found = resolve_source(source)
    if found.listed and str(found.repo).startswith(RESEARCH_OWNERS):
        raise UnsupportedModel(
            f"{found.name!r} exists in TransformerLens' own format only, not as a checkpoint"
        )
    if found.kind == "embedded":
        checkpoint = read_embedded(torch.float32)
        if (cached_folder() / "config.json").is_file():
            yield Original(name=found.name, folder=cached_folder(), repo=_EMBEDDED_REPO)
            return
        repo: str | None = _EMBEDDED_REPO
    elif found.kind == "gguf":
        assert found.path is not None
        checkpoint, repo = read_gguf(found.path, found.name, torch.float32), None
    else:
        yield Original(name=found.name, folder=_folder(found), repo=found.repo)
        return
    with tempfile.TemporaryDirectory(prefix=".unpacked-", dir=workspace) as folder:
        _save(checkpoint, Path(folder))
        yield Original(name=found.name, folder=Path(folder), repo=repo)


def _folder(source: ModelSource) -> Path:
    if source.kind == "hub":
        return fetch(source, local_files_only=False)
    assert source.path is not None
    return source.path


def _save(checkpoint: Checkpoint, folder: Path) -> None:
    try:
        with quiet():
            checkpoint.hf_model.save_pretrained(folder)
            checkpoint.tokenizer.save_pretrained(folder)
    except Exception as error:  # a full disk has another exception in each of the two libraries
        raise ModelLoadError(
            f"{checkpoint.name!r} cannot be unpacked into {folder.parent}: {first_line(error)}"
        ) from error
