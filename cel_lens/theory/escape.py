"""The race before escape: auxiliary equation, its escape time in closed form, the predicted leader.

Source: "Can Capability Enhancement be Localized?", Lemma B.1 (finite escape for non-zero coordinates
with one uniquely smallest magnitude). The closed form with Carlson's R_F is our derivation.

Write the weights as ``alpha X`` and the time as ``tau = alpha^2 * integral of p r dt``. As alpha -> 0 every
head's quartet of a feature follows, on its own, ``dQ/dtau = K V O`` and the three like it. All squares
grow at the same rate, so ``X_i^2 - X_j^2`` is conserved, and a quartet blows up at a finite time
T(X(0)). The heads of a feature share the clock: the one with the smallest T wins the feature.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import elliprf

from cel_lens.errors import InvalidInput
from cel_lens.theory.model import as_quartets
from cel_lens.theory.parameters import FloatArray, IntArray

__all__ = [
    "AuxiliaryPath",
    "Leader",
    "auxiliary_path",
    "auxiliary_velocity",
    "escape_time",
    "escape_times_towards",
    "loser_products",
    "predicted_leader",
    "runge_kutta",
]

_FAR = 1e6
"""Mean squared coordinate at which the integration of the auxiliary equation stops."""


class Leader(NamedTuple):
    """Which head the auxiliary equation predicts to win, and by how much."""

    head: IntArray
    """Index of the head that escapes first, shape (...)."""
    time: FloatArray
    """Its escape time in scaled time tau, shape (...)."""
    gap: FloatArray
    """Second smallest escape time minus the smallest, shape (...); infinite if no other head escapes."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AuxiliaryPath:
    """Numerical solution of the auxiliary equation for one quartet.

    Attributes:
        times: Scaled times tau, shape (n,), ending where the mean square reaches 10^6.
        quartets: X(tau), shape (n, 4).
        escape_time: Blow-up time: the last time plus the expansion of what remains.
    """

    times: FloatArray
    quartets: FloatArray
    escape_time: float


def escape_time(quartet: ArrayLike) -> FloatArray:
    """Time T at which the auxiliary equation started at a quartet becomes infinite.

    With magnitudes sorted, ``u_i`` their squares and ``d_i = u_i - u_1``, T is ``base - part`` when the
    product of the coordinates is positive and ``base + part`` when it is negative, where
    ``base = R_F(d3 d4, d2 d4, d2 d3)`` and ``part = R_F(u2/u1 d3 d4, u3/u1 d2 d4, u4/u1 d2 d3)``. For a
    positive product a sum form without cancellation is used. ``T(s X) = T(X) / s^2``.

    Args:
        quartet: Shape (..., 4), order and overall sign pattern matter only through the product's sign.

    Returns:
        Shape (...); positive. Infinite where the product is negative and the two smallest magnitudes
        tie, and where fewer than three coordinates move away from 0.

    Raises:
        InvalidInput: If the last axis is not of length 4 or a value is not finite.
    """
    values = as_quartets(quartet)
    x = np.sort(np.abs(values), axis=-1)
    scale = np.where(x[..., 3] > 0, x[..., 3], 1.0)
    x1, x2, x3, x4 = np.moveaxis(x / scale[..., None], -1, 0)
    downhill = np.prod(np.sign(values), axis=-1) < 0
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        direct = elliprf((x1 * x2 + x3 * x4) ** 2, (x1 * x3 + x2 * x4) ** 2, (x1 * x4 + x2 * x3) ** 2)
        d2, d3, d4 = ((y - x1) * (y + x1) for y in (x2, x3, x4))
        base = elliprf(d3 * d4, d2 * d4, d2 * d3)
        e2, e3, e4 = ((y / np.where(x1 > 0, x1, 1.0)) ** 2 for y in (x2, x3, x4))
        part = elliprf(e2 * d3 * d4, e3 * d2 * d4, e4 * d2 * d3)
        times = np.where(downhill, base + part, direct) / scale**2
    tie = downhill & (x1 == x2)
    still = x3 * (x2 + x1) == 0  # at least two coordinates are 0: the product of the others never starts
    return np.asarray(np.where(tie | still, np.inf, times))


def auxiliary_velocity(quartets: FloatArray) -> FloatArray:
    """Right-hand side ``(K V O, Q V O, Q K O, Q K V)`` of the auxiliary equation, same shape (..., 4)."""
    q, k, v, o = np.moveaxis(quartets, -1, 0)
    return np.stack([k * v * o, q * v * o, q * k * o, q * k * v], axis=-1)


