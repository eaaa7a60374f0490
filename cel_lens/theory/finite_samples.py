"""Noise and finite samples: what is left of localisation when the risks are estimated (experiment).

Nothing here is a theorem. The model of "Can Capability Enhancement be Localized?" is trained on n Gaussian
inputs per task with noisy answers, or on fresh mini-batches. The estimated second moments couple the
features, yet all heads of one feature still receive the same pull, so noise moves the clock of a race
and not its order; only a pull that changes its sign can.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from cel_lens.errors import InvalidInput
from cel_lens.theory.ablation import remove_heads
from cel_lens.theory.descent import attention_terms, push
from cel_lens.theory.escape import predicted_leader
from cel_lens.theory.model import draw_quartets
from cel_lens.theory.parameters import BoolArray, FloatArray, IntArray, Setting, require_count

__all__ = ["SampledRun", "Sampling", "train_on_samples"]

_FIT = 1e-8
_CHECK_EVERY = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How the training data arise.

    Attributes:
        n_samples: Inputs per task, at least 4: the size of the data set, or of every mini-batch.
        noise: Standard deviation of the noise in the answers, not negative.
        fresh: Draw new inputs and noise at every step (mini-batches) in place of one fixed data set.
    """

    n_samples: int
    noise: float = 0.0
    fresh: bool = False

    def __post_init__(self) -> None:
        require_count("n_samples", self.n_samples, at_least=4)
        if not (np.isfinite(self.noise) and self.noise >= 0):
            raise InvalidInput(f"noise is {self.noise!r}: give a standard deviation of at least 0")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SampledRun:
    """Models trained on samples, for S seeds.

    Attributes:
        setting: Population targets, step size and scale.
        sampling: Where the data came from.
        contributions: Final ``c_hj``, shape (S, 3, H).
        fitted: Seeds whose training gradient vanished (fixed data) or that stayed finite (mini-batches), (S,).
        leaders: Prediction from X(0) and the signs of the population targets, shape (S, 3).
        informed_leaders: The same with the signs of the first sample's pull, shape (S, 3).
        gain_a: Population G_A of removing feature 0's winner, shape (S,).
        damage_b: Population D_B of it, shape (S,).
    """

    setting: Setting
    sampling: Sampling
    contributions: FloatArray
    fitted: BoolArray
    leaders: IntArray
    informed_leaders: IntArray
    gain_a: FloatArray
    damage_b: FloatArray

    @property
    def winners(self) -> IntArray:
        """Head with the largest ``|c_hj|``, shape (S, 3)."""
        return np.asarray(np.abs(self.contributions).argmax(axis=-1))

    @property
    def shares(self) -> FloatArray:
        """Winner's share, shape (S, 3)."""
        sizes = np.abs(self.contributions)
        return np.asarray(sizes.max(axis=-1) / sizes.sum(axis=-1))

    @property
    def separated(self) -> BoolArray:
        """Event E: feature 0's winner holds no other feature, shape (S,)."""
        shared, first, second = self.winners.T
        return np.asarray((shared != first) & (shared != second))


class _Moments(NamedTuple):
    """Sums of both tasks' moments; the training pull is ``(cross - second @ w) / 2``."""

    second: FloatArray
    """Shape (3, 3, S); the population's is diag(2, 1, 1)."""
    cross: FloatArray
    """Shape (3, S); the population's is (a, b, c)."""


def train_on_samples(
    setting: Setting, sampling: Sampling, *, seed: int = 0, n_seeds: int = 200, max_steps: int = 20_000
) -> SampledRun:
    """Train on estimated risks, all seeds at once, each with its own data.

    Args:
        setting: Targets, step size, scale and heads.
        sampling: Data set size, noise, and whether data are fresh at every step.
        seed: Seed of the initial draw; the data use an independent stream of it.
        n_seeds: Number S of seeds.
        max_steps: Steps; fixed data stop earlier when every seed's gradient has vanished.

    Returns:
        Final contributions and population effects of removing feature 0's winner.

    Raises:
        InvalidInput: If a count or the seed is unusable.
    """
    require_count("max_steps", max_steps)
    initial = draw_quartets(seed, n_seeds, n_heads=setting.n_heads)
    rng = np.random.default_rng([seed, 1])
    theta = setting.init_scale * np.ascontiguousarray(np.moveaxis(initial, (3, 2, 1, 0), (0, 1, 2, 3)))
    moments = _draw_moments(rng, setting, sampling, n_seeds)
    first_pull = moments.cross
    slope = np.full((3, n_seeds), np.inf)
    with np.errstate(over="ignore", invalid="ignore"):
        for n in range(max_steps):
            tanh, gain = attention_terms(theta)
            weights = (gain * tanh).sum(axis=0)  # (3, S)
            slope = (moments.cross - np.einsum("jks,ks->js", moments.second, weights)) / 2
            push(theta, tanh, gain, pull=setting.step_size * slope)
            if sampling.fresh:
                moments = _draw_moments(rng, setting, sampling, n_seeds)
            elif n % _CHECK_EVERY == 0 and np.nanmax(np.abs(slope)) < _FIT:
                break
        tanh, gain = attention_terms(theta)
        contributions = np.moveaxis(gain * tanh, (0, 1, 2), (2, 1, 0))
    finite: BoolArray = np.asarray(np.isfinite(contributions).all(axis=(1, 2)))
    contributions = np.where(finite[:, None, None], contributions, np.nan)
    fitted = finite & (sampling.fresh | (np.abs(slope) < _FIT).all(axis=0))
    effect = remove_heads(contributions, np.abs(contributions[:, 0]).argmax(axis=-1), setting)
    return SampledRun(
        setting=setting,
        sampling=sampling,
        contributions=contributions,
        fitted=fitted,
        leaders=predicted_leader(initial, setting.targets).head,
        informed_leaders=predicted_leader(initial, first_pull.T).head,
        gain_a=effect.gain_a,
        damage_b=effect.damage_b,
    )


def _draw_moments(rng: np.random.Generator, setting: Setting, sampling: Sampling, n_seeds: int) -> _Moments:
    """Second moments and cross moments of one sample of both tasks."""
    second, cross = np.zeros((3, 3, n_seeds)), np.zeros((3, n_seeds))
    for features, target in (((0, 1), (0.0, setting.b)), ((0, 2), (setting.a, setting.c))):
        x = rng.standard_normal((2, sampling.n_samples, n_seeds))
        noise = sampling.noise * rng.standard_normal((sampling.n_samples, n_seeds))
        y = target[0] * x[0] + target[1] * x[1] + noise
        for i, j in enumerate(features):
            cross[j] += (x[i] * y).mean(axis=0)
            for k, other in enumerate(features):
                second[j, other] += (x[i] * x[k]).mean(axis=0)
    return _Moments(second, cross)
