"""Paired statistics against independent implementations, closed forms and exact coverage."""

from __future__ import annotations

from math import sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from scipy.stats import binom, binomtest, multinomial, norm
from statsmodels.stats.contingency_tables import mcnemar

from cel_lens.errors import InvalidInput
from cel_lens.stats import estimate_gain, mcnemar_exact, paired_counts, tango_interval

verdict_pairs = st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=40)


@st.composite
def counts(draw, most: int = 400) -> tuple[int, int, int]:
    n = draw(st.integers(1, most))
    rescued = draw(st.integers(0, n))
    return n, rescued, draw(st.integers(0, n - rescued))


def split(pairs: list[tuple[bool, bool]]) -> tuple[np.ndarray, np.ndarray]:
    both = np.array(pairs, dtype=np.bool_)
    return both[:, 0], both[:, 1]


# counts and gains


def test_counts_of_a_worked_example() -> None:
    intact = np.array([True, True, True, False, False, False, False])
    ablated = np.array([True, False, True, True, True, True, False])
    assert paired_counts(intact, ablated) == (3, 1)
    one = estimate_gain(intact, ablated, split="heldout")
    assert (one.n, one.intact_correct, one.ablated_correct) == (7, 3, 5)
    assert one.gain == 2 / 7
    assert one.p_value == 0.625  # 2 (1 + 4) / 16


@given(verdict_pairs)
def test_the_gain_is_the_difference_of_two_accuracies(pairs) -> None:
    intact, ablated = split(pairs)
    one = estimate_gain(intact, ablated, split="heldout")
    assert one.gain == pytest.approx(ablated.mean() - intact.mean(), abs=1e-12)
    assert one.intact_accuracy == intact.mean()
    assert one.ablated_accuracy == ablated.mean()


@given(verdict_pairs)
def test_swapping_intact_and_ablated_mirrors_everything(pairs) -> None:
    intact, ablated = split(pairs)
    there = estimate_gain(intact, ablated, split="heldout")
    back = estimate_gain(ablated, intact, split="heldout")
    assert (there.rescued, there.damaged) == (back.damaged, back.rescued)
    assert there.gain == -back.gain
    assert there.p_value == back.p_value
    assert (there.ci_low, there.ci_high) == pytest.approx((-back.ci_high, -back.ci_low), abs=1e-9)


@given(verdict_pairs, st.randoms(use_true_random=False))
def test_the_order_of_the_examples_does_not_matter(pairs, random) -> None:
    shuffled = list(pairs)
    random.shuffle(shuffled)
    assert estimate_gain(*split(pairs), split="heldout") == estimate_gain(*split(shuffled), split="heldout")


@given(verdict_pairs, verdict_pairs)
def test_the_gain_of_two_panels_is_their_weighted_mean(one, other) -> None:
    gains = [estimate_gain(*split(pairs), split="heldout") for pairs in (one, other, one + other)]
    assert gains[2].gain * gains[2].n == pytest.approx(sum(part.gain * part.n for part in gains[:2]))


@given(verdict_pairs, st.lists(st.booleans(), min_size=40, max_size=40))
def test_gains_of_successive_changes_add_up(pairs, last) -> None:
    first, second = split(pairs)
    third = np.array(last[: len(pairs)])
    steps = [
        estimate_gain(before, after, split="heldout").gain
        for before, after in ((first, second), (second, third), (first, third))
    ]
    assert steps[0] + steps[1] == pytest.approx(steps[2], abs=1e-12)


def test_only_the_discovery_panel_is_called_optimistic() -> None:
    verdicts = [True, False]
    assert (
        estimate_gain(verdicts, verdicts, split="discovery").note == "selected on these examples; optimistic"
    )
    assert estimate_gain(verdicts, verdicts, split="heldout").note == ""


# the exact test


