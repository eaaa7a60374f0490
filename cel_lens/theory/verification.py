"""What a verification says: rows that claim and measure a number, statements that group and plot them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from cel_lens.errors import InvalidInput
from cel_lens.theory.intervals import Interval, median_interval, wilson
from cel_lens.theory.parameters import Assumption, BoolArray, FloatArray, Setting

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "Cells",
    "Claim",
    "Measured",
    "Plot",
    "Row",
    "Series",
    "Statement",
    "Verdict",
    "Verification",
    "judge",
    "median_of",
    "observe",
    "share_of",
    "within",
]


_ANYTHING = Interval(-math.inf, math.inf)


class Claim(NamedTuple):
    """A number that a statement claims."""

    key: str
    """Short identifier."""
    statement: str
    """What is claimed, in words."""
    value: float
    """The number."""
    accepted: Interval = _ANYTHING
    """Measured numbers that confirm it."""
    needs: tuple[Assumption, ...] = ()
    """Assumptions the claim takes for granted."""


class Measured(NamedTuple):
    """A measured number."""

    value: float
    """The number."""
    interval: Interval | None = None
    """Its interval; None for exact numbers."""
    note: str = ""
    """How it was measured."""


class Verdict(StrEnum):
    """Outcome of one row."""

    CONFIRMED = "confirmed"
    NOT_CONFIRMED = "not confirmed"
    OUTSIDE = "outside the theorem's assumptions"


class Cells(NamedTuple):
    """A row as short texts, for a table on paper or in a terminal."""

    statement: str
    """What is claimed, in words."""
    claimed: str
    """The claimed number."""
    measured: str
    """The measured number."""
    interval: str
    """Interval of the measurement, or a dash where the number is exact."""
    verdict: str
    """The verdict in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One claimed number and its measurement.

    Attributes:
        claim: Short identifier, unique within a verification.
        statement: What is claimed, in words.
        claimed: The claimed number.
        accepted: Measured numbers that confirm the claim.
        measured: The measured number.
        interval: 95% interval of the measurement unless the note says otherwise; None for exact numbers.
        verdict: Whether the measurement lies in `accepted`, or the theorem does not speak about it.
        note: How it was measured, or which assumption is not met; may be empty.
    """

    claim: str
    statement: str
    claimed: float
    accepted: Interval
    measured: float
    interval: Interval | None
    verdict: Verdict
    note: str = ""

    def cells(self) -> Cells:
        """The row as short texts."""
        interval = "–"
        if self.interval is not None:
            interval = f"[{_number(self.interval.low)}, {_number(self.interval.high)}]"
        return Cells(
            self.statement, _number(self.claimed), _number(self.measured), interval, self.verdict.value
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One set of points in a plot.

    Attributes:
        name: Legend entry.
        x: Positions: numbers, or names of categories.
        y: Heights, as many as positions.
        low: Lower ends of error bars; empty for none.
        high: Upper ends of error bars; empty for none.
        style: How it is drawn; "claim" is a dashed line, "limit" a thin dotted one.
    """

    name: str
    x: tuple[float | str, ...]
    y: tuple[float, ...]
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    style: Literal["points", "line", "bars", "claim", "limit"] = "points"

    def __post_init__(self) -> None:
        lengths = {len(self.x), len(self.y)} | {len(ends) for ends in (self.low, self.high) if ends}
        if len(lengths) != 1:
            raise InvalidInput(f"series {self.name!r} has parts of different lengths: {sorted(lengths)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    """Data of one plot, without any drawing.

    Attributes:
        x_label: Label of the horizontal axis.
        y_label: Label of the vertical axis.
        series: What is drawn.
        log_x: Logarithmic horizontal axis.
        log_y: Logarithmic vertical axis.
    """

    x_label: str
    y_label: str
    series: tuple[Series, ...]
    log_x: bool = False
    log_y: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """A statement of the theory: its rows and its plot.

    Attributes:
        key: Short identifier.
        title: The statement in one line.
        text: What it means and how it was checked.
        rows: Claimed and measured numbers.
        plot: The same, to be seen.
    """

    key: str
    title: str
    text: str
    rows: tuple[Row, ...]
    plot: Plot


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """Outcome of `cel_lens.theory.verify`.

    Attributes:
        setting: Targets, step size, scale and heads.
        seeds: Number of initialisations behind the main runs.
        seed: Seed of all draws.
        quick: Whether the short version was run.
        statements: Statements in reading order.
    """

    setting: Setting
    seeds: int
    seed: int
    quick: bool
    statements: tuple[Statement, ...]

    @property
    def rows(self) -> tuple[Row, ...]:
        """All rows in reading order."""
        return tuple(row for statement in self.statements for row in statement.rows)

    @property
    def holds(self) -> bool:
        """Whether no row is "not confirmed"."""
        return all(row.verdict is not Verdict.NOT_CONFIRMED for row in self.rows)

    def count(self, verdict: Verdict) -> int:
        """Number of rows with a verdict."""
        return sum(row.verdict is verdict for row in self.rows)

    def to_frame(self) -> pd.DataFrame:
        """One line per row: statement, numbers, interval, accepted range, verdict and note."""
        import pandas as pd

        nothing = Interval(math.nan, math.nan)
        lines = [
            {
                "statement": statement.key,
                "claim": row.claim,
                "text": row.statement,
                "claimed": row.claimed,
                "measured": row.measured,
                "low": (row.interval or nothing).low,
                "high": (row.interval or nothing).high,
                "accepted_low": row.accepted.low,
                "accepted_high": row.accepted.high,
                "verdict": row.verdict.value,
                "note": row.note,
            }
            for statement in self.statements
            for row in statement.rows
        ]
        return pd.DataFrame(lines).set_index("claim")


def within(claimed: float, tolerance: float) -> Interval:
    """Accepted range of a claimed number and a tolerance on both sides."""
    return Interval(claimed - tolerance, claimed + tolerance)


def share_of(seen: BoolArray, note: str = "", *, confidence: float = 0.95) -> Measured:
    """Measured share of an event with its Wilson interval; NaN where nothing was observed.

    Args:
        seen: Whether the event happened, any shape.
        note: How it was measured.
        confidence: Of the interval.
    """
    if seen.size == 0:
        return Measured(math.nan, None, note)
    return Measured(float(seen.mean()), wilson(int(seen.sum()), seen.size, confidence=confidence), note)


def median_of(values: FloatArray, note: str = "") -> Measured:
    """Measured median with its interval by order statistics; NaN where nothing was observed.

    Args:
        values: Sample, any shape.
        note: How it was measured.
    """
    if values.size == 0:
        return Measured(math.nan, None, note)
    return Measured(float(np.median(values)), median_interval(values), note)


def judge(claim: Claim, measured: Measured, setting: Setting) -> Row:
    """Build a row whose verdict follows from the measurement and the assumptions.

    Args:
        claim: The claim.
        measured: The measurement.
        setting: Setting of the run, whose violated assumptions are looked up.

    Returns:
        The row; a violated assumption is named in its note in place of a judgement.
    """
    violated = [assumption.value for assumption in setting.violated() if assumption in claim.needs]
    if violated:
        note = "; ".join([f"needs: {', '.join(violated)}", *([measured.note] if measured.note else [])])
        return _row(claim, measured, Verdict.OUTSIDE, note)
    holds = claim.accepted.holds(measured.value)
    return _row(claim, measured, Verdict.CONFIRMED if holds else Verdict.NOT_CONFIRMED, measured.note)


def observe(claim: Claim, measured: Measured) -> Row:
    """Build a row of an experiment: what is seen next to what the theorem would say where it holds.

    Args:
        claim: What the theorem says; its accepted range is ignored.
        measured: The measurement, whose note says why the theorem does not apply.

    Returns:
        A row whose verdict is always `Verdict.OUTSIDE`.
    """
    return _row(claim._replace(accepted=_ANYTHING), measured, Verdict.OUTSIDE, measured.note)


def _row(claim: Claim, measured: Measured, verdict: Verdict, note: str) -> Row:
    return Row(
        claim=claim.key,
        statement=claim.statement,
        claimed=float(claim.value),
        accepted=claim.accepted,
        measured=float(measured.value),
        interval=measured.interval,
        verdict=verdict,
        note=note,
    )


def _number(value: float) -> str:
    if math.isnan(value):
        return "–"
    if value == 0:
        return "0"
    return f"{value:.1e}" if abs(value) < 1e-3 else f"{value:.5g}"
