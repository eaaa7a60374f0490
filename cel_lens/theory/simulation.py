"""`simulate`: train the model from many random initialisations and compare with the predicted leaders."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from cel_lens.errors import InvalidInput
from cel_lens.theory.descent import Batch, Descent, Progress, Schedule, Status, descend
from cel_lens.theory.escape import Leader, predicted_leader
from cel_lens.theory.model import as_quartets, draw_quartets
from cel_lens.theory.parameters import BoolArray, FloatArray, IntArray, Setting

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Simulation", "simulate", "simulate_from"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Simulation:
    """Trained models for S initialisations, F = 3 features and H heads.

    Attributes:
        setting: What was trained.
        initial: X(0), shape (S, F, H, 4); the weights start at ``alpha X(0)``.
        quartets: Final weights, shape (S, F, H, 4).
        contributions: Final ``c_hj``, shape (S, F, H).
        residuals: ``beta - w``, shape (S, F).
        status: `Status` of each feature, shape (S, F).
        steps: Steps of gradient descent, shape (S, F).
        checkpoint_residuals: Residual at step ``N_alpha``, shape (S, F).
        clock: Residual clock C of the whole run, in the units of the escape time, shape (S, F).
        min_ratio: Smallest ratio of successive residuals, shape (S, F).
        max_ratio: Largest ratio of successive residuals, shape (S, F).
        leader: Prediction from the initial draw alone, each field of shape (S, F).
    """

    setting: Setting
    initial: FloatArray
    quartets: FloatArray
    contributions: FloatArray
    residuals: FloatArray
    status: IntArray
    steps: IntArray
    checkpoint_residuals: FloatArray
    clock: FloatArray
    min_ratio: FloatArray
    max_ratio: FloatArray
    leader: Leader

    @property
    def usable(self) -> BoolArray:
        """Features that did not diverge, shape (S, F); winners and shares mean something only there."""
        return np.asarray(self.status != Status.DIVERGED)

    @property
    def winners(self) -> IntArray:
        """Head with the largest ``|c_hj|``, shape (S, F); -1 for diverged features."""
        sizes = np.where(np.isfinite(self.contributions), np.abs(self.contributions), -1.0)
        return np.asarray(np.where(self.usable, sizes.argmax(axis=-1), -1))

    @property
    def shares(self) -> FloatArray:
        """Winner's share ``max_h |c_hj| / sum_h |c_hj|``, shape (S, F); NaN for diverged features."""
        sizes = np.where(self.usable[..., None], np.abs(self.contributions), np.nan)
        return np.asarray(sizes.max(axis=-1) / sizes.sum(axis=-1))

    @property
    def separated(self) -> BoolArray:
        """Event E of each seed: feature 0's winner wins neither feature 1 nor feature 2, shape (S,)."""
        shared, first, second = self.winners.T
        return np.asarray((shared != first) & (shared != second) & self.usable.all(axis=1))

    def to_frame(self) -> pd.DataFrame:
        """One row a seed and feature: status, steps, winner, share, prediction, residuals, clock."""
        import pandas as pd

        n_seeds, n_features = self.status.shape
        index = pd.MultiIndex.from_product([range(n_seeds), range(n_features)], names=["draw", "feature"])
        columns = {
            "status": [Status(int(value)).name.lower() for value in self.status.ravel()],
            "steps": self.steps.ravel(),
            "winner": self.winners.ravel(),
            "share": self.shares.ravel(),
            "leader": self.leader.head.ravel(),
            "escape_time": self.leader.time.ravel(),
            "escape_gap": self.leader.gap.ravel(),
            "residual": self.residuals.ravel(),
            "checkpoint_residual": self.checkpoint_residuals.ravel(),
            "clock": self.clock.ravel(),
            "min_ratio": self.min_ratio.ravel(),
            "max_ratio": self.max_ratio.ravel(),
        }
        return pd.DataFrame(columns, index=index)


def simulate(
    setting: Setting | None = None, *, seed: int = 0, n_seeds: int = 1000, progress: Progress | None = None
) -> Simulation:
    """Train by gradient descent from many random initialisations.

    Args:
        setting: Targets, step size, initialisation scale and heads; `Setting()` by default.
        seed: Seed of the initial draw; the same seed gives the same X(0) at every scale.
        n_seeds: Number S of initialisations.
        progress: Told about finished parts.

    Returns:
        Weights, statuses, winners and predictions.

    Raises:
        InvalidInput: If a count or the seed is unusable.

    Examples:
        >>> run = simulate(Setting(init_scale=0.1), seed=1, n_seeds=200)
        >>> bool((run.winners == run.leader.head).all())
        True
    """
    chosen = setting or Setting()
    initial = draw_quartets(seed, n_seeds, n_heads=chosen.n_heads)
    return simulate_from(initial, chosen, progress=progress)


def simulate_from(
    initial: ArrayLike,
    setting: Setting,
    *,
    tolerance: float = 1e-14,
    max_steps: int | None = None,
    progress: Progress | None = None,
) -> Simulation:
    """Train by gradient descent from given initialisations.

    Args:
        initial: X(0), shape (S, 3, H, 4); the weights start at ``alpha X(0)``.
        setting: Targets, step size, initialisation scale and heads.
        tolerance: A feature is fitted when its residual is at most this part of its target.
        max_steps: Bound on the steps; by default adapted to each feature's predicted escape.
        progress: Told about finished parts.

    Returns:
        Weights, statuses, winners and predictions.

    Raises:
        InvalidInput: If a shape, the tolerance or the bound is unusable.
    """
    start = as_quartets(initial)
    if start.ndim != 4 or start.shape[1:3] != (3, setting.n_heads):
        raise InvalidInput(f"initial quartets have shape {start.shape}: give (S, 3, {setting.n_heads}, 4)")
    n = start.shape[0]
    batch = Batch(
        initial=start.reshape(3 * n, setting.n_heads, 4),
        targets=np.tile(setting.targets, n),
        curvatures=np.tile(setting.curvatures, n),
    )
    schedule = Schedule(
        step_size=setting.step_size,
        init_scale=setting.init_scale,
        checkpoint=setting.checkpoint,
        tolerance=tolerance,
        max_steps=max_steps,
    )
    return _assemble(setting, start, descend(batch, schedule, progress=progress))


def _assemble(setting: Setting, start: FloatArray, ended: Descent) -> Simulation:
    shape = start.shape[:2]
    quartets = ended.quartets.reshape(start.shape)
    q, k, v, o = np.moveaxis(quartets, -1, 0)
    with np.errstate(over="ignore", invalid="ignore"):
        contributions = o * v * np.tanh(q * k)
    return Simulation(
        setting=setting,
        initial=start,
        quartets=quartets,
        contributions=contributions,
        residuals=ended.residuals.reshape(shape),
        status=ended.status.reshape(shape),
        steps=ended.steps.reshape(shape),
        clock=ended.clock.reshape(shape),
        checkpoint_residuals=ended.checkpoint_residuals.reshape(shape),
        min_ratio=ended.min_ratio.reshape(shape),
        max_ratio=ended.max_ratio.reshape(shape),
        leader=predicted_leader(start, setting.targets),
    )
