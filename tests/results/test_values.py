"""Settings, verdicts and gains as values: what they refuse and what follows from what."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cel_lens.errors import InvalidInput
from cel_lens.heads import INTACT, Head, HeadSet
from cel_lens.results import (
    OPTIMISTIC,
    Detail,
    HeadGain,
    OutcomeMatrix,
    Outcomes,
    SearchConfig,
    SubsetGain,
    count_subsets,
)
from cel_lens.stats import estimate_gain


def outcomes(heads: str, correct: tuple[bool, ...], **changes) -> Outcomes:
    values = {
        "heads": HeadSet.of(heads),
        "task": "arithmetic",
        "protocol": "completion-6shot",
        "metric": "integer-match",
        "example_ids": tuple(f"arithmetic/{place}" for place in range(len(correct))),
        "correct": correct,
        "details": tuple(Detail(answer="4", target="4") for _ in correct),
    }
    return Outcomes(**(values | changes))


# settings


@given(st.integers(1, 9), st.data())
def test_subsets_are_counted_as_they_are_enumerated(pool: int, data) -> None:
    most = data.draw(st.integers(1, pool))
    assert count_subsets(pool, most) == sum(
        len(list(combinations(range(pool), size))) for size in range(1, most + 1)
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n_discovery": 0}, "n_discovery is a whole number from 1, not 0"),
        ({"n_heldout": 2.0}, "n_heldout is a whole number"),
        ({"batch_size": True}, "batch_size is a whole number"),
        ({"seed": "0"}, "seed is a whole number"),
        ({"max_heads": 4, "pool_size": 3}, "max_heads=4 is larger than the pool of 3 heads"),
        ({"layers": ()}, "layers are ascending without repetition"),
        ({"layers": (2, 1)}, "layers are ascending without repetition"),
        ({"layers": (1, 1)}, "layers are ascending without repetition"),
        ({"pool_size": 50, "max_heads": 4}, "a pool of 50 has 251,175 subsets"),
    ],
)
def test_settings_outside_their_range_are_refused(changes, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        SearchConfig(**changes)


# gains


@given(st.integers(1, 50), st.data())
def test_a_single_head_and_a_set_of_one_have_the_same_gain(n: int, data) -> None:
    rescued = data.draw(st.integers(0, n))
    damaged = data.draw(st.integers(0, n - rescued))
    head = HeadGain(head=Head(3, 7), n=n, rescued=rescued, damaged=damaged)
    subset = SubsetGain(heads=head.heads, n=n, rescued=rescued, damaged=damaged)
    assert head.gain == subset.gain
    assert head.gain * n == pytest.approx(rescued - damaged)
    assert str(subset.heads) == "L3H7"


def test_an_estimate_in_one_line_says_on_which_panel() -> None:
    found = estimate_gain([False, False, True, True], [True, True, True, False], split="discovery")
    line = str(found)
    assert line.startswith("discovery: 2/4 intact, 3/4 ablated, gain +25.0 points (95% interval -")
    assert "exact McNemar p = 1; 2 rescued, 1 damaged" in line
    assert line.endswith(f"[{OPTIMISTIC}]")
    held = estimate_gain([False, True], [True, True], split="heldout")
    assert OPTIMISTIC not in str(held)


# verdicts


def test_outcomes_count_and_tabulate_what_they_hold() -> None:
    details = (
        Detail(answer="4", target="4", text=" 4"),
        Detail(answer=None, target="7", text=" seven", flags=("no-answer", "capped")),
        Detail(answer="1", target="9", text=" 1", flags=("capped",)),
    )
    one = outcomes("L0H1", (True, False, False), details=details)
    assert (one.n, one.n_correct, one.accuracy) == (3, 1, 1 / 3)
    assert (one.count("capped"), one.count("no-answer"), one.count("tie")) == (2, 1, 0)
    frame = one.to_frame()
    assert frame["correct"].tolist() == [True, False, False]
    assert frame["target"].tolist() == ["4", "7", "9"]
    assert frame["flags"].tolist() == ["", "no-answer, capped", "capped"]
    assert set(frame["heads"]) == {"L0H1"}


def test_outcomes_that_do_not_fit_together_are_refused() -> None:
    with pytest.raises(ValueError, match="one entry for each example"):
        outcomes("", (True, False), details=())
    with pytest.raises(ValueError, match="example ids are unique"):
        outcomes("", (True, False), example_ids=("a", "a"))


def test_stacked_conditions_keep_their_verdicts_whatever_their_order() -> None:
    intact, one, two = (
        outcomes("", (True, False)),
        outcomes("L1H0", (True, True)),
        outcomes("L0H0", (False, True)),
    )
    matrix = OutcomeMatrix.stack([one, intact, two])
    assert matrix == OutcomeMatrix.stack([two, one, intact])
    assert matrix.conditions[0] == INTACT
    for each in (intact, one, two):
        assert tuple(matrix.row(each.heads)) == each.correct


def test_conditions_of_different_measurements_are_not_stacked() -> None:
    intact = outcomes("", (True, False))
    with pytest.raises(ValueError, match="L1H0 was measured on other examples than intact"):
        OutcomeMatrix.stack([intact, outcomes("L1H0", (True, True), example_ids=("x", "y"))])
    with pytest.raises(ValueError, match="L1H0 was measured with another protocol than intact"):
        OutcomeMatrix.stack([intact, outcomes("L1H0", (True, True), metric="exact")])


def test_the_verdicts_of_a_matrix_cannot_be_changed() -> None:
    mine = np.array([[True, False]])
    matrix = OutcomeMatrix((INTACT,), ("a", "b"), mine)
    mine[0, 0] = False
    assert matrix.row(INTACT)[0]
    with pytest.raises(ValueError, match="read-only"):
        matrix.row(INTACT)[0] = False


@pytest.mark.parametrize(
    ("conditions", "ids", "correct", "message"),
    [
        (("",), ("a", "b"), [[True]], r"shape \[1, 2\], not bool \[1, 1\]"),
        (("",), ("a",), [[1]], "not int64"),
        (("L0H0",), ("a",), [[True]], "first condition is the intact model"),
        (("", ""), ("a",), [[True], [True]], "conditions are unique"),
        (("",), ("a", "a"), [[True, True]], "example ids are unique"),
    ],
)
def test_a_matrix_that_is_not_one_is_refused(conditions, ids, correct, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        OutcomeMatrix(tuple(HeadSet.of(one) for one in conditions), ids, np.array(correct))


def test_a_condition_that_was_not_measured_is_named() -> None:
    matrix = OutcomeMatrix.stack([outcomes("", (True,))])
    with pytest.raises(InvalidInput, match="L4H2 was not evaluated on this panel"):
        matrix.row(HeadSet.of("L4H2"))
