"""Paired statistics on right/wrong outcomes.

Intact and ablated runs answer the same examples, so everything here is a function of four counts:
right both times, right only when intact (*damaged*), right only when ablated (*rescued*), wrong both
times.
"""

from __future__ import annotations

from math import sqrt
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq
from scipy.stats import binom, norm

from cel_lens.errors import InvalidInput
from cel_lens.results import GainEstimate

__all__ = [
    "estimate_gain",
    "holm_adjust",
    "mcnemar_exact",
    "paired_counts",
    "tango_interval",
]


def paired_counts(intact: npt.ArrayLike, ablated: npt.ArrayLike) -> tuple[int, int]:
    """Count the examples whose verdict changed.

    Args:
        intact: Verdicts of the intact model, boolean, shape ``[examples]``.
        ablated: Verdicts of the ablated model on the same examples in the same order.

    Returns:
        ``(rescued, damaged)``.

    Raises:
        InvalidInput: If the shapes differ or the values are not boolean.
    """
    before, after = np.asarray(intact), np.asarray(ablated)
    if before.shape != after.shape or before.ndim != 1:
        raise InvalidInput(f"paired verdicts have one common length, not {before.shape} and {after.shape}")
    if before.dtype != np.bool_ or after.dtype != np.bool_:
        raise InvalidInput(f"verdicts are boolean, not {before.dtype} and {after.dtype}")
    return int((~before & after).sum()), int((before & ~after).sum())


def mcnemar_exact(rescued: int, damaged: int) -> float:
    """Two-sided exact McNemar p-value: under no effect a changed verdict goes either way with chance 1/2.

    Args:
        rescued: Examples wrong when intact and right when ablated.
        damaged: Examples right when intact and wrong when ablated.

    Returns:
        ``min(1, 2 P(X <= min(rescued, damaged)))`` with X binomial(rescued + damaged, 1/2); 1 if nothing changed.

    References:
        McNemar, "Note on the sampling error of the difference between correlated proportions or
        percentages", Psychometrika 12 (1947).
    """
    _check_counts(rescued + damaged, rescued, damaged)
    return float(min(1.0, 2.0 * binom.cdf(min(rescued, damaged), rescued + damaged, 0.5)))


def tango_interval(n: int, rescued: int, damaged: int, *, confidence: float = 0.95) -> tuple[float, float]:
    """Score interval on the difference of two paired proportions.

    It inverts the score test, so it stays inside [-1, 1], is not degenerate when nothing changed, and
    keeps its coverage when few verdicts change, which is the usual case for one head.

    Args:
        n: Number of examples, at least 1.
        rescued: Examples wrong when intact and right when ablated.
        damaged: Examples right when intact and wrong when ablated.
        confidence: Nominal two-sided coverage, between 0 and 1.

    Returns:
        Lower and upper end of the interval on ``(rescued - damaged) / n``.

    Raises:
        InvalidInput: If the counts are negative, exceed ``n``, or the confidence is not inside (0, 1).

    References:
        Tango, "Equivalence test and confidence interval for the difference in proportions for the
        paired-sample design", Statistics in Medicine 17 (1998).
    """
    _check_counts(n, rescued, damaged)
    if n < 1:
        raise InvalidInput("a gain needs at least one example")
    if not 0 < confidence < 1:
        raise InvalidInput(f"confidence lies between 0 and 1, not {confidence!r}")
    z = float(norm.ppf(0.5 + confidence / 2))
    point = (rescued - damaged) / n

    def excess(difference: float, sign: float) -> float:
        return sign * _score(n, rescued, damaged, difference) - z

    low = -1.0 if excess(-1.0, 1.0) <= 0 else float(brentq(excess, -1.0, point, args=(1.0,), xtol=1e-12))
    high = 1.0 if excess(1.0, -1.0) <= 0 else float(brentq(excess, point, 1.0, args=(-1.0,), xtol=1e-12))
    return low, high


def holm_adjust(p_values: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Adjust p-values of one family: rejecting those up to a level errs anywhere with at most that probability.

    Args:
        p_values: Shape ``[tests]``, each from 0 to 1; they may depend on each other in any way.

    Returns:
        Adjusted p-values in the same order, from 0 to 1, none below its own.

    Raises:
        InvalidInput: If a value is no probability.

    References:
        Holm, "A simple sequentially rejective multiple test procedure", Scandinavian Journal of
        Statistics 6 (1979).
    """
    given = np.asarray(p_values, dtype=np.float64)
    if given.ndim != 1 or not bool(np.all((given >= 0) & (given <= 1))):
        raise InvalidInput("p-values are a list of numbers from 0 to 1")
    order = np.argsort(given, kind="stable")
    raised = np.maximum.accumulate(given[order] * np.arange(given.size, 0, -1))
    adjusted = np.empty_like(given)
    adjusted[order] = np.minimum(raised, 1.0)
    return adjusted


def estimate_gain(
    intact: npt.ArrayLike,
    ablated: npt.ArrayLike,
    *,
    split: Literal["discovery", "heldout"],
    confidence: float = 0.95,
) -> GainEstimate:
    """Gain of an ablation on one panel, with its paired interval and exact p-value.

    Args:
        intact: Verdicts of the intact model, boolean, shape ``[examples]``, at least one.
        ablated: Verdicts of the ablated model on the same examples in the same order.
        split: The panel the verdicts belong to.
        confidence: Nominal coverage of the interval.

    Raises:
        InvalidInput: If the verdicts cannot be paired.
    """
    rescued, damaged = paired_counts(intact, ablated)
    before = np.asarray(intact)
    low, high = tango_interval(before.size, rescued, damaged, confidence=confidence)
    return GainEstimate(
        split=split,
        n=before.size,
        intact_correct=int(before.sum()),
        rescued=rescued,
        damaged=damaged,
        gain=(rescued - damaged) / before.size,
        ci_low=low,
        ci_high=high,
        confidence=confidence,
        p_value=mcnemar_exact(rescued, damaged),
    )


def _check_counts(n: int, rescued: int, damaged: int) -> None:
    if rescued < 0 or damaged < 0 or rescued + damaged > n:
        raise InvalidInput(f"counts do not fit: {rescued} rescued and {damaged} damaged of {n} examples")


def _score(n: int, rescued: int, damaged: int, difference: float) -> float:
    """Tango's score statistic for ``difference``, with the nuisance proportion at its restricted optimum."""
    a = 2.0 * n
    b = -rescued - damaged + (2.0 * n - rescued + damaged) * difference
    c = -damaged * difference * (1.0 - difference)
    nuisance = (sqrt(max(b * b - 4.0 * a * c, 0.0)) - b) / (2.0 * a)
    variance = n * (2.0 * nuisance + difference * (1.0 - difference))
    numerator = rescued - damaged - n * difference
    if numerator == 0.0:
        return 0.0
    if variance <= 0.0:
        return float("inf") if numerator > 0 else float("-inf")
    return numerator / sqrt(variance)
