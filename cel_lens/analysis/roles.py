"""Which role each screened head plays: beneficial, critical or redundant when removed, with the evidence."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias, get_args

from cel_lens.analysis.saved import Saved, as_result
from cel_lens.errors import InvalidInput
from cel_lens.heads import Head, HeadSet
from cel_lens.results import OPTIMISTIC, HeadBound, HeadGain
from cel_lens.stats import holm_adjust, mcnemar_exact, tango_interval

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["HeadRole", "HeadRoles", "Role", "find_critical_heads", "head_roles"]

Role: TypeAlias = Literal["beneficial", "redundant", "critical", "undecided"]
"""What removing a head does to accuracy: raises it, leaves it within the margin, lowers it, or is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadRole:
    """One screened head, what its removal did on discovery, and what follows from that.

    Attributes:
        head: The removed head.
        role: ``"beneficial"``, ``"redundant"``, ``"critical"`` or ``"undecided"``; see :func:`head_roles`.
        n: Number of discovery examples.
        measured: Examples it was run on; fewer than ``n`` for a head that the screening stopped early.
        rescued: Of the measured examples, wrong when intact and right without the head.
        damaged: Of the measured examples, right when intact and wrong without the head.
        gain: ``(rescued - damaged) / n``, from -1 to 1; ``None`` for a head that was stopped early.
        ci_low: Lower end of the paired interval on the gain, from -1 to 1. For a head that was stopped early,
            the end that damage on every example not measured would give.
        ci_high: Upper end; for a head that was stopped early, the one that no further damage would give.
        p_value: Two-sided exact McNemar p-value of this head alone, from 0 to 1. For a head that was stopped
            early, the largest that it can still have, and 1 unless it has damaged more than it has rescued.
        p_adjusted: The p-value after Holm's correction for all screened heads.
    """

    head: Head
    role: Role
    n: int
    measured: int
    rescued: int
    damaged: int
    gain: float | None
    ci_low: float
    ci_high: float
    p_value: float
    p_adjusted: float


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadRoles:
    """The roles of all screened heads.

    Attributes:
        heads: One entry for each screened head, largest gain first; heads stopped early at the end.
        confidence: Coverage of each interval; ``1 - confidence`` is the level of the roles.
        margin: The largest change of accuracy, a fraction, that counts as none.
        n: Number of discovery examples.
        model: Name of the model.
        task: Name of the task.
    """

    heads: tuple[HeadRole, ...]
    confidence: float
    margin: float
    n: int
    model: str
    task: str

    def of(self, role: Role) -> HeadSet:
        """The heads of one role.

        Raises:
            InvalidInput: If there is no such role.
        """
        if role not in get_args(Role):
            raise InvalidInput(f"a role is {', '.join(map(repr, get_args(Role)))}, not {role!r}")
        return HeadSet.of(one.head for one in self.heads if one.role == role)

    @property
    def counts(self) -> dict[Role, int]:
        """How many heads play each role, in the order beneficial, redundant, critical, undecided."""
        found = Counter(one.role for one in self.heads)
        return {role: found[role] for role in get_args(Role)}

    @property
    def summary(self) -> str:
        """The finding in one sentence."""
        counts = ", ".join(f"{count} {role}" for role, count in self.counts.items())
        return (
            f"{len(self.heads)} heads of {self.model} on {self.n} discovery examples of {self.task}: {counts} "
            f"(level {100 * (1 - self.confidence):.3g}%, corrected for all heads; redundant means within "
            f"{100 * self.margin:.3g} points)."
        )

    def to_frame(self) -> pd.DataFrame:
        """One row for each head, in the order of :attr:`heads`.

        Returns:
            Columns ``head, layer, index, role, n, measured, rescued, damaged, gain_points, ci_low_points,
            ci_high_points, p_value, p_adjusted``; gains in percentage points on discovery, no gain
            for a head that was stopped early.
        """
        import pandas as pd

        gains = [None if one.gain is None else 100 * one.gain for one in self.heads]
        return pd.DataFrame(
            {
                "head": [str(one.head) for one in self.heads],
                "layer": [one.head.layer for one in self.heads],
                "index": [one.head.index for one in self.heads],
                "role": [one.role for one in self.heads],
                "n": [one.n for one in self.heads],
                "measured": [one.measured for one in self.heads],
                "rescued": [one.rescued for one in self.heads],
                "damaged": [one.damaged for one in self.heads],
                "gain_points": pd.Series(gains, dtype=float),
                "ci_low_points": [100 * one.ci_low for one in self.heads],
                "ci_high_points": [100 * one.ci_high for one in self.heads],
                "p_value": [one.p_value for one in self.heads],
                "p_adjusted": [one.p_adjusted for one in self.heads],
            }
        )

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{role}</td><td>{count}</td><td>{_first_names(self.of(role))}</td></tr>"
            for role, count in self.counts.items()
        )
        return (
            f"<p><b>{escape(self.summary)}</b></p><table><thead><tr><th>role when removed</th><th>heads</th>"
            f"<th></th></tr></thead><tbody>{rows}</tbody></table>"
            f"<p>Gains of single heads on discovery: {OPTIMISTIC}.</p>"
        )


