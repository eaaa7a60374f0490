"""Searches whose whole result is known in advance, because every weight was set by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from cel_lens.evaluation import evaluate_heads
from cel_lens.heads import Head, HeadSet
from cel_lens.models import zero_ablation
from cel_lens.results import BeneficialHeads, SearchConfig
from cel_lens.search import find_beneficial_heads
from tests.models.planted import (
    COPY,
    WORDS,
    NameTheColour,
    Table,
    build_planted,
    logits_by_hand,
    sizes,
)

# Discovery: 8 "o", 5 "x", 2 "y". Held-out: 9 "o", 8 "x", 3 "y". L0H0 names the colour with strength 4.

SPOILER: dict[str, Table] = {
    "L0H0": COPY,
    "L1H1": {"x": {"wrong": 9.0}},  # stronger than the colour
    "L1H2": {"x": {"wrong": 1.0}, "o": {"wrong": 1.0}},  # too weak to matter
}
"""Intact: "x" wrong, "o" and "y" right. Without L1H1 all are right; without L0H0 none is."""

MIXED: dict[str, Table] = {
    "L0H0": COPY,
    "L0H2": {"y": {"wrong": 6.0}},
    "L1H1": {"x": {"wrong": 9.0}, "y": {"wrong": -5.0}},  # spoils "x" but protects "y" from L0H2
}
"""Intact: "x" wrong ("y": 4 beats 6 - 5). Without L1H1 "x" is rescued and "y" damaged (4 < 6); without L0H2 as
intact; without both, all right."""

JOINT: dict[str, Table] = {
    "L0H0": COPY,
    "L0H1": {"x": {"wrong": 5.0}},
    "L1H2": {"x": {"wrong": 5.0}},
}
"""Each of two heads alone spoils "x", so only removing both rescues it."""

HELPLESS: dict[str, Table] = {"L0H0": COPY, "L1H1": {"x": {"wrong": 3.0}}}
"""The spoiler is weaker than the colour: everything is right, nothing can be gained."""


@pytest.fixture(params=["reference", "sweep"], autouse=True)
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every search of this file is done by each engine."""
    monkeypatch.setitem(SETTINGS, "engine", request.param)


SETTINGS: dict[str, Any] = {"pool_size": 3, "max_heads": 2}


def run(tables: dict[str, Table], task: NameTheColour | None = None, **settings: Any) -> BeneficialHeads:
    asked = task or NameTheColour()
    config = SearchConfig(**(SETTINGS | sizes(asked) | settings))
    return find_beneficial_heads(build_planted(tables), asked, config, progress="silent")


def counts(result: BeneficialHeads) -> dict[str, tuple[int, int]]:
    singles = {str(one.head): (one.rescued, one.damaged) for one in result.screening}
    return singles | {str(one.heads): (one.rescued, one.damaged) for one in result.subsets}


@pytest.mark.parametrize("tables", [SPOILER, MIXED, JOINT, HELPLESS])
def test_the_planted_model_gives_the_logits_worked_out_by_hand(tables: dict[str, Table]) -> None:
    model = build_planted(tables)
    for removed in ("", "L0H0", "L1H1", "L0H2+L1H1", "L0H1+L1H2"):
        for prompt in ("red x ?", "blue o ?", "green y y o ?"):
            tokens = torch.tensor([[WORDS.index(word) for word in prompt.split()]])
            with zero_ablation(model, removed), torch.inference_mode():
                found = model(tokens, prepend_bos=False)[0, -1].numpy()
            np.testing.assert_allclose(found, logits_by_hand(tables, removed, prompt), atol=1e-5)


@pytest.mark.parametrize("generates", [True, False])
def test_the_spoiling_head_is_found_with_exactly_its_gain(generates: bool) -> None:
    result = run(SPOILER, NameTheColour(generates=generates))
    assert result.heads == HeadSet.of("L1H1")
    discovery, heldout = result.discovery, result.heldout
    assert (discovery.n, discovery.intact_correct, discovery.rescued, discovery.damaged) == (15, 10, 5, 0)
    assert (heldout.n, heldout.intact_correct, heldout.rescued, heldout.damaged) == (20, 12, 8, 0)
    assert discovery.gain == 5 / 15
    assert heldout.gain == 8 / 20
    assert heldout.p_value == 2 * 0.5**8, "eight changes, all one way"
    assert "L1H1" in result.headline


@pytest.mark.parametrize("generates", [True, False])
def test_the_critical_head_is_ranked_last(generates: bool) -> None:
    result = run(SPOILER, NameTheColour(generates=generates))
    assert [str(one.head) for one in result.screening] == ["L1H1", "L0H1", "L0H2", "L1H0", "L1H2", "L0H0"]
    # Without L0H0 nothing names a colour. Choosing, all colours tie at "y" and the first one, red, wins,
    # which is right for one of the two "y" examples; at "o" and "x" the other heads write "wrong".
    damaged = 10 if generates else 9
    worst = result.screening[-1]
    assert (str(worst.head), worst.rescued, worst.damaged) == ("L0H0", 0, damaged)
    assert worst.gain == -damaged / 15


