"""Runs that several statements share, made once."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from cel_lens.errors import InvalidInput
from cel_lens.theory.descent import Progress
from cel_lens.theory.escape import loser_products
from cel_lens.theory.flow import balanced_orbit, run_flow
from cel_lens.theory.parameters import Assumption, FloatArray, IntArray, Setting
from cel_lens.theory.simulation import Simulation, simulate

__all__ = ["TRAINED", "Evidence", "FlowRun"]

TRAINED = (
    Assumption.POSITIVE_TARGETS,
    Assumption.SMALL_INIT,
    Assumption.STEP_SIZE,
    Assumption.THREE_HEADS,
)
"""What the statements about trained models take for granted."""

_SMALLEST_SCALE = 0.01


@dataclass(frozen=True, kw_only=True, eq=False)
class FlowRun:
    """Gradient flow of S models to an exact fit.

    Attributes:
        scale: alpha.
        initial: X(0), shape (S, 3, H, 4).
        quartets: Final weights, shape (S, 3, H, 4).
        contributions: Final ``c_hj``, shape (S, 3, H).
    """

    scale: float
    initial: FloatArray
    quartets: FloatArray
    contributions: FloatArray

    @property
    def winners(self) -> IntArray:
        """Head with the largest ``|c_hj|``, shape (S, 3)."""
        return np.asarray(np.abs(self.contributions).argmax(axis=-1))


@dataclass(frozen=True, kw_only=True, eq=False)
class Evidence:
    """What a verification looks at.

    Attributes:
        setting: Targets, step size, base scale and heads.
        seeds: Initialisations of the main runs.
        seed: Seed of every draw.
        quick: Smaller auxiliary runs and no finest scale.
        progress: Told about finished parts.
    """

    setting: Setting
    seeds: int
    seed: int
    quick: bool
    progress: Progress | None = None

    def __post_init__(self) -> None:
        if self.setting.init_scale < _SMALLEST_SCALE:
            raise InvalidInput(
                f"init_scale is {self.setting.init_scale!r}: a verification trains for about 1/alpha^2 steps, "
                f"so give at least {_SMALLEST_SCALE}"
            )

    @cached_property
    def runs(self) -> dict[float, Simulation]:
        """Gradient descent from the same draws at every scale, from coarse to fine."""
        factors = (4.0, 2.0, 1.0) if self.quick or self.setting.init_scale < 0.05 else (4.0, 2.0, 1.0, 0.4)
        scales = [float(f"{factor * self.setting.init_scale:.6g}") for factor in factors]
        return {
            scale: simulate(self.at(scale), seed=self.seed, n_seeds=self.seeds, progress=self.progress)
            for scale in scales
        }

    @property
    def judged(self) -> dict[float, Simulation]:
        """The runs without the coarsest, which only shows the trend in plots."""
        return dict(list(self.runs.items())[1:])

    @cached_property
    def flows(self) -> dict[float, FlowRun]:
        """Gradient flow of a part of the draws at the base scale and at two much smaller ones."""
        n = min(self.seeds, 300 if self.quick else 1000)
        initial = next(iter(self.runs.values())).initial[:n]
        runs = {}
        for scale in (self.setting.init_scale, 0.02, 0.01):
            rows = initial.reshape(-1, self.setting.n_heads, 4)
            end = run_flow(rows, np.tile(self.setting.targets, n), scale)
            runs[scale] = FlowRun(
                scale=scale,
                initial=initial,
                quartets=end.quartets.reshape(initial.shape),
                contributions=end.contributions.reshape(initial.shape[:-1]),
            )
            self.say(f"gradient flow at scale {scale:g}")
        return runs

    @cached_property
    def loser_products(self) -> FloatArray:
        """Products of the losers at the leader's escape for the draws of `flows`, shape (S, 3, H)."""
        return loser_products(next(iter(self.flows.values())).initial, self.setting.targets)

    def at(self, scale: float) -> Setting:
        """The setting with another initialisation scale."""
        return replace(self.setting, init_scale=scale)

    def say(self, line: str) -> None:
        """Report progress."""
        if self.progress is not None:
            self.progress(line)

    def slack(self, tolerance: float) -> float:
        """A tolerance stated for 10,000 seeds, widened for fewer by the square root of the ratio."""
        return float(tolerance * np.sqrt(max(1.0, 10_000 / self.seeds)))

    def predicted_localised(self, simulation: Simulation) -> FloatArray:
        """Share of draws of each feature whose escape gap promises a winner's share above 0.99, shape (3,)."""
        widths = np.array([balanced_orbit(abs(beta)).gap_99 for beta in self.setting.targets])
        return np.asarray((simulation.leader.gap > simulation.setting.init_scale**2 * widths).mean(axis=0))

    @cached_property
    def largest_curvature(self) -> float:
        """Largest ``p K`` of the three features."""
        pairs = zip(self.setting.curvatures, self.setting.targets, strict=True)
        return float(max(p * balanced_orbit(abs(beta)).curvature for p, beta in pairs))
