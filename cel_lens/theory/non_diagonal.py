"""Full projection matrices in place of diagonal ones (experiment).

Nothing here is a theorem. Every head has full matrices W_Q, W_K, W_V, W_O over the feature dimensions,
queries still see only their own pair, and the readout is still the sum of all coordinates. The readout
row ``1^T W_O`` of a head is then shared by its features, so a head that has won one feature is ahead in
the others: the winners stop being independent, which the diagonal model of "Can Capability Enhancement be
Localized?" assumes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cel_lens.theory.parameters import BoolArray, FloatArray, IntArray, Setting, require_count

__all__ = ["FullRun", "train_full_projections"]

_FIT = 1e-9
_CHECK_EVERY = 50


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FullRun:
    """Models with full projections, for S seeds.

    Attributes:
        setting: Targets, step size and scale.
        contributions: Final ``c_hj = (1^T W_O W_V e_j) tanh((W_Q e_j) . (W_K e_j))``, shape (S, 3, H).
        fitted: Seeds whose residuals vanished, shape (S,).
    """

    setting: Setting
    contributions: FloatArray
    fitted: BoolArray

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

    @property
    def together(self) -> BoolArray:
        """One head holds all three features, shape (S,); the diagonal model gives 1/9."""
        shared, first, second = self.winners.T
        return np.asarray((shared == first) & (shared == second))


def train_full_projections(
    setting: Setting, *, seed: int = 0, n_seeds: int = 300, max_steps: int = 60_000
) -> FullRun:
    """Gradient descent of J with full projections, on the exact population risks.

    Args:
        setting: Targets, step size, scale alpha of the Gaussian entries, and heads.
        seed: Seed of the initial draw.
        n_seeds: Number S of seeds.
        max_steps: Bound on the steps; training stops when all seeds are fitted.

    Returns:
        Final contributions.

    Raises:
        InvalidInput: If a count or the seed is unusable.
    """
    require_count("n_seeds", n_seeds)
    require_count("max_steps", max_steps)
    require_count("seed", seed, at_least=0)
    drawn = np.random.default_rng(seed).standard_normal((n_seeds, 4, setting.n_heads, 3, 3))
    # (4, row, column, H, S)
    theta = setting.init_scale * np.ascontiguousarray(np.moveaxis(drawn, (1, 3, 4, 2, 0), (0, 1, 2, 3, 4)))
    contributions = np.full((3, setting.n_heads, n_seeds), np.nan)
    rows = np.arange(n_seeds)
    rate, target = (setting.step_size * setting.curvatures)[:, None], setting.targets[:, None]
    with np.errstate(over="ignore", invalid="ignore"):
        for n in range(max_steps):
            held, residual = _step(theta, rate, target)
            if n % _CHECK_EVERY == 0:
                done = (np.abs(residual) < _FIT).all(axis=0)
                contributions[:, :, rows[done]] = held[:, :, done]
                rows, theta = rows[~done], theta[..., ~done]
                if rows.size == 0:
                    break
        else:
            contributions[:, :, rows] = _step(theta, rate, target)[0]
    fitted = np.ones(n_seeds, dtype=bool)
    fitted[rows] = False
    return FullRun(setting=setting, contributions=contributions.transpose(2, 0, 1), fitted=fitted)


def _step(theta: FloatArray, rate: FloatArray, target: FloatArray) -> tuple[FloatArray, FloatArray]:
    """One step in place; returns the contributions (3, H, S) and residuals (3, S) before it."""
    w_q, w_k, w_v, w_o = theta
    tanh = np.tanh((w_q * w_k).sum(axis=0))  # (3, H, S), one per feature
    readout = w_o.sum(axis=0)  # (3, H, S), one per inner coordinate
    gain = (readout[:, None] * w_v).sum(axis=0)  # (3, H, S), one per feature
    held = gain * tanh
    residual = target - held.sum(axis=1)
    pull = (rate * residual)[:, None]
    through_score, through_value = pull * gain * (1 - tanh**2), pull * tanh
    step_q, step_k = through_score * w_k, through_score * w_q
    step_v = readout[:, None] * through_value
    step_o = (w_v * through_value).sum(axis=1)
    w_q += step_q
    w_k += step_k
    w_v += step_v
    w_o += step_o
    return held, residual
