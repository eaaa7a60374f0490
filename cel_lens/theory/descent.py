"""Gradient descent of J from many initialisations at once.

Source: "Can Capability Enhancement be Localized?", Lemmas B.2 to B.5 (tracking, no overshoot, fit).

Features decouple exactly, so the unit of work is a *row*: one feature of one seed, with H quartets, a
target beta and a curvature p. All four projections move at once from old values. Rows are sorted by
their predicted escape and leave when they are fitted, which is what makes 10,000 seeds cheap.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple, TypeAlias

import numpy as np

from cel_lens.errors import InvalidInput
from cel_lens.theory.escape import predicted_leader
from cel_lens.theory.parameters import FloatArray, IntArray, require_count

__all__ = [
    "AttentionTerms",
    "Batch",
    "Descent",
    "Progress",
    "Schedule",
    "Status",
    "advance",
    "attention_terms",
    "descend",
    "push",
]

Progress: TypeAlias = Callable[[str], None]
"""Receives one short line whenever a longer computation moves on."""

_CHUNK_ROWS = 4096
_CHECK_EVERY = 50
_RATIO_FLOOR = 1e-8
"""Residuals below this part of the target are left out of the ratios: there they are rounding noise."""
_BLOW_UP = 1e6


class Status(IntEnum):
    """How the descent of one row ended."""

    NOT_YET = 0
    CONVERGED = 1
    DIVERGED = 2

    @property
    def message(self) -> str:
        """What the status means and what can be done about it."""
        return _MESSAGES[self]


_MESSAGES = {
    Status.NOT_YET: "the residual is still above the tolerance: allow more steps, or the step size is at "
    "the edge of stability and the residual oscillates",
    Status.CONVERGED: "the residual is below the tolerance",
    Status.DIVERGED: "the residual left every bound: use a smaller step size",
}


class AttentionTerms(NamedTuple):
    """The two factors of a contribution ``c = o v tanh(q k)``."""

    tanh: FloatArray
    """``tanh(q k)``: difference of the pair's softmax weights."""
    gain: FloatArray
    """``o v``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """How gradient descent runs and when a row ends.

    Attributes:
        step_size: eta, positive.
        init_scale: alpha, positive; the weights start at ``alpha X(0)``.
        checkpoint: Step at which the residual is recorded.
        tolerance: A row is fitted when ``|r| <= tolerance |beta|``; between 0 and 1.
        max_steps: Bound for every row; None for three times its predicted escape plus 20,000.
    """

    step_size: float
    init_scale: float
    checkpoint: int = 0
    tolerance: float = 1e-14
    max_steps: int | None = None

    def __post_init__(self) -> None:
        if not (self.step_size > 0 and self.init_scale > 0):
            raise InvalidInput(
                f"step size {self.step_size!r} and initialisation scale {self.init_scale!r} must be positive"
            )
        if not 0 < self.tolerance < 1:
            raise InvalidInput(f"tolerance is {self.tolerance!r}: give a number between 0 and 1")
        if self.max_steps is not None:
            require_count("max_steps", self.max_steps)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Batch:
    """R independent rows to train; every row is one feature of one seed.

    Attributes:
        initial: X(0), shape (R, H, 4).
        targets: beta, shape (R,), not 0.
        curvatures: p, shape (R,), positive.
    """

    initial: FloatArray
    targets: FloatArray
    curvatures: FloatArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Descent:
    """End of gradient descent for R rows with H heads.

    Attributes:
        quartets: Final weights theta, shape (R, H, 4); not finite in diverged rows.
        residuals: ``r = beta - w`` at the end, shape (R,).
        status: `Status` values, shape (R,).
        steps: Steps taken, counted to the check that ended the row, shape (R,).
        checkpoint_residuals: r at the checkpoint step, or the final r of rows that ended before, (R,).
        clock: ``C = alpha^2 eta p sum_n r_n``, signed so that it grows towards the target, shape (R,).
        min_ratio: Smallest ``r_{n+1} / r_n`` while ``|r_n| > 1e-8 |beta|``, shape (R,); negative: overshoot.
        max_ratio: Largest such ratio, shape (R,); at most 1 when the residual never grows.
    """

    quartets: FloatArray
    residuals: FloatArray
    status: IntArray
    steps: IntArray
    checkpoint_residuals: FloatArray
    clock: FloatArray
    min_ratio: FloatArray
    max_ratio: FloatArray


def advance(theta: FloatArray, rate: FloatArray, target: FloatArray) -> FloatArray:
    """One simultaneous step of gradient descent, in place.

    Args:
        theta: Weights (q, k, v, o), shape (4, H, R); updated.
        rate: ``eta p`` of each row, shape (R,).
        target: beta of each row, shape (R,).

    Returns:
        Residuals before the step, shape (R,).
    """
    tanh, gain = attention_terms(theta)
    residual: FloatArray = target - (gain * tanh).sum(axis=0)
    push(theta, tanh, gain, pull=rate * residual)
    return residual


def attention_terms(theta: FloatArray) -> AttentionTerms:
    """``tanh(q k)`` and ``o v`` of every head, whose product is its contribution.

    Args:
        theta: Weights (q, k, v, o), shape (4, ...).

    Returns:
        Two arrays of shape (...).
    """
    q, k, v, o = theta
    return AttentionTerms(np.tanh(q * k), o * v)


def push(theta: FloatArray, tanh: FloatArray, gain: FloatArray, *, pull: FloatArray) -> None:
    """Move all heads up the gradient of their contributions, in place.

    Every head of a feature is moved by the same `pull`: the heads differ in where they are, never in
    what drives them. That is why they share a clock, whatever noise the pull carries.

    Args:
        theta: Weights (q, k, v, o), shape (4, ...); updated.
        tanh: ``tanh(q k)`` before the step, shape (...); overwritten.
        gain: ``o v`` before the step, shape (...); overwritten.
        pull: ``-eta dJ/dw``, broadcast over (...).
    """
    q, k, v, o = theta
    through_value = pull * tanh
    gain *= pull
    tanh *= tanh
    np.subtract(1.0, tanh, out=tanh)
    gain *= tanh
    step_q, step_v = gain * k, through_value * o
    gain *= q
    through_value *= v
    q += step_q
    k += gain
    v += step_v
    o += through_value


def descend(batch: Batch, schedule: Schedule, *, progress: Progress | None = None) -> Descent:
    """Run gradient descent on independent rows until each is fitted, diverges or runs out of steps.

    Args:
        batch: Initial quartets, targets and curvatures.
        schedule: Step size, scale and when to stop.
        progress: Told about finished chunks.

    Returns:
        The end of every row, in the order given.
    """
    alpha, targets = schedule.init_scale, batch.targets
    rate = schedule.step_size * batch.curvatures
    expected = predicted_leader(batch.initial, targets).time / (rate * np.abs(targets) * alpha**2)
    if schedule.max_steps is None:
        budget = np.where(np.isfinite(expected), 3 * expected, 0.0) + 20_000
    else:
        budget = np.full(len(targets), float(schedule.max_steps))
    result = _blank(batch.initial.shape)
    order = np.argsort(expected, kind="stable")
    chunks = [order[i : i + _CHUNK_ROWS] for i in range(0, len(order), _CHUNK_ROWS)]
    for number, rows in enumerate(chunks, start=1):
        part = Batch(initial=batch.initial[rows], targets=targets[rows], curvatures=batch.curvatures[rows])
        _Rows(rows, part, schedule, budget=budget[rows]).run(result)
        if progress is not None:
            progress(f"gradient descent at scale {alpha:g}: part {number} of {len(chunks)}")
    result.clock[:] *= alpha**2 * rate * np.sign(targets)
    return result


def _blank(shape: tuple[int, ...]) -> Descent:
    rows = shape[0]
    return Descent(
        quartets=np.empty(shape),
        residuals=np.empty(rows),
        status=np.zeros(rows, dtype=np.int64),
        steps=np.zeros(rows, dtype=np.int64),
        checkpoint_residuals=np.empty(rows),
        clock=np.empty(rows),
        min_ratio=np.empty(rows),
        max_ratio=np.empty(rows),
    )


class _Rows:
    """The rows of one chunk while they run; shrinks as they end."""

    def __init__(self, rows: IntArray, part: Batch, schedule: Schedule, *, budget: FloatArray) -> None:
        self.rows, self.budget, self.target = rows, budget, part.targets
        self.theta = schedule.init_scale * np.moveaxis(part.initial, -1, 0).swapaxes(1, 2).copy()
        self.rate = schedule.step_size * part.curvatures
        self.tolerance, self.checkpoint = schedule.tolerance, schedule.checkpoint
        size = len(rows)
        self.clock, self.low, self.high = np.zeros(size), np.full(size, np.inf), np.full(size, -np.inf)
        self.at_checkpoint = np.full(size, np.nan)
        self.previous = np.full(size, np.nan)

    def run(self, result: Descent) -> None:
        """Step until every row has ended, writing each into `result`."""
        n = 0
        with np.errstate(over="ignore", invalid="ignore"):
            while self.rows.size:
                residual = self._step()
                if n == self.checkpoint:
                    self.at_checkpoint[:] = residual
                n += 1
                if n % _CHECK_EVERY == 0:
                    self._retire(n, residual, result)

    def _step(self) -> FloatArray:
        residual = advance(self.theta, self.rate, self.target)
        self.clock += residual
        ratio = residual / self.previous
        np.fmin(self.low, ratio, out=self.low)
        np.fmax(self.high, ratio, out=self.high)
        tiny = np.abs(residual) <= _RATIO_FLOOR * np.abs(self.target)
        self.previous = np.where(tiny, np.nan, residual)
        return residual

    def _retire(self, n: int, residual: FloatArray, result: Descent) -> None:
        """Write the rows that have ended into `result` and drop them."""
        size = np.abs(residual / self.target)
        fitted, lost = size <= self.tolerance, ~(size < _BLOW_UP)
        ended = fitted | lost | (n >= self.budget)
        if not ended.any():
            return
        rows = self.rows[ended]
        status = np.where(fitted, Status.CONVERGED, np.where(lost, Status.DIVERGED, Status.NOT_YET))[ended]
        result.quartets[rows] = np.moveaxis(self.theta[:, :, ended], 0, -1).swapaxes(0, 1)
        result.status[rows], result.steps[rows] = status, n
        result.residuals[rows], result.clock[rows] = residual[ended], self.clock[ended]
        marked = self.at_checkpoint[ended]
        result.checkpoint_residuals[rows] = np.where(np.isnan(marked), residual[ended], marked)
        result.min_ratio[rows], result.max_ratio[rows] = self.low[ended], self.high[ended]
        keep = ~ended
        self.theta = np.ascontiguousarray(self.theta[:, :, keep])
        for name in ("rows", "target", "rate", "budget", "clock", "low", "high", "at_checkpoint", "previous"):
            setattr(self, name, getattr(self, name)[keep])
