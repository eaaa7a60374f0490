"""What removing a head does: gains, damages, and why the optimum alone does not decide them.

Source: "Can Capability Enhancement be Localized?", section 4 and appendix B. At the joint optimum both
tasks have risk ``t^2``; a head that holds feature 0 and nothing else takes all of task A's risk with it
(``R_A -> 0``) and leaves ``R_B = 4 t^2``. The exact formulas in the heads' shares are our derivation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from cel_lens.errors import InvalidInput
from cel_lens.theory.flow import balanced_orbit
from cel_lens.theory.model import joint_objective, predictor, risks
from cel_lens.theory.parameters import FloatArray, IntArray, Setting

__all__ = [
    "Allocation",
    "Deviations",
    "RemovalEffect",
    "deviations_on_separation",
    "effect_of_shares",
    "equally_optimal_allocations",
    "remove_heads",
]


class RemovalEffect(NamedTuple):
    """Effect of deleting one head; each field has the shape of the batch."""

    gain_a: FloatArray
    """``G_A``: task A's risk before minus after; positive where task A gets better."""
    damage_b: FloatArray
    """``D_B``: task B's risk after minus before; positive where task B gets worse."""
    objective_change: FloatArray
    """J after minus before, ``(D_B - G_A) / 4``."""
    risk_a: FloatArray
    """R_A after the removal."""
    risk_b: FloatArray
    """R_B after the removal."""