def auxiliary_path(quartet: ArrayLike, *, rtol: float = 1e-11) -> AuxiliaryPath:
    """Integrate the auxiliary equation to its blow-up, which an event locates.

    The integration stops where the mean square M reaches 10^6; what remains is
    ``1/(2M) + sum(delta^2)/(24 M^3)`` up to O(M^-4), delta the conserved deviations of the squares.

    Args:
        quartet: One quartet, shape (4,).
        rtol: Relative tolerance of the integrator (Dormand-Prince of order 8).

    Returns:
        The path and its escape time.

    Raises:
        InvalidInput: If the quartet has another shape or never escapes.
    """
    from scipy.integrate import solve_ivp

    start = as_quartets(quartet)
    if start.shape != (4,):
        raise InvalidInput(f"the quartet has shape {start.shape}: give one quartet (q, k, v, o)")
    closed = float(escape_time(start))
    if not np.isfinite(closed):
        raise InvalidInput(f"the quartet {start.tolist()} never escapes, so there is nothing to locate")

    def far(_: float, x: FloatArray) -> float:
        return float(np.mean(x**2) / (_FAR * np.mean(start**2)) - 1)

    far.terminal = True  # type: ignore[attr-defined]
    solution = solve_ivp(
        lambda _, x: auxiliary_velocity(x),
        (0.0, 2 * closed),
        start,
        method="DOP853",
        events=far,
        rtol=rtol,
        atol=rtol * 1e-3,
    )
    if solution.t_events is None or solution.y_events is None or len(solution.t_events[0]) == 0:
        raise InvalidInput(
            f"the integration from {start.tolist()} ended before its blow-up: {solution.message}"
        )
    squares = solution.y_events[0][0] ** 2
    mean = float(squares.mean())
    rest = 1 / (2 * mean) + float(((squares - mean) ** 2).sum()) / (24 * mean**3)
    return AuxiliaryPath(
        times=solution.t, quartets=solution.y.T, escape_time=float(solution.t_events[0][0]) + rest
    )


def predicted_leader(quartets: ArrayLike, target: ArrayLike = 1.0) -> Leader:
    """The head that escapes first, which is the one gradient descent ends up using as alpha -> 0.

    Only the escape time orders the heads reliably; products, norms and magnitudes do not. A negative
    target is the same problem with the sign of ``o`` flipped, and the prediction flips it too.

    Args:
        quartets: Initial quartets, shape (..., H, 4), in any common scale (times scale with its square).
        target: Target of the feature, broadcast over (...); only its sign matters.

    Returns:
        Head, escape time and gap, each of shape (...).

    Raises:
        InvalidInput: If there are fewer than two heads, or a target is 0 or not finite.
    """
    values, wanted = as_quartets(quartets), np.asarray(target, dtype=np.float64)
    if values.ndim < 2 or values.shape[-2] < 2:
        raise InvalidInput(f"quartets have shape {values.shape}: give (..., at least 2 heads, 4)")
    if not np.isfinite(wanted).all() or (wanted == 0).any():
        raise InvalidInput("a target is 0 or not finite: no head is driven towards it")
    times = escape_times_towards(values, wanted)
    ordered = np.sort(times, axis=-1)
    with np.errstate(invalid="ignore"):
        gap = ordered[..., 1] - ordered[..., 0]
    gap = np.where(np.isinf(ordered[..., 1]), np.inf, gap)
    return Leader(np.asarray(times.argmin(axis=-1)), ordered[..., 0], gap)


def escape_times_towards(quartets: FloatArray, target: ArrayLike) -> FloatArray:
    """Escape times of all heads towards a target's sign.

    Args:
        quartets: Shape (..., H, 4).
        target: Broadcast over (...); only its sign matters.

    Returns:
        Shape (..., H).
    """
    towards = np.sign(np.asarray(target, dtype=np.float64))
    signs = np.ones((*np.shape(towards), 1, 4))
    signs[..., 3] = towards[..., None]
    return escape_time(quartets * signs)


def loser_products(quartets: ArrayLike, target: ArrayLike = 1.0, *, n_steps: int = 1000) -> FloatArray:
    """Product ``Q K V O`` of every other head at the moment the leader escapes.

    The race stops there, so a loser keeps the contribution ``alpha^4 * product`` to leading order. Solved with
    `n_steps` Runge-Kutta steps of equal length, which is inaccurate only where two heads nearly tie.

    Args:
        quartets: Initial quartets, shape (..., H, 4).
        target: Target of the feature, broadcast over (...); only its sign matters.
        n_steps: Number of steps.

    Returns:
        Shape (..., H), in the sign of the contribution; infinite, with the target's sign, for the leader.

    Raises:
        InvalidInput: As `predicted_leader`.
    """
    values = as_quartets(quartets)
    leader = predicted_leader(values, target)
    towards = np.broadcast_to(np.sign(np.asarray(target, dtype=np.float64)), leader.head.shape)[..., None]
    leads = np.arange(values.shape[-2]) == leader.head[..., None]
    x = np.where(leads[..., None], 0.0, values)
    x[..., 3] *= towards
    step = (leader.time / n_steps)[..., None, None]
    for _ in range(n_steps):
        x = runge_kutta(x, step)
    return np.asarray(towards * np.where(leads, np.inf, x.prod(axis=-1)))


def runge_kutta(x: FloatArray, step: FloatArray | float) -> FloatArray:
    """One classical Runge-Kutta step of the auxiliary equation.

    Args:
        x: Quartets, shape (..., 4).
        step: Length of the step in scaled time, broadcast against `x`.

    Returns:
        Quartets after the step, shape (..., 4).
    """
    first = auxiliary_velocity(x)
    second = auxiliary_velocity(x + step / 2 * first)
    third = auxiliary_velocity(x + step / 2 * second)
    fourth = auxiliary_velocity(x + step * third)
    return np.asarray(x + step / 6 * (first + 2 * (second + third) + fourth))