class _Evidence(NamedTuple):
    """What the counts of one head say before any correction."""

    gain: float | None
    measured: int
    ci_low: float
    ci_high: float
    p_value: float


def head_roles(result: Saved, *, confidence: float = 0.95, margin: float = 0.02) -> HeadRoles:
    """Name the role of every screened head, and leave it open where the panel is too small to say.

    A head is *beneficial* or *critical* if its exact McNemar p-value, adjusted by Holm's method for all screened
    heads, is at most ``1 - confidence`` and its own paired interval lies above or below 0. So the probability of
    naming any head that has no effect beneficial or critical is at most ``1 - confidence``, however many heads
    there are. Of the others, a head is *redundant* if its interval lies within ``-margin`` to ``margin``. This is
    an equivalence test of each head by itself: a head whose effect is as large as the margin passes it with a
    chance of about ``(1 - confidence) / 2``. Every other head is *undecided*. Small panels decide little: with
    95 % and 2 points, a head that changes no verdict is redundant from 189 examples on.

    A head that ``screening="eliminate"`` stopped early is undecided unless its bound decides: all examples that
    the intact model gets wrong were run, so it can only damage more, and if that makes it critical already, it
    is.

    Args:
        result: A result, or the folder it was saved in.
        confidence: Coverage of each head's interval, between 0 and 1; it is not widened for the number of heads.
        margin: Largest change of accuracy that counts as none, a fraction between 0 and 1.

    Returns:
        One entry for each screened head, best first, with counts, interval and p-values on discovery.

    Raises:
        InvalidInput: If the folder holds no finished search, or a number is out of range.

    References:
        McNemar, Psychometrika 12 (1947); Tango, Statistics in Medicine 17 (1998), for interval and equivalence;
        Holm, Scandinavian Journal of Statistics 6 (1979).

    Example:
        >>> roles = head_roles(result)
        >>> roles.of("critical"), roles.counts["redundant"]
    """
    found = as_result(result)
    for name, value in (("confidence", confidence), ("margin", margin)):
        if not 0 < value < 1:
            raise InvalidInput(f"{name} lies between 0 and 1, not {value!r}")
    entries: tuple[HeadGain | HeadBound, ...] = (*found.screening, *found.eliminated)
    evidence = [_evidence(one, confidence) for one in entries]
    adjusted = holm_adjust([one.p_value for one in evidence])
    named = tuple(
        HeadRole(
            head=entry.head,
            role=_role(one, float(p_adjusted), confidence, margin),
            n=entry.n,
            rescued=entry.rescued,
            damaged=entry.damaged,
            p_adjusted=float(p_adjusted),
            **one._asdict(),
        )
        for entry, one, p_adjusted in zip(entries, evidence, adjusted, strict=True)
    )
    return HeadRoles(
        heads=named,
        confidence=confidence,
        margin=margin,
        n=found.discovery.n,
        model=found.provenance.model,
        task=found.provenance.task,
    )


def find_critical_heads(
    result: Saved, n: int = 10, *, confidence: float = 0.95, margin: float = 0.02
) -> tuple[HeadRole, ...]:
    """The heads without which the model is clearly worse, the worst first.

    Args:
        result: A result, or the folder it was saved in.
        n: At most so many heads, from 1.
        confidence: As of :func:`head_roles`.
        margin: As of :func:`head_roles`.

    Returns:
        Heads whose role is ``"critical"``, by the most damage they are known to do: fewer than ``n``, or none,
        where the panel does not show more.

    Raises:
        InvalidInput: If the folder holds no finished search, or a number is out of range.
    """
    if isinstance(n, bool) or not isinstance(n, int) or n < 1:
        raise InvalidInput(f"n is a whole number from 1, not {n!r}")
    roles = head_roles(result, confidence=confidence, margin=margin)
    critical = [one for one in roles.heads if one.role == "critical"]
    return tuple(sorted(critical, key=lambda one: (one.rescued - one.damaged, one.head))[:n])


def _evidence(entry: HeadGain | HeadBound, confidence: float) -> _Evidence:
    n, rescued, damaged = entry.n, entry.rescued, entry.damaged
    low, high = tango_interval(n, rescued, damaged, confidence=confidence)
    p_value = mcnemar_exact(rescued, damaged)
    if isinstance(entry, HeadGain):
        return _Evidence(entry.gain, n, low, high, p_value)
    unseen = n - entry.measured
    low, _ = tango_interval(n, rescued, damaged + unseen, confidence=confidence)
    # further damage lowers the p-value of a head that does harm already; it may raise that of any other
    return _Evidence(None, entry.measured, low, high, p_value if damaged > rescued else 1.0)


def _role(evidence: _Evidence, p_adjusted: float, confidence: float, margin: float) -> Role:
    if p_adjusted <= 1 - confidence and evidence.ci_low > 0:
        return "beneficial"
    if p_adjusted <= 1 - confidence and evidence.ci_high < 0:
        return "critical"
    return "redundant" if -margin <= evidence.ci_low and evidence.ci_high <= margin else "undecided"


def _first_names(heads: HeadSet, n: int = 12) -> str:
    rest = len(heads) - n
    return ", ".join(str(head) for head in heads.heads[:n]) + (f" and {rest} more" if rest > 0 else "")
