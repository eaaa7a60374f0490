"""Gradient flow on the residual clock, for scales too small for gradient descent, and its end point.

Source: "Can Capability Enhancement be Localized?", Lemmas B.2 to B.5; the balanced orbit, its constants
and the residual clock are our derivation.

In gradient flow put ``d sigma = p r dt``: every quartet then follows ``d theta / d sigma = grad c``
alone, and heads interact only through the moment at which the clock stops, the first sigma with
``sum_h c_h = beta``. The variables here are ``X = theta / alpha`` and ``tau = alpha^2 sigma``, in
which the start of the motion looks the same for every alpha. This is a flow, not gradient descent:
results at a finite step differ by O(eta).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike

from cel_lens.errors import InvalidInput
from cel_lens.theory.model import as_quartets
from cel_lens.theory.parameters import BoolArray, FloatArray

__all__ = ["BalancedOrbit", "FlowEnd", "balanced_orbit", "run_flow"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BalancedOrbit:
    """End point of a winning head as alpha -> 0, where ``q = k`` and ``o = v``.

    Along this orbit ``m = Shi(2z)/2`` (Shi the hyperbolic sine integral) and ``c(z) = m tanh z``.

    Attributes:
        target: The feature's target beta, positive.
        score: ``z = q k`` at the end.
        gain: ``m = o v`` at the end.
        curvature: ``K = |grad c|^2``; p K is the Hessian's eigenvalue at the end.
        clock_offset: kappa in ``C = T_leader + kappa alpha^2`` for the whole run's clock C in flow.
        gap_99: Escape-time gap, in units of alpha^2, below which the winner's share stays under 0.99.
    """

    target: float
    score: float
    gain: float
    curvature: float
    clock_offset: float
    gap_99: float

    @property
    def query_key(self) -> float:
        """Final |q| = |k| of the winner."""
        return float(np.sqrt(self.score))

    @property
    def value_output(self) -> float:
        """Final |v| = |o| of the winner."""
        return float(np.sqrt(self.gain))


@lru_cache(maxsize=64)
def balanced_orbit(target: float) -> BalancedOrbit:
    """Constants of the balanced orbit that ends at ``c(z) = target``.

    ``kappa = int_0^z [1/(2 m z sech^2 z) - 1/(2 z^2)] dz - 1/(2 z_end)`` and ``gap_99`` is the same first
    integrand between ``c = 0.01 beta`` and ``c = 0.99 beta``.

    Args:
        target: beta, positive, at most 1000.

    Returns:
        The constants, to about ten digits.

    Raises:
        InvalidInput: If the target is not in (0, 1000].
    """
    from scipy.integrate import quad

    if not 0 < target <= 1000:
        raise InvalidInput(
            f"the target is {target!r}: the balanced orbit is computed for values in (0, 1000]"
        )
    end = _score_at(target)
    gain = _gain(end)
    tanh = np.tanh(end)
    regular, _ = quad(_regular_rate, 0.0, end, epsabs=1e-12, epsrel=1e-11)
    gap, _ = quad(_clock_rate, _score_at(0.01 * target), _score_at(0.99 * target), epsabs=1e-12, epsrel=1e-11)
    return BalancedOrbit(
        target=float(target),
        score=end,
        gain=gain,
        curvature=float(2 * gain * tanh**2 + 2 * end * gain**2 / np.cosh(end) ** 4),
        clock_offset=float(regular - 1 / (2 * end)),
        gap_99=float(gap),
    )


def _gain(score: float) -> float:
    """Gain m = Shi(2z)/2 on the balanced orbit."""
    from scipy.special import shichi

    return float(shichi(2 * score)[0]) / 2


def _score_at(contribution: float) -> float:
    """Score z at which the balanced orbit's contribution Shi(2z) tanh(z) / 2 has a value."""
    from scipy.optimize import brentq

    upper = 1.0
    while _gain(upper) * np.tanh(upper) < contribution:
        upper *= 2
    root = brentq(lambda z: _gain(z) * np.tanh(z) - contribution, 0.0, upper, xtol=1e-15, rtol=1e-14)
    return float(root)


def _clock_rate(score: float) -> float:
    """Clock per unit of score, d(sigma)/dz = cosh^2(z) / (2 m z)."""
    return float(np.cosh(score) ** 2) / (2 * _gain(score) * score)


def _regular_rate(score: float) -> float:
    """Clock rate without its pole 1/(2 z^2); tends to 7/18 at 0."""
    return 7 / 18 if score < 1e-3 else _clock_rate(score) - 1 / (2 * score**2)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FlowEnd:
    """Where the gradient flow of many features ends. R rows (one feature of one seed each), H heads.

    Attributes:
        init_scale: alpha.
        targets: beta of each row, shape (R,).
        quartets: Final weights theta = alpha X, shape (R, H, 4).
        contributions: Final c_h, shape (R, H); their sum is the target to rounding.
        clock: Final clock C = alpha^2 sigma, shape (R,), comparable with escape times.
    """

    init_scale: float
    targets: FloatArray
    quartets: FloatArray
    contributions: FloatArray
    clock: FloatArray

    @property
    def shares(self) -> FloatArray:
        """Winner's share ``max_h |c_h| / sum_h |c_h|``, shape (R,), between 1/H and 1."""
        sizes = np.abs(self.contributions)
        return np.asarray(sizes.max(axis=-1) / sizes.sum(axis=-1))


