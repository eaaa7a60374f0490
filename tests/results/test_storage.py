"""A result on disk: what is written reads back, and what was changed behind its back is refused."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cel_lens.errors import InvalidInput
from cel_lens.heads import all_heads
from cel_lens.results import BeneficialHeads
from cel_lens.results.storage import from_json, to_json
from tests.builders import build_result

RESULTS = {
    "found": build_result(),
    "nothing found": build_result({}),
    "some layers": build_result({"L3H1": (2, 0)}, n_layers=5, layers=(1, 3), inactive=("L1H0",)),
    "odd names": build_result(model="/tmp/models/Größe 'x'\n\"y\"\udcff", task="<b>&</b>", device="cuda:0"),
}

effects = st.dictionaries(
    st.sampled_from([str(head) for head in all_heads(2, 3)]),
    st.tuples(st.integers(0, 10), st.integers(0, 10)),
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return build_result().save(tmp_path / "run")


def change(folder: Path, edit: Callable[[dict[str, Any]], object]) -> None:
    path = folder / "result.json"
    document = json.loads(path.read_text(encoding="utf-8"))
    edit(document)
    path.write_text(json.dumps(document), encoding="utf-8")


# round trips


@pytest.mark.parametrize("name", RESULTS)
def test_a_saved_result_loads_as_it_was(name: str, tmp_path: Path) -> None:
    result = RESULTS[name]
    assert BeneficialHeads.load(result.save(tmp_path)) == result


@pytest.mark.parametrize("name", RESULTS)
def test_a_loaded_result_saves_the_same_bytes(name: str, tmp_path: Path) -> None:
    first = RESULTS[name].save(tmp_path / "first")
    second = BeneficialHeads.load(first).save(tmp_path / "second")
    names = sorted(path.name for path in first.iterdir())
    assert (
        names
        == sorted(path.name for path in second.iterdir())
        == ["heads.csv", "outcomes.npz", "result.json"]
    )
    for name in names:
        assert (first / name).read_bytes() == (second / name).read_bytes(), name


@settings(max_examples=40)
@given(effects)
def test_json_holds_everything_but_the_verdicts(flips) -> None:
    result = build_result(flips)
    document = json.loads(json.dumps(to_json(result)))
    back = from_json(document, result.discovery_outcomes, result.heldout_outcomes)
    assert back == result
    assert to_json(back) == to_json(result)


def test_saving_again_replaces_the_earlier_result(tmp_path: Path) -> None:
    build_result().save(tmp_path)
    other = build_result({})
    other.save(tmp_path)
    assert BeneficialHeads.load(tmp_path) == other


def test_the_json_gives_counts_and_rates_side_by_side(folder: Path) -> None:
    document = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    assert document["heads"] == ["L0H1", "L1H0"]
    held = document["heldout"]
    assert (held["n"], held["intact_correct"], held["rescued"], held["damaged"]) == (40, 20, 6, 2)
    assert (held["intact_accuracy"], held["ablated_accuracy"], held["gain"]) == (0.5, 0.6, 0.1)
    assert document["discovery"]["note"] == "selected on these examples; optimistic"
    assert held["note"] == ""
    assert document["screening"][0] == {"head": "L0H1", "n": 20, "rescued": 3, "damaged": 0, "gain": 0.15}
    assert document["subsets"][0] == {
        "heads": ["L0H1", "L1H0"],
        "n": 20,
        "rescued": 5,
        "damaged": 1,
        "gain": 0.2,
    }


def test_heads_csv_lists_every_head_best_first(folder: Path) -> None:
    table = pd.read_csv(folder / "heads.csv")
    assert table["head"].tolist() == ["L0H1", "L1H0", "L0H0", "L0H2", "L1H1", "L1H2"]
    assert table["gain_points"].tolist() == [15, 5, 0, 0, 0, -20]


# figures that were changed afterwards

TAMPERED: dict[str, Callable[[dict[str, Any]], object]] = {
    "held-out rescued": lambda document: document["heldout"].update(
        rescued=9, gain=7 / 40, ablated_accuracy=27 / 40
    ),
    "held-out intact": lambda document: document["heldout"].update(
        intact_correct=21, intact_accuracy=21 / 40, ablated_accuracy=25 / 40
    ),
    "held-out n": lambda document: document["heldout"].update(n=20),
    "gain": lambda document: document["heldout"].update(gain=0.3),
    "accuracy": lambda document: document["heldout"].update(ablated_accuracy=0.9),
    "interval beside the gain": lambda document: document["heldout"].update(ci_low=0.2),
    "interval upside down": lambda document: document["discovery"].update(ci_low=0.9, ci_high=-0.9),
    "p-value": lambda document: document["heldout"].update(p_value=-0.01),
    "not a number": lambda document: document["heldout"].update(p_value=float("nan")),
    "note left out": lambda document: document["discovery"].update(note=""),
    "panels exchanged": lambda document: document.update(
        heldout=document["discovery"], discovery=document["heldout"]
    ),
    "panel named otherwise": lambda document: document["heldout"].update(split="<script>"),
    "discovery as held-out": lambda document: document["discovery"].update(split="heldout", note=""),
    "single head": lambda document: document["screening"][0].update(rescued=4, gain=0.2),
    "gain of a single head": lambda document: document["screening"][0].update(gain=0.2),
    "no examples": lambda document: document["screening"][0].update(n=0),
    "head set": lambda document: document["subsets"][0].update(damaged=0, gain=0.25),
    "another choice": lambda document: document.update(heads=["L0H1"]),
    "an unmeasured head": lambda document: document["screening"][0].update(head="L7H7"),
    "not a head": lambda document: document["screening"][0].update(head="first"),
    "count as text": lambda document: document["screening"][0].update(n="20"),
    "another format": lambda document: document.update(format="cel-lens/2"),
    "a list": lambda document: document.update(config=[]),
}


@pytest.mark.parametrize("what", TAMPERED)
def test_figures_that_were_changed_are_refused(what: str, folder: Path) -> None:
    change(folder, TAMPERED[what])
    with pytest.raises(InvalidInput, match=r"result\.json does not fit"):
        BeneficialHeads.load(folder)


def test_verdicts_that_were_changed_are_refused(folder: Path) -> None:
    with np.load(folder / "outcomes.npz") as stored:
        arrays = dict(stored)
    arrays["heldout_correct"][1, 0] ^= True
    np.savez_compressed(folder / "outcomes.npz", **arrays)
    with pytest.raises(InvalidInput, match="heldout figures do not follow"):
        BeneficialHeads.load(folder)


@pytest.mark.parametrize(
    "where", ["", "heldout", "discovery", "config", "provenance", "screening", "subsets"]
)
def test_an_unknown_field_is_refused_by_name(where: str, folder: Path) -> None:
    def add(document: dict[str, Any]) -> None:
        part = document[where] if where else document
        (part[0] if isinstance(part, list) else part)["surprise"] = 1

    change(folder, add)
    with pytest.raises(InvalidInput, match="surprise"):
        BeneficialHeads.load(folder)


@pytest.mark.parametrize(
    "where", ["", "heldout", "discovery", "config", "provenance", "screening", "subsets"]
)
def test_a_missing_field_is_named(where: str, folder: Path) -> None:
    missing = {"": "finalists", "config": "seed", "provenance": "inactive"}.get(where, "rescued")

    def remove(document: dict[str, Any]) -> None:
        part = document[where] if where else document
        del (part[0] if isinstance(part, list) else part)[missing]

    change(folder, remove)
    with pytest.raises(InvalidInput, match=missing):
        BeneficialHeads.load(folder)


# files that are missing, damaged or in the way


@pytest.mark.parametrize("name", ["result.json", "outcomes.npz"])
def test_a_missing_file_is_named(name: str, folder: Path) -> None:
    (folder / name).unlink()
    with pytest.raises(InvalidInput, match=f"holds no finished search: {name} is missing"):
        BeneficialHeads.load(folder)


def test_a_folder_that_does_not_exist_holds_no_search(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="holds no finished search"):
        BeneficialHeads.load(tmp_path / "nowhere")


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"format": "cel-lens/1"}'])
def test_a_damaged_json_is_refused(text: str, folder: Path) -> None:
    (folder / "result.json").write_text(text, encoding="utf-8")
    with pytest.raises(InvalidInput):
        BeneficialHeads.load(folder)


def test_no_damage_to_the_verdicts_goes_unnoticed(folder: Path) -> None:
    """Whichever byte is flipped: the file is refused, or the byte held nothing of the result."""
    path, result = folder / "outcomes.npz", build_result()
    whole = path.read_bytes()
    refused = 0
    for place in range(0, len(whole), 5):
        damaged = bytearray(whole)
        damaged[place] ^= 0x10
        path.write_bytes(damaged)
        try:
            assert BeneficialHeads.load(folder) == result
        except InvalidInput:
            refused += 1
    assert refused > len(whole) / 20


def test_verdicts_that_were_cut_short_are_refused(folder: Path) -> None:
    path = folder / "outcomes.npz"
    whole = path.read_bytes()
    for length in (0, 1, 10, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(InvalidInput, match="cannot be read"):
            BeneficialHeads.load(folder)


def test_verdicts_of_another_kind_are_refused(folder: Path) -> None:
    with (folder / "outcomes.npz").open("wb") as stream:
        np.save(stream, np.zeros(3))
    with pytest.raises(InvalidInput, match="cannot be read"):
        BeneficialHeads.load(folder)


def test_pickled_objects_are_never_unpacked(folder: Path) -> None:
    with np.load(folder / "outcomes.npz") as stored:
        arrays = dict(stored)
    arrays["heldout_correct"] = arrays["heldout_correct"].astype(object)
    np.savez_compressed(folder / "outcomes.npz", **arrays)
    with pytest.raises(InvalidInput, match="cannot be read"):
        BeneficialHeads.load(folder)


@pytest.mark.parametrize("below", ["", "run"])
def test_a_file_in_the_way_is_named(below: str, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("mine", encoding="utf-8")
    with pytest.raises(InvalidInput, match=r"taken.* cannot be written"):
        build_result().save(tmp_path / "taken" / below)
    assert (tmp_path / "taken").read_text(encoding="utf-8") == "mine"


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may write into read-only folders")
def test_a_read_only_folder_is_named(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(InvalidInput, match="cannot be written"):
            build_result().save(tmp_path)
    finally:
        tmp_path.chmod(0o700)
