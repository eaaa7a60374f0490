"""Figures as text: one way to write points, shares and p-values in every view."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["UNIT", "layer_ranges", "p_value_text", "percent", "plural", "points", "points_range"]

UNIT = "percentage points"
"""Unit of every gain that is drawn or tabulated."""


def points(gain: float) -> str:
    """A gain (a fraction from -1 to 1) in percentage points with its sign, ``"+4.5"``."""
    text = f"{100 * gain:+.1f}"
    return "0.0" if float(text) == 0.0 else text.replace("-", "−")


def points_range(low: float, high: float) -> str:
    """An interval on a gain in percentage points, ``"+0.4 to +8.9"``."""
    return f"{points(low)} to {points(high)}"


def percent(share: float) -> str:
    """A share from 0 to 1 in percent, ``"42.0%"``."""
    return f"{100 * share:.1f}%"


def p_value_text(p_value: float) -> str:
    """A p-value with two significant digits, and ``"< 0.0001"`` below that."""
    if p_value < 0.0001:
        return "<\u00a00.0001"
    return "1" if p_value == 1.0 else f"{p_value:.2g}"


def plural(count: int, noun: str) -> str:
    """A count with its noun, ``"1 head"`` or ``"1,024 heads"``."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def layer_ranges(layers: Iterable[int]) -> str:
    """Layers in short, ``"0–5, 9"`` for 0 to 5 and 9; empty for none."""
    runs: list[list[int]] = []
    for layer in sorted(set(layers)):
        if runs and layer == runs[-1][1] + 1:
            runs[-1][1] = layer
        else:
            runs.append([layer, layer])
    return ", ".join(str(first) if first == last else f"{first}–{last}" for first, last in runs)