@given(counts())
def test_mcnemar_agrees_with_scipy_and_statsmodels(case) -> None:
    n, rescued, damaged = case
    expected = binomtest(rescued, rescued + damaged).pvalue if rescued + damaged else 1.0
    assert mcnemar_exact(rescued, damaged) == pytest.approx(expected, rel=1e-9)
    if rescued + damaged:  # statsmodels gives no number when nothing changed
        table = [[n - rescued - damaged, damaged], [rescued, 0]]
        assert mcnemar_exact(rescued, damaged) == pytest.approx(mcnemar(table, exact=True).pvalue, rel=1e-9)


@pytest.mark.parametrize(
    ("rescued", "damaged", "expected"),
    [(0, 0, 1.0), (1, 0, 1.0), (5, 0, 2 / 32), (0, 6, 2 / 64), (4, 4, 1.0)],
)
def test_mcnemar_of_small_counts_worked_by_hand(rescued: int, damaged: int, expected: float) -> None:
    assert mcnemar_exact(rescued, damaged) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("level", [0.01, 0.05, 0.2])
def test_mcnemar_rejects_a_true_null_no_more_often_than_its_level(level: float) -> None:
    for changed in range(1, 60):
        rescued = np.arange(changed + 1)
        p_values = np.array([mcnemar_exact(int(one), changed - int(one)) for one in rescued])
        assert binom.pmf(rescued, changed, 0.5)[p_values <= level].sum() <= level + 1e-12


# the interval


def score_by_brute_force(n: int, rescued: int, damaged: int, difference: float) -> float:
    """Score statistic from a numerical search for the most likely probabilities with this difference."""
    low, high = max(0.0, -difference), (1.0 - difference) / 2

    def minus_log_likelihood(lost: float) -> float:
        cells = (lost + difference, lost, 1.0 - 2.0 * lost - difference)
        observed = (rescued, damaged, n - rescued - damaged)
        return -sum(
            count * np.log(max(cell, 1e-300)) for count, cell in zip(observed, cells, strict=True) if count
        )

    lost = float(
        minimize_scalar(
            minus_log_likelihood, bounds=(low, high), method="bounded", options={"xatol": 1e-12}
        ).x
    )
    variance = n * (2 * lost + difference - difference**2)
    return (rescued - damaged - n * difference) / sqrt(max(variance, 1e-300))


@pytest.mark.parametrize(
    ("n", "rescued", "damaged"),
    [
        (50, 12, 2),
        (200, 16, 5),
        (40, 0, 0),
        (30, 4, 0),
        (30, 0, 7),
        (10, 9, 1),
        (12, 12, 0),
        (1, 0, 1),
        (500, 3, 3),
    ],
)
@pytest.mark.parametrize("confidence", [0.8, 0.95])
def test_the_interval_is_exactly_what_the_score_test_accepts(n, rescued, damaged, confidence) -> None:
    low, high = tango_interval(n, rescued, damaged, confidence=confidence)
    critical = norm.ppf(0.5 + confidence / 2)
    for difference in np.linspace(-0.995, 0.995, 200):
        if min(abs(difference - low), abs(difference - high)) > 1e-5:
            accepted = abs(score_by_brute_force(n, rescued, damaged, float(difference))) <= critical
            assert accepted == (low <= difference <= high), difference
    for end in (low, high):
        if abs(end) < 1:
            assert abs(score_by_brute_force(n, rescued, damaged, end)) == pytest.approx(critical, abs=1e-4)


@given(counts(), st.sampled_from([0.5, 0.9, 0.95, 0.99]))
def test_the_interval_excludes_zero_exactly_when_the_mcnemar_score_test_rejects(case, confidence) -> None:
    """At a difference of zero Tango's statistic is (rescued - damaged) / sqrt(rescued + damaged)."""
    n, rescued, damaged = case
    low, high = tango_interval(n, rescued, damaged, confidence=confidence)
    statistic = abs(rescued - damaged) / sqrt(rescued + damaged) if rescued + damaged else 0.0
    assert (low > 0 or high < 0) == (statistic > norm.ppf(0.5 + confidence / 2))


