"""Other optimisers (experiment): localisation is a property of plain gradient descent.

Nothing here is a theorem. Momentum keeps the common pull of a feature's heads and with it the race; an
optimiser that rescales every weight by its own gradient history does not.
"""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

import numpy as np

from cel_lens.errors import InvalidInput
from cel_lens.theory.descent import attention_terms
from cel_lens.theory.model import draw_quartets
from cel_lens.theory.parameters import FloatArray, require_count

__all__ = ["Optimiser", "shares_after"]

Optimiser: TypeAlias = Literal["gradient descent", "momentum", "adam"]
"""Gradient descent with eta = 0.2, the same with momentum 0.9 and eta = 0.02, or Adam with rate 0.001."""

_RATES = {"gradient descent": 0.2, "momentum": 0.02, "adam": 1e-3}


def shares_after(
    optimiser: Optimiser,
    *,
    init_scale: float = 0.05,
    seed: int = 0,
    n_seeds: int = 500,
    max_steps: int = 30_000,
) -> FloatArray:
    """Winner's share of one feature (beta = 1, p = 1/2, three heads) after training.

    Args:
        optimiser: Which rule.
        init_scale: alpha, positive.
        seed: Seed of the initial draw.
        n_seeds: Number S of seeds.
        max_steps: Bound on the steps; training stops when all residuals are below 1e-6.

    Returns:
        Shape (S,), between 1/3 and 1.

    Raises:
        InvalidInput: If the rule is unknown or a number is not positive.
    """
    if optimiser not in get_args(Optimiser):
        raise InvalidInput(
            f"optimiser {optimiser!r} is unknown: give one of {', '.join(get_args(Optimiser))}"
        )
    if not init_scale > 0:
        raise InvalidInput(f"init_scale is {init_scale!r}: give a positive number")
    require_count("max_steps", max_steps)
    drawn = draw_quartets(seed, n_seeds, n_features=1)[:, 0]
    theta = init_scale * np.ascontiguousarray(np.moveaxis(drawn, -1, 0).swapaxes(1, 2))  # (4, H, S)
    first, second = np.zeros_like(theta), np.zeros_like(theta)
    for n in range(1, max_steps + 1):
        gradient, residual = _gradient(theta)
        if np.abs(residual).max() < 1e-6:
            break
        if optimiser == "adam":
            first += 0.1 * (gradient - first)
            second += 0.001 * (gradient**2 - second)
            scale = np.sqrt(second / (1 - 0.999**n)) + 1e-8
            theta -= _RATES[optimiser] * first / (1 - 0.9**n) / scale
        else:
            first = gradient + (0.9 * first if optimiser == "momentum" else 0.0)
            theta -= _RATES[optimiser] * first
    tanh, gain = attention_terms(theta)
    sizes = np.abs(tanh * gain)
    return np.asarray(sizes.max(axis=0) / sizes.sum(axis=0))


def _gradient(theta: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Gradient of ``(1 - w)^2 / 4``, shape (4, H, S), and the residual ``1 - w``, shape (S,)."""
    q, k, v, o = theta
    tanh, gain = attention_terms(theta)
    residual = 1.0 - (tanh * gain).sum(axis=0)
    through_score = gain * (1 - tanh**2)
    slopes = np.stack([through_score * k, through_score * q, o * tanh, v * tanh])
    return -residual / 2 * slopes, residual
