"""Drawing of a statement's plot. Colours work on light and dark pages; text follows the page's style."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal

from cel_lens.theory.verification import Plot, Series

if TYPE_CHECKING:
    import plotly.graph_objects as go

__all__ = ["draw"]

_COLOURS = ("#2f7ebc", "#c2681a", "#4b9b5f", "#9c6fb6", "#8a7a2e")
_QUIET = "#828a95"
_GRID = "rgba(130, 138, 149, 0.28)"
_SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross")


def draw(plot: Plot) -> go.Figure:
    """Draw a plot with plotly.

    Args:
        plot: Data and labels.

    Returns:
        A figure with a transparent background, to be placed in a page of any colour.
    """
    import plotly.graph_objects as go

    figure = go.Figure()
    measured, bars = 0, 0
    for series in plot.series:
        claim = series.style in ("claim", "limit")
        figure.add_trace(_trace(series, _QUIET if claim else _COLOURS[measured % len(_COLOURS)], measured))
        measured += not claim
        bars += series.style == "bars"
    if bars > 1:
        _place_points_on_bars(figure)
    _lay_out(figure, plot)
    return figure


def _lay_out(figure: go.Figure, plot: Plot) -> None:
    """Axes, legend below, and the vertical axis' label lying above it, where it is never cut off."""
    axis = {
        "gridcolor": _GRID,
        "linecolor": _QUIET,
        "zeroline": False,
        "automargin": True,
        "ticks": "outside",
    }
    figure.update_layout(
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        font={"family": "system-ui, sans-serif", "size": 13, "color": _QUIET},
        margin={"l": 8, "r": 12, "t": 34, "b": 96},
        height=380,
        legend={"orientation": "h", "yref": "container", "y": 0, "yanchor": "bottom", "x": 0},
        title={
            "text": plot.y_label,
            "font": {"size": 13},
            "x": 0,
            "xanchor": "left",
            "y": 1,
            "yanchor": "top",
            "pad": {"t": 6, "l": 6},
        },
        bargap=0.3,
        hovermode="closest",
    )
    figure.update_xaxes(
        title={"text": plot.x_label, "standoff": 10, "font": {"size": 13}}, **axis, **_scale(plot, "x")
    )
    figure.update_yaxes(**axis, **_scale(plot, "y"))


def _place_points_on_bars(figure: go.Figure) -> None:
    """Put the n-th set of points over the n-th set of bars."""
    figure.update_layout(scattermode="group")
    for kind in ("bar", "scatter"):
        for i, trace in enumerate(figure.select_traces({"type": kind})):
            trace.offsetgroup = str(i)


def _scale(plot: Plot, axis: Literal["x", "y"]) -> dict[str, object]:
    """Axis type; a logarithmic axis is labelled at its few positions, or at whole powers of ten."""
    if axis == "x" and any(isinstance(value, str) for series in plot.series for value in series.x):
        return {"type": "category"}
    if not (plot.log_x if axis == "x" else plot.log_y):
        return {}
    values = (value for series in plot.series for value in (series.x if axis == "x" else series.y))
    numbers = sorted({value for value in values if not isinstance(value, str) and value > 0})
    if axis == "x" and 0 < len(numbers) <= 8 and numbers[-1] < 1e3 * numbers[0]:
        return {"type": "log", "tickvals": numbers, "ticktext": [f"{number:g}" for number in numbers]}
    span = math.log10(numbers[-1] / numbers[0]) if numbers else 1.0
    small = bool(numbers) and numbers[0] < 1e-3
    style = {"exponentformat": "power"} if small else {}
    return {"type": "log", "dtick": max(1, math.ceil(span / 7)), **style}


def _trace(series: Series, colour: str, index: int) -> go.Bar | go.Scatter:
    import plotly.graph_objects as go

    errors = None
    if series.low and series.high:
        errors = {
            "type": "data",
            "symmetric": False,
            "array": [high - y for high, y in zip(series.high, series.y, strict=True)],
            "arrayminus": [y - low for low, y in zip(series.low, series.y, strict=True)],
            "thickness": 1.4,
            "width": 4,
        }
    common = {"name": series.name, "x": list(series.x), "y": list(series.y)}
    if series.style == "bars":
        return go.Bar(
            **common, marker={"color": colour, "opacity": 0.75, "line": {"width": 0}}, error_y=errors
        )
    if series.style in ("claim", "limit"):
        dash = "dash" if series.style == "claim" else "dot"
        return go.Scatter(**common, mode="lines", line={"color": colour, "dash": dash, "width": 1.8})
    symbol = _SYMBOLS[index % len(_SYMBOLS)]
    mode = "lines" if series.style == "line" else "markers"
    return go.Scatter(
        **common,
        mode=mode,
        line={"color": colour, "width": 2.2},
        marker={"color": colour, "size": 8 if len(series.x) <= 30 else 5, "symbol": symbol},
        error_y=errors,
    )
