"""Write a checkpoint in which chosen heads have no effect."""

from __future__ import annotations

import json
import os
import secrets
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cel_lens.errors import InvalidInput, ModelLoadError, UnsupportedModel
from cel_lens.export.card import Removal, model_card
from cel_lens.export.tensors import TensorPlace, n_inputs, read_places, write_zeros
from cel_lens.heads import Head, HeadSet
from cel_lens.models.checkpoints import first_line, read_config
from cel_lens.models.originals import Original, check_unedited, digest_in, open_original, source_of
from cel_lens.models.projections import Projection, projection_of
from cel_lens.models.quiet import quiet
from cel_lens.results import BeneficialHeads

__all__ = ["export_ablated"]

_KEPT = (
    "*.json",
    "*.model",
    "*.txt",
    "*.jinja",
    "*.tiktoken",
    "*.py",
    "LICEN[CS]E*",
    "NOTICE*",
    "USE_POLICY*",
)
_LEFT_OUT = ("manifest.json", "pytorch_model*", "trainer_state.json", "*_results.json")
"""Of other formats of the weights, and of things that are true of the model with its heads only."""

_WHOLE = "model.safetensors"
_INDEX = "model.safetensors.index.json"
_TEMPLATES = "additional_chat_templates"


def export_ablated(
    model: Any,
    heads: str | Head | HeadSet | Iterable[Head | str | tuple[int, int]],
    folder: str | os.PathLike[str],
    *,
    evidence: BeneficialHeads | None = None,
) -> Path:
    """Write a transformers checkpoint in which heads are removed for good.

    The files of the model's own checkpoint are copied byte for byte; then the weights by which the output
    projection reads the removed heads become zero. That equals :func:`zero_ablation`, and the architecture
    stays as it is, so that transformers and whatever else reads its checkpoints load it without any code.
    Biases, tied weights, shards and number formats are those of the checkpoint. ``README.md`` says what was
    removed and, with ``evidence``, what was measured.

    The model object is not changed. If the writing is interrupted, no folder is left.

    Args:
        model: A model from :func:`load_model`, or its name, folder or ``.gguf`` file; a GGUF file, the
            embedded model among them, is written in float32.
        heads: Heads in any form that :meth:`HeadSet.of` reads; at least one.
        folder: The folder to write; it does not exist yet, or is empty.
        evidence: The finished search that chose these heads in this model.

    Returns:
        The folder.

    Raises:
        InvalidInput: If the folder holds something or cannot be written, a head does not exist, the evidence
            is about other heads or other weights, or the model was edited in memory.
        ModelLoadError: If the checkpoint is missing or damaged.
        UnsupportedModel: If it is not known where this kind of model keeps its heads.

    Example:
        >>> export_ablated(model, result.heads, "without-heads", evidence=result)
    """
    removed = _chosen(heads, evidence)
    target = Path(os.path.realpath(Path(folder).expanduser()))
    _check_free(target)
    source = source_of(model)
    if (
        evidence is not None
        and digest_in(source, evidence.provenance.dtype) != evidence.provenance.weights_digest
    ):
        raise InvalidInput(
            f"the evidence was measured on other weights than those of {source!r}: give the model that the "
            f"search was run on ({evidence.provenance.model!r})"
        )
    if not isinstance(model, (str, os.PathLike)):
        check_unedited(model)
    with _built(target) as building, open_original(source, building.parent) as original:
        removals = _write(original, removed, building)
        card = model_card(original, removed, removals, evidence)
        (building / "README.md").write_text(card, encoding="utf-8", errors="backslashreplace")
    return Path(folder)


def _chosen(heads: Any, evidence: BeneficialHeads | None) -> HeadSet:
    removed = HeadSet.of(heads)
    if not removed.heads:
        raise InvalidInput(
            "no head is named, and the intact model needs no export: name heads such as L3H7+L9H6"
        )
    if evidence is not None and evidence.heads != removed:
        raise InvalidInput(
            f"the evidence is about {evidence.heads.label}, not about {removed}: export those heads, or leave the "
            "evidence out"
        )
    return removed


def _check_free(target: Path) -> None:
    try:
        occupied = (target.exists() and not target.is_dir()) or (target.is_dir() and any(target.iterdir()))
    except OSError as error:
        raise InvalidInput(f"{target} cannot be written ({error.strerror or error})") from error
    if occupied:
        raise InvalidInput(f"{target} is not empty: an export needs a folder that is new or empty")


