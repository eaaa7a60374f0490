"""Intervals for measured shares and medians, and one test of uniformity."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from cel_lens.errors import InvalidInput
from cel_lens.theory.parameters import require_count

__all__ = ["Interval", "Uniformity", "acceptance_of_share", "chi_square_uniform", "median_interval", "wilson"]


class Interval(NamedTuple):
    """Closed interval; low is at most high."""

    low: float
    """Lower end."""
    high: float
    """Upper end."""

    def holds(self, value: float) -> bool:
        """Whether a value lies inside; False for NaN."""
        return self.low <= value <= self.high


class Uniformity(NamedTuple):
    """Pearson's test that all cells are equally likely."""

    statistic: float
    """Sum of ``(observed - expected)^2 / expected``."""
    freedom: int
    """Cells minus one."""
    p_value: float
    """Probability of a larger statistic if the cells are equally likely."""


def wilson(successes: int, total: int, *, confidence: float = 0.95) -> Interval:
    """Wilson's score interval for a share.

    Args:
        successes: Count between 0 and `total`.
        total: At least 1.
        confidence: Between 0 and 1.

    Returns:
        Interval inside [0, 1].

    Raises:
        InvalidInput: If the counts or the confidence are impossible.
    """
    require_count("total", int(total))
    if not 0 <= successes <= total:
        raise InvalidInput(f"successes is {successes!r}: give a count between 0 and {total}")
    z = _normal_quantile(confidence)
    share, weight = successes / total, z**2 / total
    centre = (share + weight / 2) / (1 + weight)
    half = z / (1 + weight) * math.sqrt(share * (1 - share) / total + weight / (4 * total))
    low = 0.0 if successes == 0 else max(0.0, centre - half)
    high = 1.0 if successes == total else min(1.0, centre + half)
    return Interval(low, high)


def acceptance_of_share(claimed: float, total: int, *, confidence: float = 0.999) -> Interval:
    """Measured shares whose Wilson interval holds the claimed share.

    Args:
        claimed: Between 0 and 1.
        total: Number of observations.
        confidence: Of the Wilson interval.

    Returns:
        ``claimed -+ z sqrt(claimed (1 - claimed) / total)``.
    """
    half = _normal_quantile(confidence) * math.sqrt(claimed * (1 - claimed) / total)
    return Interval(claimed - half, claimed + half)


def median_interval(values: ArrayLike, *, confidence: float = 0.95) -> Interval:
    """Interval for a median between two order statistics, without any assumption on the law.

    Args:
        values: One-dimensional sample of at least one value.
        confidence: Between 0 and 1.

    Returns:
        The interval; the whole range when the sample is too small for the confidence.

    Raises:
        InvalidInput: If the sample is empty.
    """
    from scipy.stats import binom

    ordered = np.sort(np.asarray(values, dtype=np.float64).ravel())
    if ordered.size == 0:
        raise InvalidInput("there are no values to take a median of")
    low = int(binom.ppf((1 - confidence) / 2, ordered.size, 0.5))
    low = max(0, min(low, ordered.size - 1) - 1)
    return Interval(float(ordered[low]), float(ordered[ordered.size - 1 - low]))


def chi_square_uniform(counts: ArrayLike) -> Uniformity:
    """Pearson's chi-square test that all cells of a table are equally likely.

    Args:
        counts: Observed counts, at least two cells.

    Returns:
        Statistic, degrees of freedom and p-value.

    Raises:
        InvalidInput: If there are fewer than two cells or no counts.
    """
    from scipy.stats import chi2

    observed = np.asarray(counts, dtype=np.float64).ravel()
    if observed.size < 2 or observed.sum() <= 0:
        raise InvalidInput("give counts of at least two cells")
    expected = observed.sum() / observed.size
    statistic = float(((observed - expected) ** 2 / expected).sum())
    return Uniformity(statistic, observed.size - 1, float(chi2.sf(statistic, observed.size - 1)))


def _normal_quantile(confidence: float) -> float:
    from scipy.special import ndtri

    if not 0 < confidence < 1:
        raise InvalidInput(f"confidence is {confidence!r}: give a number between 0 and 1")
    return float(ndtri((1 + confidence) / 2))
