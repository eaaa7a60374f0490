"""Beyond three heads: closed forms for how often the conflict can be removed cleanly.

All of it is our derivation from two facts of the small model: the heads of a feature are exchangeable,
so each wins with equal probability, and features are independent. None of it is stated in "Can
Capability Enhancement be Localized?".
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from cel_lens.errors import InvalidInput
from cel_lens.theory.descent import Batch, Progress, Schedule, descend
from cel_lens.theory.escape import escape_time, predicted_leader
from cel_lens.theory.model import draw_quartets
from cel_lens.theory.parameters import BoolArray, FloatArray, IntArray, require_count

__all__ = [
    "Layout",
    "LayoutRun",
    "WeightedConflict",
    "conflict_of_tasks",
    "conflict_of_weights",
    "race_layout",
    "separation_probability",
    "separation_probability_unequal",
    "train_layout",
    "win_probabilities",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """A model with more heads and features.

    Attributes:
        n_heads: H, at least 2.
        n_private: m, features that one task alone uses, at least 1.
        n_shared: K, conflict features that both tasks use and disagree about, at least 1.
    """

    n_heads: int = 3
    n_private: int = 2
    n_shared: int = 1

    def __post_init__(self) -> None:
        require_count("n_heads", self.n_heads, at_least=2)
        require_count("n_private", self.n_private)
        require_count("n_shared", self.n_shared)

    @property
    def n_features(self) -> int:
        """Shared and private features together; the shared ones come first."""
        return self.n_shared + self.n_private


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LayoutRun:
    """Winners of a layout for S initialisations and F features.

    Attributes:
        layout: Heads and features.
        winners: Head that holds each feature, shape (S, F).
        leaders: Head with the smallest escape time, shape (S, F).
        shares: Winner's share, shape (S, F); NaN when only the race was run.
    """

    layout: Layout
    winners: IntArray
    leaders: IntArray
    shares: FloatArray

    @property
    def separated(self) -> BoolArray:
        """Seeds in which no head that holds a conflict feature holds a private one, shape (S,)."""
        shared = self.winners[:, : self.layout.n_shared, None]
        private = self.winners[:, None, self.layout.n_shared :]
        return np.asarray((shared != private).all(axis=(1, 2)))


class WeightedConflict(NamedTuple):
    """Effect of removing the conflict head when the tasks count differently."""

    optimum: float
    """Optimal shared weight ``w_0*``."""
    gain_a: float
    """``G_A``."""
    damage_b: float
    """``D_B``."""


def separation_probability(layout: Layout) -> float:
    """Probability that removing the conflict's heads costs no private feature.

    With one conflict feature ``((H - 1) / H)^m``. With K of them, s distinct heads hold the conflict with
    probability ``C(H, s) surj(K, s) / H^K`` and every private feature avoids them with ``(H - s) / H``;
    ``surj(K, s)`` counts the maps of K features onto s heads.

    Args:
        layout: Heads and features.

    Returns:
        Probability, exact for equal heads and independent features at every initialisation scale.
    """
    heads, shared, private = layout.n_heads, layout.n_shared, layout.n_private
    total = 0
    for s in range(1, min(heads, shared) + 1):
        onto = sum((-1) ** i * math.comb(s, i) * (s - i) ** shared for i in range(s + 1))
        total += math.comb(heads, s) * onto * (heads - s) ** private
    return float(total / heads ** (shared + private))


def separation_probability_unequal(probabilities: ArrayLike, n_private: int) -> float:
    """The same for one conflict feature and heads that win with different probabilities.

    Args:
        probabilities: ``pi_h``, the same for every feature, shape (H,), summing to 1.
        n_private: m.

    Returns:
        ``sum_h pi_h (1 - pi_h)^m``.

    Raises:
        InvalidInput: If the probabilities are negative or do not sum to 1.
    """
    pi = np.asarray(probabilities, dtype=np.float64)
    require_count("n_private", n_private)
    if pi.ndim != 1 or (pi < 0).any() or not math.isclose(float(pi.sum()), 1.0, abs_tol=1e-9):
        raise InvalidInput(f"probabilities are {pi.tolist()}: give one per head, not negative, summing to 1")
    return float((pi * (1 - pi) ** n_private).sum())


def win_probabilities(scales: ArrayLike, *, seed: int = 0, n_draws: int = 100_000) -> FloatArray:
    """Share of races that each head wins when the heads start at different scales.

    Args:
        scales: Positive factor of each head's initialisation, shape (H,).
        seed: Seed of the draws.
        n_draws: Number of races.

    Returns:
        Shares, shape (H,), summing to 1.

    Raises:
        InvalidInput: If there are fewer than two heads or a scale is not positive.
    """
    factors = np.asarray(scales, dtype=np.float64)
    if factors.ndim != 1 or factors.size < 2 or not (factors > 0).all():
        raise InvalidInput(
            f"scales are {factors.tolist()}: give a positive number for each of at least two heads"
        )
    drawn = draw_quartets(seed, n_draws, n_heads=factors.size, n_features=1)[:, 0]
    first = (escape_time(drawn) / factors**2).argmin(axis=-1)
    return np.asarray(np.bincount(first, minlength=factors.size) / n_draws)


def conflict_of_tasks(shared_targets: ArrayLike) -> FloatArray:
    """Gain of each of T equally weighted tasks when the conflict head is removed.

    The tasks want ``a_k`` of the shared feature, so the joint optimum is their mean. Task k gains exactly when
    ``a_k`` is below half the mean (for a positive mean); the mean risk always rises by the squared mean.

    Args:
        shared_targets: ``a_k``, shape (T,).

    Returns:
        ``mean^2 - 2 mean a_k``, shape (T,).
    """
    wanted = np.asarray(shared_targets, dtype=np.float64)
    mean = wanted.mean()
    return np.asarray(mean**2 - 2 * mean * wanted)


def conflict_of_weights(a: float, weight_a: float) -> WeightedConflict:
    """Effect of removing the conflict head when task A has weight lambda and task B the rest.

    Args:
        a: Task B's target for the shared feature; task A wants 0.
        weight_a: lambda, between 0 and 1.

    Returns:
        ``w_0* = (1 - lambda) a``, ``G_A = w_0*^2`` and ``D_B = a^2 (1 - lambda^2)``.

    Raises:
        InvalidInput: If the weight is not between 0 and 1.
    """
    if not 0 < weight_a < 1:
        raise InvalidInput(f"the weight of task A is {weight_a!r}: give a number between 0 and 1")
    optimum = (1 - weight_a) * a
    return WeightedConflict(optimum, optimum**2, a**2 * (1 - weight_a**2))


def race_layout(layout: Layout, *, seed: int = 0, n_seeds: int = 50_000) -> LayoutRun:
    """Winners predicted by the escape times alone: the limit of small initialisation.

    Args:
        layout: Heads and features.
        seed: Seed of the draws.
        n_seeds: Number S of initialisations.

    Returns:
        Winners equal to leaders; shares are NaN.
    """
    drawn = draw_quartets(seed, n_seeds, n_heads=layout.n_heads, n_features=layout.n_features)
    heads = predicted_leader(drawn).head
    return LayoutRun(layout=layout, winners=heads, leaders=heads, shares=np.full(heads.shape, np.nan))


def train_layout(
    layout: Layout,
    schedule: Schedule,
    *,
    seed: int = 0,
    n_seeds: int = 1000,
    progress: Progress | None = None,
) -> LayoutRun:
    """Winners after gradient descent.

    Shared features have target 1 and curvature 1, private ones target 1.5 or 1 in turn and curvature 1/2, as
    in the small model with a = 2, b = 1.5, c = 1.

    Args:
        layout: Heads and features.
        schedule: Step size, initialisation scale and stop.
        seed: Seed of the draws.
        n_seeds: Number S of initialisations.
        progress: Told about finished parts.

    Returns:
        Winners, leaders and shares.
    """
    drawn = draw_quartets(seed, n_seeds, n_heads=layout.n_heads, n_features=layout.n_features)
    private = np.arange(layout.n_private)
    targets = np.concatenate([np.ones(layout.n_shared), np.where(private % 2 == 0, 1.5, 1.0)])
    curvatures = np.concatenate([np.ones(layout.n_shared), np.full(layout.n_private, 0.5)])
    batch = Batch(
        initial=drawn.reshape(-1, layout.n_heads, 4),
        targets=np.tile(targets, n_seeds),
        curvatures=np.tile(curvatures, n_seeds),
    )
    q, k, v, o = np.moveaxis(descend(batch, schedule, progress=progress).quartets, -1, 0)
    sizes = np.abs(o * v * np.tanh(q * k)).reshape(n_seeds, layout.n_features, layout.n_heads)
    return LayoutRun(
        layout=layout,
        winners=sizes.argmax(axis=-1),
        leaders=predicted_leader(drawn, targets).head,
        shares=sizes.max(axis=-1) / sizes.sum(axis=-1),
    )