@given(counts())
def test_the_interval_holds_the_gain_and_stays_inside_its_range(case) -> None:
    n, rescued, damaged = case
    low, high = tango_interval(n, rescued, damaged)
    assert -1 <= low <= (rescued - damaged) / n <= high <= 1
    assert low < high


@given(counts())
def test_more_confidence_never_narrows_the_interval(case) -> None:
    ends = [tango_interval(*case, confidence=confidence) for confidence in (0.5, 0.8, 0.95, 0.99)]
    assert [low for low, _ in ends] == sorted((low for low, _ in ends), reverse=True)
    assert [high for _, high in ends] == sorted(high for _, high in ends)


@pytest.mark.parametrize("n", [1, 10, 200])
def test_if_nothing_changed_the_interval_is_that_of_an_event_never_seen(n: int) -> None:
    """With no change the restricted estimate is the difference itself: n d = z sqrt(n d (1 - d))."""
    z = norm.ppf(0.975)
    assert tango_interval(n, 0, 0) == pytest.approx((-z * z / (n + z * z), z * z / (n + z * z)))


@pytest.mark.parametrize(
    ("gained", "lost"), [(0.05, 0.05), (0.10, 0.02), (0.02, 0.02), (0.30, 0.10), (0.0, 0.15)]
)
def test_the_interval_covers_the_truth_as_often_as_it_says(gained: float, lost: float) -> None:
    """Exact coverage: the probability of every possible pair of counts, added up where the truth is inside."""
    n, covered, total = 80, 0.0, 0.0
    law = multinomial(n, [gained, lost, 1 - gained - lost])
    for rescued in range(n + 1):
        for damaged in range(n + 1 - rescued):
            chance = float(law.pmf([rescued, damaged, n - rescued - damaged]))
            if chance > 1e-7:
                low, high = tango_interval(n, rescued, damaged)
                covered += chance * (low <= gained - lost <= high)
                total += chance
    assert total == pytest.approx(1, abs=1e-4)
    assert 0.94 <= covered <= 0.975


def test_simulated_panels_are_covered_as_often_as_the_interval_says() -> None:
    random = np.random.default_rng(20)
    n, truth, panels = 150, 0.06, 1500
    covered = 0
    for _ in range(panels):
        draw = random.random(n)
        intact = random.random(n) < 0.5
        changed = np.where(intact, draw < 0.08, draw < 0.20)  # loses 4 %, gains 10 % of all examples
        one = estimate_gain(intact, intact ^ changed, split="heldout", confidence=0.9)
        covered += one.ci_low <= truth <= one.ci_high
    assert covered / panels == pytest.approx(0.9, abs=4 * sqrt(0.9 * 0.1 / panels))


# refusals


def test_verdicts_that_cannot_be_paired_are_refused() -> None:
    with pytest.raises(InvalidInput, match="one common length"):
        paired_counts([True], [True, False])
    with pytest.raises(InvalidInput, match="one common length"):
        paired_counts([[True]], [[True]])
    with pytest.raises(InvalidInput, match="verdicts are boolean"):
        paired_counts([1, 0], [0, 1])


@pytest.mark.parametrize("case", [(10, -1, 0), (10, 0, -1), (10, 6, 5), (0, 0, 0), (-3, 0, 0)])
def test_counts_that_do_not_fit_are_refused(case: tuple[int, int, int]) -> None:
    with pytest.raises(InvalidInput):
        tango_interval(*case)


def test_an_empty_panel_has_no_gain() -> None:
    nothing = np.zeros(0, dtype=np.bool_)
    with pytest.raises(InvalidInput, match="at least one example"):
        estimate_gain(nothing, nothing, split="heldout")


def test_negative_counts_have_no_p_value() -> None:
    with pytest.raises(InvalidInput, match="counts do not fit"):
        mcnemar_exact(-1, 3)


@pytest.mark.parametrize("confidence", [0, 1, -0.5, 95, float("nan")])
def test_a_confidence_lies_strictly_between_zero_and_one(confidence: float) -> None:
    with pytest.raises(InvalidInput, match="confidence lies between 0 and 1"):
        tango_interval(10, 1, 1, confidence=confidence)
