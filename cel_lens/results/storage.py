"""Results on disk: ``result.json``, ``outcomes.npz`` and ``heads.csv``."""

from __future__ import annotations

import json
import os
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import numpy as np

from cel_lens.errors import InvalidInput
from cel_lens.heads import INTACT, Head, HeadSet
from cel_lens.results.attribution import AttributionScreen
from cel_lens.results.beneficial import BeneficialHeads
from cel_lens.results.config import SearchConfig
from cel_lens.results.gains import GainEstimate, HeadBound, HeadGain, SubsetBound, SubsetGain
from cel_lens.results.outcomes import OutcomeMatrix
from cel_lens.results.provenance import Provenance

__all__ = ["FORMAT", "load", "save", "write_text"]

FORMAT = "cel-lens/1"
"""Name and version of the layout of ``result.json``."""

_LATER_SETTINGS = ("attribution_top", "attribution_sample")
"""Settings that the first results of this format lack."""

_DAMAGED = (OSError, ValueError, KeyError, TypeError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error)
"""What Python, numpy and zipfile raise on a file that was cut, overwritten or is of another kind."""


def save(result: BeneficialHeads, folder: str | os.PathLike[str]) -> Path:
    """Write a result; see :meth:`BeneficialHeads.save`."""
    target = Path(folder)
    try:
        target.mkdir(parents=True, exist_ok=True)
        write_text(target / "result.json", json.dumps(to_json(result), indent=1, ensure_ascii=False) + "\n")
        _save_outcomes(target / "outcomes.npz", result)
        write_text(target / "heads.csv", result.to_frame().to_csv(index=False, float_format="%.4f"))
    except OSError as error:
        raise InvalidInput(f"{target} cannot be written ({error.strerror or error})") from error
    return target


def load(folder: str | os.PathLike[str]) -> BeneficialHeads:
    """Read a result; see :meth:`BeneficialHeads.load`."""
    source = Path(folder)
    try:
        document = json.loads((source / "result.json").read_text(encoding="utf-8"))
        discovery, heldout = _load_outcomes(source / "outcomes.npz")
    except FileNotFoundError as error:
        raise InvalidInput(
            f"{source} holds no finished search: {Path(error.filename).name} is missing "
            "(a search writes result.json and outcomes.npz when it ends)"
        ) from error
    except _DAMAGED as error:
        raise InvalidInput(f"the result in {source} cannot be read: {error}") from error
    try:
        return from_json(document, discovery, heldout)
    except KeyError as error:
        raise InvalidInput(f"{source / 'result.json'} lacks the field {error.args[0]}") from error
    except (TypeError, ValueError, AttributeError, ZeroDivisionError) as error:
        raise InvalidInput(
            f"{source / 'result.json'} does not fit this version of cel_lens: {error}"
        ) from error


def write_text(path: Path, text: str) -> None:
    """Replace a file as a whole: readers see the old text or the new one, never a part."""
    partial = path.with_name(path.name + ".partial")
    partial.write_text(
        text, encoding="utf-8", errors="backslashreplace"
    )  # in JSON, an escape that reads back
    partial.replace(path)


def to_json(result: BeneficialHeads) -> dict[str, Any]:
    """The result without its outcome matrices, as values that JSON can hold."""
    return {
        "format": FORMAT,
        "headline": result.headline,
        "heads": _names(result.heads),
        "heldout": _estimate(result.heldout),
        "discovery": _estimate(result.discovery),
        "screening": [
            {
                "head": str(one.head),
                "n": one.n,
                "rescued": one.rescued,
                "damaged": one.damaged,
                "gain": one.gain,
            }
            for one in result.screening
        ],
        "eliminated": [
            {
                "head": str(one.head),
                "n": one.n,
                "measured": one.measured,
                "rescued": one.rescued,
                "damaged": one.damaged,
                "at_most": one.at_most,
            }
            for one in result.eliminated
        ],
        "subsets": [
            {
                "heads": _names(one.heads),
                "n": one.n,
                "rescued": one.rescued,
                "damaged": one.damaged,
                "gain": one.gain,
            }
            for one in result.subsets
        ],
        "eliminated_subsets": [
            {
                "heads": _names(one.heads),
                "n": one.n,
                "measured": one.measured,
                "rescued": one.rescued,
                "damaged": one.damaged,
                "at_most": one.at_most,
            }
            for one in result.eliminated_subsets
        ],
        "attribution": None if result.attribution is None else result.attribution.to_json(),
        "finalists": [_names(one) for one in result.finalists],
        "config": asdict(result.config),
        "provenance": asdict(result.provenance),
    }