def run_flow(
    quartets: ArrayLike,
    targets: ArrayLike,
    init_scale: float,
    *,
    step_factor: float = 0.01,
    max_steps: int = 500_000,
) -> FlowEnd:
    """Gradient flow of independent features from ``alpha X(0)`` to an exact fit.

    Fourth-order Runge-Kutta in scaled variables with a step of `step_factor` / max X^2; the step that
    passes the target is replaced by one whose length Newton's method finds.

    Args:
        quartets: X(0), shape (R, H, 4).
        targets: beta, shape (R,) or a scalar, not 0. A negative target is run mirrored (o flipped).
        init_scale: alpha, positive.
        step_factor: Relative step; the error falls with its fourth power.
        max_steps: Bound on the number of steps of the slowest row.

    Returns:
        The end of every row.

    Raises:
        InvalidInput: If a shape or value is wrong, or a row has not ended after `max_steps`.
    """
    start = as_quartets(quartets)
    if start.ndim != 3:
        raise InvalidInput(f"quartets have shape {start.shape}: give (rows, heads, 4)")
    beta = np.broadcast_to(np.asarray(targets, dtype=np.float64), start.shape[:1])
    if not init_scale > 0 or not np.isfinite(beta).all() or (beta == 0).any():
        raise InvalidInput("give a positive initialisation scale and finite targets other than 0")
    x = np.ascontiguousarray(np.moveaxis(start, -1, 0).swapaxes(1, 2))  # (4, H, R)
    x[3] *= np.sign(beta)
    ends, clock = _integrate(x, np.abs(beta), init_scale, step_factor, max_steps)
    ends[3] *= np.sign(beta)
    theta = init_scale * np.moveaxis(ends, 0, -1).swapaxes(0, 1)
    q, k, v, o = np.moveaxis(theta, -1, 0)
    return FlowEnd(
        init_scale=float(init_scale),
        targets=beta.copy(),
        quartets=theta,
        contributions=o * v * np.tanh(q * k),
        clock=clock,
    )


def _integrate(
    x: FloatArray, beta: FloatArray, alpha: float, step_factor: float, max_steps: int
) -> tuple[FloatArray, FloatArray]:
    """Run all rows of x (4, H, R) until their contributions sum to beta; returns states and clocks."""
    ends, clocks = np.empty_like(x), np.empty(x.shape[2])
    rows, clock = np.arange(x.shape[2]), np.zeros(x.shape[2])
    for _ in range(max_steps):
        step = step_factor / np.square(x).max(axis=(0, 1))
        moved = _runge_kutta(x, step, alpha)
        passed = _total(moved, alpha) >= beta[rows]
        if passed.any():
            hit = rows[passed]
            last = _newton(x[:, :, passed], step[passed], beta[hit], alpha)
            ends[:, :, hit] = _runge_kutta(x[:, :, passed], last, alpha)
            clocks[hit] = clock[passed] + last
            keep: BoolArray = ~passed
            moved, rows, clock, step = moved[:, :, keep], rows[keep], clock[keep], step[keep]
            if rows.size == 0:
                return ends, clocks
        x, clock = moved, clock + step
    raise InvalidInput(
        f"{rows.size} features have not reached their target after {max_steps} steps of the flow"
    )


def _newton(x: FloatArray, step: FloatArray, beta: FloatArray, alpha: float) -> FloatArray:
    """Step lengths at which the contributions sum to beta; d(sum c)/d tau = alpha^4 |dX/dtau|^2."""
    length = step.copy()
    for _ in range(8):
        at = _runge_kutta(x, length, alpha)
        slope = alpha**4 * np.square(_velocity(at, alpha)).sum(axis=(0, 1))
        length = np.clip(length - (_total(at, alpha) - beta) / slope, 0.0, step)
    return length


def _runge_kutta(x: FloatArray, step: FloatArray, alpha: float) -> FloatArray:
    first = _velocity(x, alpha)
    second = _velocity(x + step / 2 * first, alpha)
    third = _velocity(x + step / 2 * second, alpha)
    fourth = _velocity(x + step * third, alpha)
    return np.asarray(x + step / 6 * (first + 2 * (second + third) + fourth))


def _velocity(x: FloatArray, alpha: float) -> FloatArray:
    """dX/dtau of shape (4, H, R); tends to the auxiliary equation as alpha -> 0."""
    q, k, v, o = x
    tanh = np.tanh(alpha**2 * q * k)
    through_score = o * v * (1 - tanh**2)
    scaled = tanh / alpha**2
    return np.stack([through_score * k, through_score * q, o * scaled, v * scaled])


def _total(x: FloatArray, alpha: float) -> FloatArray:
    """Sum of the heads' contributions, shape (R,)."""
    q, k, v, o = x
    return np.asarray((alpha**2 * o * v * np.tanh(alpha**2 * q * k)).sum(axis=0))
