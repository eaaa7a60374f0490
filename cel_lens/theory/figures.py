"""Drawing of a statement's plot. Colours work on light and dark pages; text follows the page's style."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
    measured = 0
    for series in plot.series:
        claim = series.style in ("claim", "limit")
        figure.add_trace(_trace(series, _QUIET if claim else _COLOURS[measured % len(_COLOURS)], measured))
        measured += not claim
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
        margin={"l": 8, "r": 8, "t": 8, "b": 8},
        height=340,
        legend={"orientation": "h", "y": -0.28, "yanchor": "top", "x": 0, "itemsizing": "constant"},
        bargap=0.3,
        hovermode="closest",
    )
    figure.update_xaxes(
        title={"text": plot.x_label, "standoff": 10}, **axis, **_scale(plot.log_x, _numbers(plot))
    )
    figure.update_yaxes(title={"text": plot.y_label, "standoff": 8}, **axis, **_scale(plot.log_y, ()))
    if plot.log_y:
        figure.update_yaxes(exponentformat="power", dtick=_decades(plot))
    return figure


def _numbers(plot: Plot) -> tuple[float, ...]:
    return tuple(sorted({x for series in plot.series for x in series.x if not isinstance(x, str)}))


def _scale(log: bool, ticks: tuple[float, ...]) -> dict[str, object]:
    """Axis type; a logarithmic axis with few positions is labelled at exactly those."""
    if not log:
        return {}
    if 0 < len(ticks) <= 8:
        return {"type": "log", "tickvals": list(ticks), "ticktext": [f"{tick:g}" for tick in ticks]}
    return {"type": "log"}


def _decades(plot: Plot) -> int:
    """Decades between labels, so that at most about seven appear."""
    import math

    heights = [y for series in plot.series for y in series.y if y > 0]
    span = math.log10(max(heights) / min(heights)) if heights else 1.0
    return max(1, math.ceil(span / 7))


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
        return go.Bar(**common, marker={"color": colour, "opacity": 0.75}, error_y=errors)
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