def from_json(
    document: Mapping[str, Any], discovery: OutcomeMatrix, heldout: OutcomeMatrix
) -> BeneficialHeads:
    """Build a result from :func:`to_json` and its two outcome matrices.

    Raises:
        ValueError: If the format is another one, a field is unknown, or a figure does not follow from
            the outcome matrices.
        KeyError: If a field is missing.
    """
    if document.get("format") != FORMAT:
        raise ValueError(f"format is {document.get('format')!r}, expected {FORMAT!r}")
    known = {"format", "headline"} | {field.name for field in fields(BeneficialHeads)}
    _refuse_unknown(document, known - {"discovery_outcomes", "heldout_outcomes"})
    config = {
        field.name: document["config"][field.name]
        for field in fields(SearchConfig)
        if field.name in document["config"] or field.name not in _LATER_SETTINGS
    }
    _refuse_unknown(document["config"], set(config))
    attribution = document.get("attribution")
    if config["layers"] is not None:
        config["layers"] = tuple(config["layers"])
    provenance = {field.name: document["provenance"][field.name] for field in fields(Provenance)}
    _refuse_unknown(document["provenance"], set(provenance))
    provenance["inactive"] = tuple(provenance["inactive"])
    result = BeneficialHeads(
        heads=HeadSet.of(document["heads"]),
        heldout=_read_estimate(document["heldout"]),
        discovery=_read_estimate(document["discovery"]),
        screening=tuple(
            HeadGain(head=Head.parse(one["head"]), **_read_counts(one, "head"))
            for one in document["screening"]
        ),
        subsets=tuple(
            SubsetGain(heads=HeadSet.of(one["heads"]), **_read_counts(one, "heads"))
            for one in document["subsets"]
        ),
        finalists=tuple(HeadSet.of(one) for one in document["finalists"]),
        config=SearchConfig(**config),
        provenance=Provenance(**provenance),
        discovery_outcomes=discovery,
        heldout_outcomes=heldout,
        eliminated=tuple(
            HeadBound(head=Head.parse(one["head"]), **_read_bound(one, "head"))
            for one in document["eliminated"]
        ),
        eliminated_subsets=tuple(
            SubsetBound(heads=HeadSet.of(one["heads"]), **_read_bound(one, "heads"))
            for one in document.get("eliminated_subsets", ())  # absent before subsets could be stopped early
        ),
        attribution=None if attribution is None else AttributionScreen.from_json(attribution),
    )
    _check_counts(result)
    return result


def _names(heads: HeadSet) -> list[str]:
    return [str(head) for head in heads]


def _estimate(estimate: GainEstimate) -> dict[str, Any]:
    rates = {"intact_accuracy": estimate.intact_accuracy, "ablated_accuracy": estimate.ablated_accuracy}
    return {**asdict(estimate), **rates, "note": estimate.note}


def _read_counts(document: Mapping[str, Any], name: str) -> dict[str, int]:
    counts = ("n", "rescued", "damaged")
    _refuse_unknown(document, {name, "gain", *counts})
    read = {count: document[count] for count in counts}
    if document["gain"] != (read["rescued"] - read["damaged"]) / read["n"]:
        raise ValueError(f"the gain of {document[name]} does not follow from its counts")
    return read