def test_a_head_that_rescues_some_and_damages_others_is_counted_both_ways() -> None:
    found = counts(run(MIXED, pool_size=2, max_heads=1))
    assert found["L1H1"] == (5, 2)
    assert found["L0H2"] == (0, 0)
    assert found["L0H0"] == (0, 10)


def test_the_partner_that_prevents_the_damage_is_found_in_the_joint_search() -> None:
    result = run(MIXED)
    assert str(result.heads) == "L0H2+L1H1"
    assert (result.discovery.rescued, result.discovery.damaged) == (5, 0)
    assert (result.heldout.intact_correct, result.heldout.rescued, result.heldout.damaged) == (12, 8, 0)
    assert counts(result)["L0H1+L1H1"] == (5, 2)


def test_a_pair_that_helps_only_jointly_is_found() -> None:
    result = run(JOINT, pool_size=5, max_heads=2)
    assert [one.gain for one in result.screening] == [0, 0, 0, 0, 0, -10 / 15]
    assert str(result.heads) == "L0H1+L1H2"
    assert (result.heldout.rescued, result.heldout.damaged, result.heldout.gain) == (8, 0, 0.4)
    others = {name: found for name, found in counts(result).items() if name not in ("L0H1+L1H2", "L0H0")}
    assert set(others.values()) == {(0, 0)}


def test_a_smaller_set_wins_over_a_larger_one_with_the_same_gain() -> None:
    result = run(SPOILER, pool_size=4, max_heads=3)
    assert str(result.heads) == "L1H1"
    best = [str(one.heads) for one in result.subsets if one.gain == 5 / 15]
    assert best == [
        "L1H1",
        "L0H1+L1H1",
        "L0H2+L1H1",
        "L1H0+L1H1",
        "L0H1+L0H2+L1H1",
        "L0H1+L1H0+L1H1",
        "L0H2+L1H0+L1H1",
    ]


def test_no_helpful_head_is_an_ordinary_empty_result() -> None:
    result = run(HELPLESS)
    assert not result.found
    assert result.heads == HeadSet()
    assert "no " in result.headline.lower()
    for estimate, n in ((result.discovery, 15), (result.heldout, 20)):
        assert (estimate.n, estimate.intact_correct, estimate.rescued, estimate.damaged) == (n, n, 0, 0)
        assert (estimate.gain, estimate.p_value) == (0, 1)
    assert [len(one) for one in result.heldout_outcomes.conditions] == [0], "only intact was run on held-out"
    assert result.screening[-1].head == Head(0, 0)


def test_a_search_in_which_every_removal_hurts_gives_an_empty_result() -> None:
    half: Table = {colour: {colour: 2.0} for colour in ("red", "green", "blue")}
    against: Table = {"o": {"wrong": 3.0}}
    task = NameTheColour(discovery={"o": 3}, heldout={"o": 4})
    config = SearchConfig(**(SETTINGS | sizes(task) | {"layers": (0,), "pool_size": 2}))
    model = build_planted({"L0H0": half, "L0H1": half, "L1H0": against}, n_heads=2)
    result = find_beneficial_heads(model, task, config, progress="silent")
    assert counts(result) == {"L0H0": (0, 3), "L0H1": (0, 3), "L0H0+L0H1": (0, 3)}
    assert result.provenance.engine == SETTINGS["engine"]
    assert not result.found
    assert (result.heldout.n, result.heldout.intact_correct, result.heldout.gain) == (4, 4, 0)
    assert [str(one) for one in result.finalists] == ["L0H0", "L0H1", "L0H0+L0H1"]


def test_evaluate_heads_gives_the_same_verdicts_as_the_search() -> None:
    result = run(MIXED)
    model, task = build_planted(MIXED), NameTheColour()
    for names in ("", str(result.heads)):
        found = evaluate_heads(model, task, names, panel="heldout", config=result.config)
        assert found.example_ids == result.heldout_outcomes.example_ids
        assert list(found.correct) == result.heldout_outcomes.row(HeadSet.of(names)).tolist()
    single = evaluate_heads(model, task, "L1H1", panel="discovery", config=result.config)
    assert list(single.correct) == result.discovery_outcomes.row(HeadSet.of("L1H1")).tolist()
    by_id = dict(zip(single.example_ids, single.details, strict=True))
    assert {by_id[name].answer for name in by_id if "/y/" in name} == {"wrong"}