class Deviations(NamedTuple):
    """Distances from ``t^2`` and ``3 t^2`` at an exact fit, without cancellation."""

    gain_a: FloatArray
    """``G_A - t^2 = -(S^2 + c_{h1}^2)``, never positive, O(alpha^8)."""
    damage_b: FloatArray
    """``D_B - 3 t^2 = -4 t S + S^2 + c_{h2}^2``, O(alpha^4)."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Allocation:
    """Weights at the joint optimum that share the features among the heads in one way.

    Attributes:
        name: The allocation in words.
        short: What head 0 holds, as a label: the features' numbers or one word.
        quartets: Weights, shape (3, H, 4).
        effect: Effect of deleting head 0, scalars.
    """

    name: str
    short: str
    quartets: FloatArray
    effect: RemovalEffect


def remove_heads(contributions: ArrayLike, heads: ArrayLike, setting: Setting) -> RemovalEffect:
    """Delete one head per model and measure both risks.

    Args:
        contributions: ``c_hj``, shape (..., 3, H).
        heads: Head to delete, shape (...), between 0 and H - 1.
        setting: Targets a, b and c.

    Returns:
        Effects of shape (...).

    Raises:
        InvalidInput: If a head does not exist.
    """
    values = np.asarray(contributions, dtype=np.float64)
    removed = np.asarray(heads)
    if removed.size and not (removed.min() >= 0 and removed.max() < values.shape[-1]):
        raise InvalidInput(f"a head to remove is not between 0 and {values.shape[-1] - 1}")
    chosen = np.take_along_axis(values, removed[..., None, None], axis=-1)[..., 0]
    before, after = predictor(values), predictor(values) - chosen
    old, new = risks(before, setting), risks(after, setting)
    return RemovalEffect(
        gain_a=old.task_a - new.task_a,
        damage_b=new.task_b - old.task_b,
        objective_change=joint_objective(after, setting) - joint_objective(before, setting),
        risk_a=new.task_a,
        risk_b=new.task_b,
    )


def effect_of_shares(shares: ArrayLike, setting: Setting) -> RemovalEffect:
    """Effect of deleting a head that holds given shares of the features, at an exact fit.

    ``G_A = t^2 [1 - (1 - s_0)^2] - b^2 s_1^2``, ``D_B = t^2 [(1 + s_0)^2 - 1] + c^2 s_2^2`` and
    ``J`` rises by ``t^2 s_0^2 / 2 + b^2 s_1^2 / 4 + c^2 s_2^2 / 4``.

    Args:
        shares: ``s_j = c_hj / beta_j``, shape (..., 3); any real numbers.
        setting: Targets a, b and c.

    Returns:
        Effects of shape (...).
    """
    s0, s1, s2 = np.moveaxis(np.asarray(shares, dtype=np.float64), -1, 0)
    t2, b2, c2 = setting.t**2, setting.b**2, setting.c**2
    gain = t2 * (1 - (1 - s0) ** 2) - b2 * s1**2
    damage = t2 * ((1 + s0) ** 2 - 1) + c2 * s2**2
    change = t2 * s0**2 / 2 + b2 * s1**2 / 4 + c2 * s2**2 / 4
    return RemovalEffect(gain, damage, change, t2 - gain, t2 + damage)


def deviations_on_separation(contributions: ArrayLike, heads: ArrayLike, setting: Setting) -> Deviations:
    """Distances of G_A from ``t^2`` and of D_B from ``3 t^2`` when head h* is deleted, at an exact fit.

    Written in the small numbers themselves: S, the other heads' part of feature 0, and what h* holds of
    features 1 and 2. The difference of two risks would lose everything below 1e-15.

    Args:
        contributions: ``c_hj``, shape (..., 3, H), of models that are fitted.
        heads: Feature 0's winner h*, shape (...).
        setting: Targets a, b and c.

    Returns:
        Signed distances of shape (...).
    """
    values = np.asarray(contributions, dtype=np.float64)
    index = np.asarray(heads)[..., None]
    others = np.ones(values.shape[:-2] + values.shape[-1:], dtype=bool)
    np.put_along_axis(others, index, False, axis=-1)
    rest = np.where(others, values[..., 0, :], 0.0).sum(axis=-1)
    own1 = np.take_along_axis(values[..., 1, :], index, axis=-1)[..., 0]
    own2 = np.take_along_axis(values[..., 2, :], index, axis=-1)[..., 0]
    return Deviations(-(rest**2 + own1**2), -4 * setting.t * rest + rest**2 + own2**2)


def equally_optimal_allocations(setting: Setting) -> tuple[Allocation, ...]:
    """Models with the same optimal predictor and different effects of deleting head 0.

    Head 0 holds: feature 0 only; features 0 and 1; features 0 and 2; everything; an equal share of
    everything; nothing; and twice feature 0, which head 1 cancels by half. All have the same joint
    objective, so the optimum alone says nothing about what a removal does.

    Args:
        setting: Targets a, b and c, and the number of heads.

    Returns:
        Seven allocations.
    """
    heads, even = setting.n_heads, 1 / setting.n_heads
    owners = (
        ("head 0 holds feature 0 only", "0", (0, 1, 1)),
        ("head 0 holds features 0 and 1", "0, 1", (0, 0, 1)),
        ("head 0 holds features 0 and 2", "0, 2", (0, 1, 0)),
        ("head 0 holds everything", "all", (0, 0, 0)),
        ("head 0 holds nothing", "none", (1, 1, 1)),
    )
    shares = [(name, short, np.eye(heads)[list(who)]) for name, short, who in owners]
    shares.append(("every head holds an equal share", "equal", np.full((3, heads), even)))
    cancelled = np.eye(heads)[[0, 1, 1]]
    cancelled[0, :2] = 2.0, -1.0
    shares.append(("head 0 holds twice feature 0, head 1 takes half back", "twice 0", cancelled))
    return tuple(_allocation(name, short, share, setting) for name, short, share in shares)


def _allocation(name: str, short: str, shares: FloatArray, setting: Setting) -> Allocation:
    """Weights on the balanced orbit whose contributions are ``shares * beta``, shares (3, H)."""
    quartets = np.zeros((*shares.shape, 4))
    wanted = shares * setting.targets[:, None]
    for place in zip(*np.nonzero(wanted), strict=True):
        orbit = balanced_orbit(abs(float(wanted[place])))
        q, v = orbit.query_key, orbit.value_output
        quartets[place] = q, q, v, np.copysign(v, wanted[place])
    first: IntArray = np.array(0)
    return Allocation(name=name, short=short, quartets=quartets, effect=remove_heads(wanted, first, setting))