def _read_bound(document: Mapping[str, Any], name: str) -> dict[str, int]:
    counts = ("n", "measured", "rescued", "damaged")
    _refuse_unknown(document, {name, "at_most", *counts})
    read = {count: document[count] for count in counts}
    if document["at_most"] != (read["rescued"] - read["damaged"]) / read["n"]:
        raise ValueError(f"the bound of {document[name]} does not follow from its counts")
    return read


def _read_estimate(document: Mapping[str, Any]) -> GainEstimate:
    names = {field.name for field in fields(GainEstimate)}
    _refuse_unknown(document, names | {"intact_accuracy", "ablated_accuracy", "note"})
    estimate = GainEstimate(**{name: document[name] for name in names})
    if any(document[name] != value for name, value in _estimate(estimate).items()):
        raise ValueError(f"the rates of the {estimate.split} panel do not follow from its counts")
    return estimate


def _refuse_unknown(document: Mapping[str, Any], known: set[str]) -> None:
    unknown = sorted(set(document) - known)
    if unknown:
        raise ValueError(f"unknown field {', '.join(unknown)}")


def _check_counts(result: BeneficialHeads) -> None:
    """Refuse figures that do not follow from the stored verdicts."""
    for split, matrix, estimate in (
        ("discovery", result.discovery_outcomes, result.discovery),
        ("heldout", result.heldout_outcomes, result.heldout),
    ):
        counts = (estimate.n, estimate.rescued, estimate.damaged)
        intact_correct = int(matrix.row(INTACT).sum())
        follows = counts == _counts(matrix, result.heads) and estimate.intact_correct == intact_correct
        if not follows or estimate.gain != (estimate.rescued - estimate.damaged) / estimate.n:
            raise ValueError(f"the {split} figures do not follow from outcomes.npz")
        if not (
            estimate.split == split
            and -1 <= estimate.ci_low <= estimate.gain <= estimate.ci_high <= 1
            and 0 < estimate.confidence < 1
            and 0 <= estimate.p_value <= 1
        ):
            raise ValueError(f"the {split} figures contradict each other")
    observed: tuple[HeadGain | SubsetGain, ...] = (*result.screening, *result.subsets)
    for one in observed:
        if (one.n, one.rescued, one.damaged) != _counts(result.discovery_outcomes, one.heads):
            raise ValueError(f"the counts of {one.heads} do not follow from outcomes.npz")

    attribution = result.attribution
    if attribution is not None:
        chosen = {one.head for one in attribution.predictions[: attribution.n_chosen]}
        if chosen | set(attribution.sample) != {one.head for one in result.screening}:
            raise ValueError("the heads that were measured are not those that the attribution chose and drew")


def _counts(matrix: OutcomeMatrix, heads: HeadSet) -> tuple[int, int, int]:
    """Number of examples, rescued and damaged."""
    intact, ablated = matrix.row(INTACT), matrix.row(heads)
    return len(intact), int((~intact & ablated).sum()), int((intact & ~ablated).sum())


def _save_outcomes(path: Path, result: BeneficialHeads) -> None:
    arrays: dict[str, Any] = {}
    for split, matrix in (("discovery", result.discovery_outcomes), ("heldout", result.heldout_outcomes)):
        arrays[f"{split}_conditions"] = np.array([str(one) for one in matrix.conditions], dtype=np.str_)
        arrays[f"{split}_example_ids"] = np.array(matrix.example_ids, dtype=np.str_)
        arrays[f"{split}_correct"] = matrix.correct
    partial = path.with_name(path.name + ".partial")
    with partial.open("wb") as stream:
        np.savez_compressed(stream, **arrays)
    partial.replace(path)


def _load_outcomes(path: Path) -> tuple[OutcomeMatrix, OutcomeMatrix]:
    with path.open("rb") as stream, np.load(stream, allow_pickle=False) as arrays:
        matrices = [
            OutcomeMatrix(
                conditions=tuple(HeadSet.of(str(name)) for name in arrays[f"{split}_conditions"]),
                example_ids=tuple(str(one) for one in arrays[f"{split}_example_ids"]),
                correct=arrays[f"{split}_correct"],
            )
            for split in ("discovery", "heldout")
        ]
    return matrices[0], matrices[1]
