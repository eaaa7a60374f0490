"""How closely gradient descent follows the auxiliary equation before escape.

Source: "Can Capability Enhancement be Localized?", Lemma B.2: ``theta_n / alpha`` is within
``O(alpha^4 + h_alpha)`` of ``X(tau_n)``. Here ``h_alpha = eta p beta alpha^2``, the step of Euler's method on
the auxiliary equation, so with a fixed eta the error is O(alpha^2) and with eta ~ alpha^2 it is O(alpha^4).
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np

from cel_lens.errors import InvalidInput
from cel_lens.theory.descent import advance
from cel_lens.theory.escape import predicted_leader, runge_kutta
from cel_lens.theory.model import draw_quartets
from cel_lens.theory.parameters import FloatArray, require_count

__all__ = ["Tracking", "tracking_errors"]


_SPACING = 0.002
"""Scaled time between comparisons; escape takes about 0.7."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Tracking:
    """Largest distance between descent and auxiliary equation, for S draws at each scale.

    Attributes:
        scales: alpha, shape (n,), falling.
        step_sizes: eta at each scale, shape (n,).
        errors: ``sup |theta_n / alpha - X(tau_n)|`` over the head's coordinates and over
            ``tau_n <= 0.8 T_leader``, shape (n, S).
    """

    scales: FloatArray
    step_sizes: FloatArray
    errors: FloatArray

    @property
    def slopes(self) -> FloatArray:
        """Order in alpha between neighbouring scales, one a draw, shape (n - 1, S)."""
        return np.asarray(np.diff(np.log(self.errors), axis=0) / np.diff(np.log(self.scales))[:, None])


def tracking_errors(
    scales: tuple[float, ...],
    *,
    step_size: float = 0.1,
    order: int = 0,
    seed: int = 0,
    n_seeds: int = 40,
) -> Tracking:
    """Compare descent with the auxiliary equation for one feature (beta = 1, p = 1/2, three heads).

    Args:
        scales: Initialisation scales alpha, at least two, falling and positive.
        step_size: eta at the first scale.
        order: 0 keeps eta fixed, 2 lets it fall with ``alpha^2``.
        seed: Seed of the draws; every scale sees the same ones.
        n_seeds: Number S of draws.

    Returns:
        Errors at every scale.

    Raises:
        InvalidInput: If the scales do not fall, the step is not positive, or the order is neither 0 nor 2.
    """
    require_count("n_seeds", n_seeds)
    if len(scales) < 2 or not all(x > y > 0 for x, y in itertools.pairwise(scales)):
        raise InvalidInput(f"scales are {scales!r}: give at least two positive, falling numbers")
    if not step_size > 0 or order not in (0, 2):
        raise InvalidInput(f"step size {step_size!r} must be positive and order {order!r} must be 0 or 2")
    drawn = draw_quartets(seed, n_seeds, n_features=1)[:, 0]
    steps = [step_size * (scale / scales[0]) ** order for scale in scales]
    errors = [_largest_error(drawn, scale, step) for scale, step in zip(scales, steps, strict=True)]
    return Tracking(scales=np.array(scales), step_sizes=np.array(steps), errors=np.array(errors))


def _largest_error(drawn: FloatArray, scale: float, step_size: float) -> FloatArray:
    """Supremum of the distance for each draw, shape (S,).

    Descent and reference are compared every `_SPACING` of scaled time, or every step if that is longer;
    the reference takes one Runge-Kutta step in between, whose error is far below the distances measured.
    """
    rate, ones = np.full(len(drawn), step_size / 2), np.ones(len(drawn))
    h = step_size / 2 * scale**2
    stride = max(1, round(_SPACING / h))
    horizon = 0.8 * predicted_leader(drawn).time
    theta = scale * np.ascontiguousarray(np.moveaxis(drawn, -1, 0).swapaxes(1, 2))  # (4, H, S)
    path = drawn.copy()
    worst, result = np.zeros(len(drawn)), np.zeros(len(drawn))
    rows = np.arange(len(drawn))
    for n in range(stride, int(horizon.max() / h) + 1, stride):
        late = n * h > horizon[rows]
        if late.any():
            result[rows[late]] = worst[late]
            rows, path, theta = rows[~late], path[~late], np.ascontiguousarray(theta[:, :, ~late])
            worst, rate, ones = worst[~late], rate[~late], ones[~late]
        for _ in range(stride):
            advance(theta, rate, ones)
        path = runge_kutta(path, stride * h)
        distance = np.square(theta.transpose(2, 1, 0) / scale - path).sum(axis=(1, 2))
        np.maximum(worst, np.sqrt(distance), out=worst)
    result[rows] = worst
    return result
