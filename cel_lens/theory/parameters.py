"""The setting of the three-head model, its derived constants, and the theorem's assumptions.

Source of the model: "Can Capability Enhancement be Localized?", sections 4 and B. The letters
``a, b, c`` (targets), ``eta`` (step size) and ``alpha`` (initialisation scale) are the paper's; the
fields spell the last two out.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from cel_lens.errors import InvalidInput

__all__ = [
    "SMALL_INIT_SCALE",
    "Assumption",
    "BoolArray",
    "FloatArray",
    "IntArray",
    "Setting",
    "require_count",
]

FloatArray: TypeAlias = NDArray[np.float64]
IntArray: TypeAlias = NDArray[np.int64]
BoolArray: TypeAlias = NDArray[np.bool_]

SMALL_INIT_SCALE = 0.1
"""Largest initialisation scale at which the small-scale claims are judged.

The theorem is a limit; up to this value its predictions hold to the tolerances used here, and
above it localisation fades smoothly (share of localised features 0.95 at 0.1, 0.31 at 0.5).
"""


class Assumption(StrEnum):
    """What a statement takes for granted; a violated one is reported instead of judged."""

    POSITIVE_TARGETS = "targets a, b and c are positive"
    SMALL_INIT = f"initialisation scale at most {SMALL_INIT_SCALE}"
    STEP_SIZE = "step size at most 1 / (2 p K) for every feature"
    THREE_HEADS = "three heads"
    DISTINCT_SHARED = "|b| differs from |t| = |a| / 2"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Two tasks that share feature 0 and disagree about it; each has one feature of its own.

    Task A has the target function ``b x_1`` and task B ``a x_0 + c x_2``. A model ``f(x) = w . x`` has

    * ``R_A = w_0^2 + (w_1 - b)^2`` and ``R_B = (w_0 - a)^2 + (w_2 - c)^2``,
    * ``J = (R_A + R_B) / 4``, minimised by ``w* = (t, b, c)`` with ``t = a / 2``.

    The paper states that J averages the two risks; the remaining factor 1/2 is the one of a squared
    loss, and it alone gives the stated change of J (t^2 / 2) when the conflict head is removed.

    Attributes:
        a: Task B's target for the shared feature 0, where task A wants 0. Not zero.
        b: Task A's target for its private feature 1. Not zero.
        c: Task B's target for its private feature 2. Not zero.
        step_size: Step eta of gradient descent, positive.
        init_scale: Scale alpha of the Gaussian initialisation, positive.
        n_heads: Number of attention heads, at least 2; the theorem is about 3.
    """

    a: float = 2.0
    b: float = 1.5
    c: float = 1.0
    step_size: float = 0.2
    init_scale: float = 0.05
    n_heads: int = 3

    def __post_init__(self) -> None:
        for name in ("a", "b", "c"):
            value = getattr(self, name)
            if not math.isfinite(value) or value == 0.0:
                raise InvalidInput(
                    f"target {name} is {value!r}: give a finite number other than 0, "
                    "because nothing drives a feature with target 0"
                )
        for name in ("step_size", "init_scale"):
            value = getattr(self, name)
            if not math.isfinite(value) or value <= 0.0:
                raise InvalidInput(f"{name} is {value!r}: give a finite positive number")
        require_count("n_heads", self.n_heads, at_least=2)

    @property
    def t(self) -> float:
        """Optimal shared weight ``t = a / 2``: the compromise between the targets 0 and a."""
        return self.a / 2

    @property
    def targets(self) -> FloatArray:
        """Joint optimum ``beta = (t, b, c)``, shape (3,)."""
        return np.array([self.t, self.b, self.c])

    @property
    def curvatures(self) -> FloatArray:
        """Weights p of the residuals in ``dJ/dw_j = -p_j (beta_j - w_j)``: (1, 1/2, 1/2), shape (3,)."""
        return np.array([1.0, 0.5, 0.5])

    @property
    def checkpoint(self) -> int:
        """Checkpoint ``N_alpha = ceil(log(1/alpha) / (eta alpha^2))`` in steps; 0 when alpha >= 1."""
        if self.init_scale >= 1.0:
            return 0
        return math.ceil(math.log(1 / self.init_scale) / (self.step_size * self.init_scale**2))

    def violated(self) -> tuple[Assumption, ...]:
        """The theorem's assumptions that these values do not meet, in the order of `Assumption`."""
        from cel_lens.theory.flow import balanced_orbit

        largest = max(
            p * balanced_orbit(abs(target)).curvature
            for p, target in zip(self.curvatures, self.targets, strict=True)
        )
        met = {
            Assumption.POSITIVE_TARGETS: min(self.a, self.b, self.c) > 0,
            Assumption.SMALL_INIT: self.init_scale <= SMALL_INIT_SCALE,
            Assumption.STEP_SIZE: self.step_size <= 1 / (2 * largest),
            Assumption.THREE_HEADS: self.n_heads == 3,
            Assumption.DISTINCT_SHARED: not math.isclose(abs(self.b), abs(self.t), rel_tol=1e-6),
        }
        return tuple(assumption for assumption in Assumption if not met[assumption])


def require_count(name: str, value: int, *, at_least: int = 1) -> int:
    """Return a whole number of at least `at_least`.

    Raises:
        InvalidInput: If it is a boolean, not a whole number, or too small.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < at_least:
        raise InvalidInput(f"{name} is {value!r}: give a whole number of at least {at_least}")
    return value
