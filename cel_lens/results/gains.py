"""Gains: counts that were observed, and estimates with their uncertainty."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from cel_lens.heads import Head, HeadSet

__all__ = ["OPTIMISTIC", "GainEstimate", "HeadBound", "HeadGain", "SubsetBound", "SubsetGain"]

OPTIMISTIC = "selected on these examples; optimistic"
"""What is written beside every figure of the discovery panel."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadGain:
    """What removing one head did on the discovery panel.

    Attributes:
        head: The removed head.
        n: Number of examples.
        rescued: Examples wrong when intact and right without the head.
        damaged: Examples right when intact and wrong without the head.
    """

    head: Head
    n: int
    rescued: int
    damaged: int

    @property
    def gain(self) -> float:
        """Change of accuracy, ``(rescued - damaged) / n``, from -1 to 1."""
        return (self.rescued - self.damaged) / self.n

    @property
    def heads(self) -> HeadSet:
        """The head as a set of one."""
        return HeadSet((self.head,))


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadBound:
    """A head that was stopped because it could no longer reach the pool: a bound, not an estimate.

    Attributes:
        head: The removed head.
        n: Number of discovery examples.
        measured: Examples it was run on, all that the intact model gets wrong among them.
        rescued: Of these, wrong when intact and right without the head.
        damaged: Of these, right when intact and wrong without the head.
    """

    head: Head
    n: int
    measured: int
    rescued: int
    damaged: int

    @property
    def at_most(self) -> float:
        """The largest gain the head can have on the panel, from -1 to 1."""
        return (self.rescued - self.damaged) / self.n

    @property
    def heads(self) -> HeadSet:
        """The head as a set of one."""
        return HeadSet((self.head,))


@dataclass(frozen=True, slots=True, kw_only=True)
class SubsetGain:
    """What removing several heads together did on the discovery panel.

    Attributes:
        heads: The removed heads.
        n: Number of examples.
        rescued: Examples wrong when intact and right without the heads.
        damaged: Examples right when intact and wrong without the heads.
    """

    heads: HeadSet
    n: int
    rescued: int
    damaged: int

    @property
    def gain(self) -> float:
        """Change of accuracy, ``(rescued - damaged) / n``, from -1 to 1."""
        return (self.rescued - self.damaged) / self.n


@dataclass(frozen=True, slots=True, kw_only=True)
class SubsetBound:
    """A head set that was stopped because it could no longer be among the finalists: a bound, not an estimate.

    Attributes:
        heads: The removed heads.
        n: Number of discovery examples.
        measured: Examples it was run on, all that the intact model gets wrong among them.
        rescued: Of these, wrong when intact and right without the heads.
        damaged: Of these, right when intact and wrong without the heads.
    """

    heads: HeadSet
    n: int
    measured: int
    rescued: int
    damaged: int

    @property
    def at_most(self) -> float:
        """The largest gain the heads can have on the panel, from -1 to 1."""
        return (self.rescued - self.damaged) / self.n


@dataclass(frozen=True, slots=True, kw_only=True)
class GainEstimate:
    """A paired gain with its uncertainty.

    Attributes:
        split: The panel: ``"discovery"`` (the heads were chosen on it, so the figures are optimistic)
            or ``"heldout"`` (looked at once; the figures to quote).
        n: Number of examples.
        intact_correct: Examples right when intact.
        rescued: Examples wrong when intact and right when ablated.
        damaged: Examples right when intact and wrong when ablated.
        gain: Ablated minus intact accuracy, a fraction from -1 to 1.
        ci_low: Lower end of the paired interval on the gain.
        ci_high: Upper end.
        confidence: Nominal coverage of the interval, for example 0.95.
        p_value: Two-sided exact McNemar p-value, from 0 to 1.
    """

    split: Literal["discovery", "heldout"]
    n: int
    intact_correct: int
    rescued: int
    damaged: int
    gain: float
    ci_low: float
    ci_high: float
    confidence: float
    p_value: float

    @property
    def ablated_correct(self) -> int:
        """Examples right when ablated."""
        return self.intact_correct + self.rescued - self.damaged

    @property
    def intact_accuracy(self) -> float:
        """Share of examples right when intact, from 0 to 1."""
        return self.intact_correct / self.n

    @property
    def ablated_accuracy(self) -> float:
        """Share of examples right when ablated, from 0 to 1."""
        return self.ablated_correct / self.n

    @property
    def note(self) -> str:
        """``"selected on these examples; optimistic"`` on discovery, empty on held-out."""
        return OPTIMISTIC if self.split == "discovery" else ""

    def __str__(self) -> str:
        text = (
            f"{self.split}: {self.intact_correct}/{self.n} intact, {self.ablated_correct}/{self.n} ablated, "
            f"gain {100 * self.gain:+.1f} points "
            f"({100 * self.confidence:.0f}% interval {100 * self.ci_low:+.1f} to {100 * self.ci_high:+.1f}, "
            f"exact McNemar p = {self.p_value:.2g}; {self.rescued} rescued, {self.damaged} damaged)"
        )
        return f"{text} [{self.note}]" if self.note else text
