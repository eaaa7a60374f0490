"""Roles of heads: hand-made counts, a model whose weights were set by hand, and the level under no effect."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from statsmodels.stats.multitest import multipletests

from cel_lens.analysis import HeadRoles, find_critical_heads, head_roles
from cel_lens.errors import InvalidInput
from cel_lens.heads import Head, HeadSet
from cel_lens.results import BeneficialHeads, HeadBound, HeadGain, SearchConfig
from cel_lens.search import find_beneficial_heads
from cel_lens.stats import holm_adjust, mcnemar_exact, tango_interval
from tests.builders import build_result
from tests.models.planted import COPY, NameTheColour, build_planted, sizes

EFFECTS = {"L0H1": (30, 0), "L1H0": (3, 1), "L1H1": (0, 40), "L1H2": (5, 30)}


def screened(*counts: tuple[int, int], n: int = 200) -> BeneficialHeads:
    """A result whose screening has these rescued and damaged examples, one head each."""
    gains = tuple(
        HeadGain(head=Head(0, place), n=n, rescued=rescued, damaged=damaged)
        for place, (rescued, damaged) in enumerate(counts)
    )
    return replace(build_result(), screening=gains)


def roles_of(found: HeadRoles) -> dict[str, str]:
    return {str(one.head): one.role for one in found.heads}


def test_every_head_of_a_hand_made_matrix_gets_its_role() -> None:
    found = head_roles(build_result(EFFECTS, n_discovery=400))
    assert roles_of(found) == {
        "L0H1": "beneficial",
        "L1H0": "redundant",
        "L0H0": "redundant",
        "L0H2": "redundant",
        "L1H2": "critical",
        "L1H1": "critical",
    }
    assert found.of("critical") == HeadSet.of("L1H1+L1H2")
    assert sum(found.counts.values()) == 6


def test_the_statistics_are_those_of_the_counts() -> None:
    found = head_roles(build_result(EFFECTS, n_discovery=400), confidence=0.9)
    for one in found.heads:
        rescued, damaged = EFFECTS.get(str(one.head), (0, 0))
        assert (one.n, one.measured, one.rescued, one.damaged) == (400, 400, rescued, damaged)
        assert one.gain == (rescued - damaged) / 400
        assert (one.ci_low, one.ci_high) == tango_interval(400, rescued, damaged, confidence=0.9)
        assert one.p_value == mcnemar_exact(rescued, damaged)
    expected = multipletests([one.p_value for one in found.heads], method="holm")[1]
    np.testing.assert_allclose([one.p_adjusted for one in found.heads], expected, rtol=1e-12)


@pytest.mark.parametrize("size", [1, 2, 5, 40])
def test_holm_agrees_with_statsmodels(size: int) -> None:
    rng = np.random.default_rng(size)
    for p_values in (rng.random(size) ** 3, rng.integers(0, 4, size) / 60, np.zeros(size), np.ones(size)):
        expected = multipletests(p_values, method="holm")[1]
        np.testing.assert_allclose(holm_adjust(p_values), expected, rtol=1e-9)
    assert holm_adjust([]).shape == (0,)


@pytest.mark.parametrize("p_values", [[-0.1], [1.1], [float("nan")], [[0.5]]])
def test_holm_refuses_what_is_no_probability(p_values: list[float]) -> None:
    with pytest.raises(InvalidInput, match="numbers from 0 to 1"):
        holm_adjust(p_values)


def test_the_number_of_heads_decides_how_much_evidence_one_head_needs() -> None:
    seven = (7, 0)  # p = 2 / 2^7 = 0.0156
    assert head_roles(screened(seven)).of("beneficial") == HeadSet.of("L0H0")
    assert head_roles(screened(seven, *[(0, 0)] * 2)).of("beneficial") == HeadSet.of("L0H0")  # 3 p = 0.047
    assert not head_roles(screened(seven, *[(0, 0)] * 3)).of("beneficial").heads  # 4 p = 0.0625


def test_a_head_that_changes_nothing_is_redundant_from_189_examples_on() -> None:
    """The interval is then z^2 / (n + z^2) to either side, with z = 1.95996."""
    assert roles_of(head_roles(screened((0, 0), n=188))) == {"L0H0": "undecided"}
    assert roles_of(head_roles(screened((0, 0), n=189))) == {"L0H0": "redundant"}
    assert roles_of(head_roles(screened((0, 0), n=64), margin=0.06)) == {"L0H0": "redundant"}


def test_a_small_panel_decides_nothing_and_says_so() -> None:
    found = head_roles(build_result())
    assert set(roles_of(found).values()) == {"undecided"}
    assert "6 undecided (level 5%" in found.summary


def test_a_clear_effect_within_the_margin_is_still_an_effect() -> None:
    (one,) = head_roles(screened((20, 0), n=2000), margin=0.1).heads
    assert (one.role, one.ci_high < 0.1) == ("beneficial", True)


def test_heads_without_effect_are_named_at_most_as_often_as_the_level_says() -> None:
    """Fifteen heads of no effect on 120 examples: no name but redundant or undecided is right."""
    rng = np.random.default_rng(7)
    panels, wrong, wrong_without_correction = 250, 0, 0
    for _ in range(panels):
        changed = rng.binomial(120, 0.25, size=15)
        rescued = rng.binomial(changed, 0.5)
        counts = list(zip(rescued.tolist(), (changed - rescued).tolist(), strict=True))
        found = head_roles(screened(*counts, n=120), confidence=0.9)
        wrong += bool(found.counts["beneficial"] + found.counts["critical"])
        wrong_without_correction += any(one.p_value <= 0.1 for one in found.heads)
    assert wrong / panels <= 0.1 + 3 * np.sqrt(0.1 * 0.9 / panels)
    assert wrong_without_correction / panels > 0.4, "the correction has something to do"


def test_heads_with_an_effect_as_large_as_the_margin_are_seldom_named_redundant() -> None:
    rng = np.random.default_rng(3)
    damaged = rng.binomial(300, 0.05, size=1500)
    found = head_roles(screened(*[(0, int(one)) for one in damaged], n=300), confidence=0.9, margin=0.05)
    share = found.counts["redundant"] / 1500
    assert share <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 1500)
    assert share > 0, "near the level, not far from it"


def test_a_planted_model_has_the_roles_its_weights_give() -> None:
    """L0H0 names the colour, L1H1 spoils "x", the other heads write nothing."""
    task = NameTheColour(discovery={"o": 160, "x": 40}, heldout={"o": 4})
    config = SearchConfig(pool_size=2, max_heads=1, **sizes(task))
    model = build_planted({"L0H0": COPY, "L1H1": {"x": {"wrong": 9.0}}})
    found = head_roles(find_beneficial_heads(model, task, config, progress="silent"))
    assert found.of("beneficial") == HeadSet.of("L1H1")
    assert found.of("critical") == HeadSet.of("L0H0")
    assert found.of("redundant") == HeadSet.of("L0H1+L0H2+L1H0+L1H2")
    assert not found.of("undecided").heads


# heads that the screening stopped early


def stopped(rescued: int, damaged: int, *, measured: int = 150, n: int = 200) -> HeadBound:
    return HeadBound(head=Head(1, 1), n=n, measured=measured, rescued=rescued, damaged=damaged)


@pytest.mark.parametrize(
    ("bound", "role"),
    [
        (stopped(2, 30), "critical"),  # more damage cannot make it less so
        (stopped(2, 5), "undecided"),
        (stopped(20, 20), "undecided"),
        (stopped(0, 0), "undecided"),
        (stopped(30, 0), "undecided"),  # the 50 examples that are left could all be damaged
    ],
)
def test_a_head_that_was_stopped_is_named_only_if_its_bound_decides(bound: HeadBound, role: str) -> None:
    found = head_roles(replace(screened((0, 0)), eliminated=(bound,)))
    one = found.heads[-1]
    assert (one.role, one.gain, one.measured) == (role, None, 150)
    for further in range(0, 51, 10):
        rescued, damaged = bound.rescued, bound.damaged + further
        low, high = tango_interval(200, rescued, damaged)
        assert one.ci_low <= low + 1e-12
        assert high <= one.ci_high + 1e-12
        assert mcnemar_exact(rescued, damaged) <= one.p_value + 1e-12


def test_elimination_never_gives_another_role_than_the_whole_screening() -> None:
    task = NameTheColour(discovery={"o": 60, "x": 30, "y": 10}, heldout={"o": 4})
    tables = {
        "L0H0": COPY,
        "L0H2": {"y": {"wrong": 6.0}},
        "L1H1": {"x": {"wrong": 9.0}, "y": {"wrong": -5.0}},
    }
    model = build_planted(tables)
    found = {}
    for screening in ("exhaustive", "eliminate"):
        config = SearchConfig(pool_size=2, max_heads=1, screening=screening, **sizes(task))
        found[screening] = find_beneficial_heads(model, task, config, progress="silent")
    assert found["eliminate"].eliminated
    whole, early = (roles_of(head_roles(found[one], margin=0.05)) for one in found)
    assert whole["L0H0"] == early["L0H0"] == "critical", "its bound decides"
    assert all(early[head] in (role, "undecided") for head, role in whole.items())


# critical heads


def test_critical_heads_come_worst_first_and_no_more_than_asked_for() -> None:
    result = build_result(EFFECTS, n_discovery=400)
    assert [str(one.head) for one in find_critical_heads(result)] == ["L1H1", "L1H2"]
    assert [str(one.head) for one in find_critical_heads(result, 1)] == ["L1H1"]
    assert find_critical_heads(build_result()) == ()


# forms


def test_a_saved_result_has_the_same_roles(tmp_path: Path) -> None:
    result = build_result(EFFECTS, n_discovery=400)
    result.save(tmp_path)
    assert head_roles(tmp_path) == head_roles(str(tmp_path)) == head_roles(result)


def test_the_frame_has_one_row_for_each_head_in_points() -> None:
    found = head_roles(replace(build_result(EFFECTS, n_discovery=400), eliminated=(stopped(2, 30),)))
    frame = found.to_frame()
    assert list(frame.columns) == [
        "head", "layer", "index", "role", "n", "measured", "rescued", "damaged", "gain_points", "ci_low_points",
        "ci_high_points", "p_value", "p_adjusted",
    ]  # fmt: skip
    assert frame["head"].tolist() == [str(one.head) for one in found.heads]
    assert frame.iloc[0]["gain_points"] == 7.5
    assert np.isnan(frame.iloc[-1]["gain_points"])


def test_the_notebook_view_escapes_names() -> None:
    shown = head_roles(build_result(model="<script>", task="a&b"))._repr_html_()
    assert "<script>" not in shown
    assert "&lt;script&gt;" in shown
    assert "optimistic" in shown


@pytest.mark.parametrize("value", [0.0, 1.0, -0.5, 2.0, float("nan")])
def test_numbers_out_of_range_are_refused(value: float) -> None:
    for name in ("confidence", "margin"):
        with pytest.raises(InvalidInput, match=f"{name} lies between 0 and 1"):
            head_roles(build_result(), **{name: value})


def test_wrong_names_and_counts_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="a role is 'beneficial', 'redundant', 'critical', 'undecided'"):
        head_roles(build_result()).of("helpful")  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="n is a whole number from 1, not 0"):
        find_critical_heads(build_result(), 0)
    with pytest.raises(InvalidInput, match="holds no finished search"):
        head_roles(tmp_path)
    with pytest.raises(InvalidInput, match=r"a result is what .* gives, .*not dict"):
        head_roles({})  # type: ignore[arg-type]