@contextmanager
def _built(target: Path) -> Iterator[Path]:
    """A sibling of the folder to fill, which takes its place at the end, or is gone."""
    building = target.with_name(f".{target.name}.{secrets.token_hex(4)}.partial")
    made = [parent for parent in target.parents if not parent.exists()]  # deepest first
    done = False
    try:
        building.mkdir(parents=True)
        yield building
        building.rename(target)
        done = True
    except OSError as error:
        ours = str(error.filename or building).startswith(str(building))
        what = f"{target} cannot be written" if ours else f"{error.filename} cannot be read"
        raise InvalidInput(f"{what} ({error.strerror or error})") from error
    finally:
        if not done:
            shutil.rmtree(building, ignore_errors=True)
            for parent in made:
                with suppress(OSError):
                    parent.rmdir()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shape:
    """What a config says about the heads.

    Attributes:
        n_layers: Layers.
        n_heads: Query heads in each.
        d_head: Width of a head, if the config has it.
    """

    n_layers: int
    n_heads: int
    d_head: int | None


def _write(original: Original, heads: HeadSet, building: Path) -> tuple[Removal, ...]:
    """Copy the checkpoint and zero the heads' weights in the copy."""
    config = read_config(original.folder, original.name)
    projection = projection_of(config.get("model_type"), original.name)
    if (original.folder / "adapter_config.json").exists():
        raise UnsupportedModel(
            f"{original.name!r} holds an adapter beside its weights: merge it into them first, with peft"
        )
    shape = _shape(original)
    heads.check_within(shape.n_layers, shape.n_heads)
    files = _weight_files(original)
    places = {name: place for file in files for name, place in read_places(file, original.name).items()}
    removals = tuple(_removal(head, projection, shape, places, original.name) for head in heads)
    for file in (*files, *_other_files(original.folder)):
        copy = building / file.relative_to(original.folder)
        copy.parent.mkdir(exist_ok=True)
        shutil.copyfile(file, copy)
    for one in removals:
        place = places[one.tensor]
        copied = TensorPlace(
            file=building / place.file.name,
            name=place.name,
            dtype=place.dtype,
            shape=place.shape,
            start=place.start,
        )
        write_zeros(copied, one.axis, one.first, one.last)
    return removals


def _shape(original: Original) -> _Shape:
    with quiet():
        from transformers import AutoConfig

        loader: Any = AutoConfig  # partly untyped in transformers
        try:
            config = loader.from_pretrained(original.folder, local_files_only=True, trust_remote_code=False)
        except Exception as error:
            raise ModelLoadError(
                f"config.json of {original.name!r} cannot be used: {first_line(error)}"
            ) from error
    return _Shape(
        n_layers=int(config.num_hidden_layers),
        n_heads=int(config.num_attention_heads),
        d_head=getattr(config, "head_dim", None),
    )


def _weight_files(original: Original) -> tuple[Path, ...]:
    """The safetensors files that transformers would read, the whole one before shards."""
    whole, index = original.folder / _WHOLE, original.folder / _INDEX
    if whole.is_file():
        return (whole,)
    if not index.is_file():
        raise ModelLoadError(
            f"{original.name!r} has no {_WHOLE} and no {_INDEX}: convert its weights first, with save_pretrained "
            "of transformers, to safetensors"
        )
    try:
        names = sorted(
            {str(name) for name in json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()}
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelLoadError(f"{_INDEX} of {original.name!r} cannot be read: {error}") from error
    for name in names:
        if Path(name).name != name or not (original.folder / name).is_file():
            raise ModelLoadError(f"{original.name!r} is incomplete: its file {name} is missing")
    return tuple(original.folder / name for name in names)


def _other_files(folder: Path) -> tuple[Path, ...]:
    """Config, tokenizer, licence and the like, without other formats of the weights."""
    left_out = {file for pattern in _LEFT_OUT for file in folder.glob(pattern)}
    kept = {file for pattern in _KEPT for file in folder.glob(pattern)} - left_out
    kept |= set((folder / _TEMPLATES).glob("*.jinja"))
    if not (folder / _INDEX).is_file() or (folder / _WHOLE).is_file():
        kept.discard(folder / _INDEX)  # of shards that are not the weights
    return tuple(sorted(file for file in kept if file.is_file()))


def _removal(
    head: Head, projection: Projection, shape: _Shape, places: dict[str, TensorPlace], model: str
) -> Removal:
    place = places[projection.find(head.layer, places, model)]
    width = n_inputs(place, projection.axis)
    if width == 0 or width % shape.n_heads or shape.d_head not in (None, width // shape.n_heads):
        raise ModelLoadError(
            f"{place.name} of {model!r} has the shape {list(place.shape)}, which does not fit "
            f"{shape.n_heads} heads" + (f" of width {shape.d_head}" if shape.d_head else "")
        )
    d_head = width // shape.n_heads
    return Removal(
        head=head,
        tensor=place.name,
        axis=projection.axis,
        first=head.index * d_head,
        last=(head.index + 1) * d_head,
    )
