"""Closed form of the model: contributions of the heads, risks, joint objective, gradients.

Source: "Can Capability Enhancement be Localized?", section 4; the normalisation of J and the literal
attention in `cel_lens.theory.attention` are derived here.

Layout used everywhere in `cel_lens.theory`: an array of *quartets* has shape (..., F, H, 4), feature
before head, and its last axis is ``(q, k, v, o)``, the diagonal entries of the query, key, value and
output projections of that head for that feature.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from cel_lens.errors import InvalidInput
from cel_lens.theory.parameters import FloatArray, Setting, require_count

__all__ = [
    "Risks",
    "as_quartets",
    "draw_quartets",
    "gradients",
    "head_contributions",
    "joint_objective",
    "predictor",
    "risks",
]


class Risks(NamedTuple):
    """Population risks of the two tasks, mean squared errors; each has the shape of the batch."""

    task_a: FloatArray
    """``R_A = w_0^2 + (w_1 - b)^2``."""
    task_b: FloatArray
    """``R_B = (w_0 - a)^2 + (w_2 - c)^2``."""


def as_quartets(quartets: ArrayLike) -> FloatArray:
    """Read an array whose last axis is (q, k, v, o), as float64.

    Raises:
        InvalidInput: If the last axis is not of length 4 or a value is not finite.
    """
    values = np.asarray(quartets, dtype=np.float64)
    if values.ndim < 1 or values.shape[-1] != 4:
        raise InvalidInput(f"quartets have shape {values.shape}: the last axis must be (q, k, v, o)")
    if not np.isfinite(values).all():
        raise InvalidInput("quartets hold a value that is not finite")
    return values


def draw_quartets(seed: int, n_seeds: int, *, n_heads: int = 3, n_features: int = 3) -> FloatArray:
    """Independent standard normal quartets X(0); the initial weights are ``alpha X(0)``.

    The first n draws of a seed do not depend on how many are asked for.

    Args:
        seed: Seed of the generator, a whole number from 0.
        n_seeds: Number S of independent initialisations.
        n_heads: Heads H.
        n_features: Features F.

    Returns:
        Shape (S, F, H, 4).

    Raises:
        InvalidInput: If a count is not a positive whole number or the seed is negative.
    """
    require_count("seed", seed, at_least=0)
    shape = tuple(
        require_count(name, value)
        for name, value in (("n_seeds", n_seeds), ("n_features", n_features), ("n_heads", n_heads))
    )
    return np.random.default_rng(seed).standard_normal((*shape, 4))


def head_contributions(quartets: ArrayLike) -> FloatArray:
    """Contribution ``c_hj = o v tanh(q k)`` of head h to the weight of feature j.

    Args:
        quartets: Shape (..., 4).

    Returns:
        Shape (...), for a model (..., F, H).

    Raises:
        InvalidInput: If the last axis is not of length 4 or a value is not finite.
    """
    q, k, v, o = np.moveaxis(as_quartets(quartets), -1, 0)
    return np.asarray(o * v * np.tanh(q * k))


def predictor(contributions: ArrayLike) -> FloatArray:
    """Weights ``w_j = sum_h c_hj`` of the linear predictor ``f(x) = w . x``.

    Args:
        contributions: Shape (..., F, H).

    Returns:
        Shape (..., F).
    """
    return np.asarray(np.asarray(contributions, dtype=np.float64).sum(axis=-1))


def risks(weights: ArrayLike, setting: Setting) -> Risks:
    """Population risks of a linear predictor.

    Args:
        weights: ``w``, shape (..., 3).
        setting: Targets a, b and c.

    Returns:
        R_A and R_B, each of shape (...).
    """
    w0, w1, w2 = np.moveaxis(np.asarray(weights, dtype=np.float64), -1, 0)
    return Risks(w0**2 + (w1 - setting.b) ** 2, (w0 - setting.a) ** 2 + (w2 - setting.c) ** 2)


def joint_objective(weights: ArrayLike, setting: Setting) -> FloatArray:
    """Joint objective ``J = (R_A + R_B) / 4 = (w_0-t)^2/2 + (w_1-b)^2/4 + (w_2-c)^2/4 + t^2/2``.

    Args:
        weights: ``w``, shape (..., 3).
        setting: Targets a, b and c.

    Returns:
        Shape (...).
    """
    both = risks(weights, setting)
    return np.asarray((both.task_a + both.task_b) / 4)


def gradients(quartets: ArrayLike, setting: Setting) -> FloatArray:
    """Gradient of J with respect to every weight, in closed form.

    With ``z = q k``, ``m = o v``, residual ``r_j = beta_j - w_j`` and curvature ``p_j``:
    ``dJ/dq = -p r m k sech^2 z``, ``dJ/dk = -p r m q sech^2 z``, ``dJ/dv = -p r o tanh z`` and
    ``dJ/do = -p r v tanh z``. A feature's gradient depends on that feature's quartets only.

    Args:
        quartets: Shape (..., 3, H, 4).
        setting: Targets a, b and c.

    Returns:
        Same shape as `quartets`.

    Raises:
        InvalidInput: If the shape or a value is wrong.
    """
    values = as_quartets(quartets)
    if values.ndim < 3 or values.shape[-3] != 3:
        raise InvalidInput(f"quartets have shape {values.shape}: give (..., 3 features, heads, 4)")
    q, k, v, o = np.moveaxis(values, -1, 0)
    tanh = np.tanh(q * k)
    pull = setting.curvatures * (setting.targets - (o * v * tanh).sum(axis=-1))
    through_score = o * v * (1 - tanh**2)
    parts = (through_score * k, through_score * q, o * tanh, v * tanh)
    return np.asarray(-pull[..., None, None] * np.stack(parts, axis=-1))
