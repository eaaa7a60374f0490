"""The gain of the chosen heads on both panels, with its interval."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from cel_lens.results import BeneficialHeads, GainEstimate
from cel_lens.viz.theme import HARM, HELP, NEUTRAL, base_layout
from cel_lens.viz.wording import UNIT, p_value_text, percent, points, points_range

if TYPE_CHECKING:
    import plotly.graph_objects as go

__all__ = ["PanelGain", "PanelGains", "draw_panel_gains", "panel_gains"]


class PanelGain(NamedTuple):
    """One row of the plot.

    Attributes:
        label: Name of the panel.
        note: What has to be said beside every figure of it; empty on held-out.
        estimate: The gain with its interval.
    """

    label: str
    note: str
    estimate: GainEstimate


class PanelGains(NamedTuple):
    """What the plot of both panels shows.

    Attributes:
        rows: Held-out first, then discovery.
    """

    rows: tuple[PanelGain, ...]

    @property
    def summary(self) -> str:
        """The plot in words, for readers who do not see it."""
        parts = []
        for row in self.rows:
            one = row.estimate
            parts.append(
                f"{row.label}: {points(one.gain)} {UNIT}, {100 * one.confidence:.0f}% interval "
                f"{points_range(one.ci_low, one.ci_high)}, {one.n} examples"
                + (f" ({row.note})" if row.note else "")
            )
        return "Gain with its interval. " + ". ".join(parts) + "."


def panel_gains(result: BeneficialHeads) -> PanelGains:
    """Put the held-out gain, which is the one to quote, beside the discovery gain."""
    return PanelGains(
        rows=(
            PanelGain("Held-out", result.heldout.note, result.heldout),
            PanelGain("Discovery", result.discovery.note, result.discovery),
        )
    )


def draw_panel_gains(info: PanelGains) -> go.Figure:
    """Draw a point and an interval for each panel; the line at zero is no change."""
    import plotly.graph_objects as go

    figure = go.Figure(layout=base_layout(height=84 * len(info.rows) + 64))
    for place, row in enumerate(info.rows):
        one = row.estimate
        quotable = not row.note
        colour = (HELP if one.gain >= 0 else HARM) if quotable else NEUTRAL
        figure.add_trace(
            go.Scatter(
                x=[100 * one.gain],
                y=[place],
                mode="markers",
                marker={
                    "size": 13,
                    "color": colour,
                    "symbol": "circle" if quotable else "circle-open",
                    "line": {"width": 2, "color": colour},
                },
                error_x={
                    "type": "data",
                    "symmetric": False,
                    "array": [100 * (one.ci_high - one.gain)],
                    "arrayminus": [100 * (one.gain - one.ci_low)],
                    "color": colour,
                    "thickness": 3 if quotable else 2,
                    "width": 7,
                },
                text=[_hover(row)],
                hovertemplate="%{text}<extra></extra>",
                name=row.label,
                showlegend=False,
            )
        )
        figure.add_annotation(
            x=0,
            xref="paper",
            xanchor="left",
            y=place - 0.36,
            showarrow=False,
            align="left",
            text=f"<b>{row.label}</b>" + (f" · {row.note}" if row.note else " · the figure to quote"),
        )
        figure.add_shape(
            type="line",
            x0=0,
            x1=0,
            y0=place - 0.2,
            y1=place + 0.3,
            layer="below",
            line={"color": NEUTRAL, "width": 2, "dash": "dot"},
        )
    figure.update_layout(margin={"l": 8, "r": 12, "t": 8, "b": 48})
    figure.update_xaxes(title_text=f"Gain ({UNIT})", range=_range(info), nticks=8)
    figure.update_yaxes(visible=False, range=[len(info.rows) - 0.6, -0.65])
    return figure


def _range(info: PanelGains) -> list[float]:
    """From the lowest to the highest end of an interval, zero included, with some room."""
    ends = [0.0]
    for row in info.rows:
        ends += [100 * row.estimate.ci_low, 100 * row.estimate.ci_high]
    room = 0.06 * (max(ends) - min(ends))
    return [min(ends) - room, max(ends) + room]


def _hover(row: PanelGain) -> str:
    one = row.estimate
    note = f"<br><i>{row.note}</i>" if row.note else ""
    return (
        f"<b>{row.label}</b>, {one.n} examples"
        f"<br>{percent(one.intact_accuracy)} intact, {percent(one.ablated_accuracy)} ablated"
        f"<br>gain {points(one.gain)} {UNIT}"
        f"<br>{100 * one.confidence:.0f}% interval {points_range(one.ci_low, one.ci_high)}"
        f"<br>exact McNemar p = {p_value_text(one.p_value)}{note}"
    )
