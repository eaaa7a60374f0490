"""Colours and the layout that every plot shares.

Plots are transparent and take their text and grid colours from one of two palettes; the report swaps
them when the reader's system changes between light and dark. Colours that mean something (helped, harmed)
keep at least a contrast of 3 on both backgrounds, and differ in blue and orange, which readers with any
common colour-vision deficiency tell apart.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["DARK", "HARM", "HELP", "LIGHT", "NEUTRAL", "Palette", "base_layout", "theme_json"]

HELP = "#2f7ebc"
"""Removal helped: rescued examples, positive gains."""
HARM = "#c2681a"
"""Removal harmed: damaged examples, negative gains."""
NEUTRAL = "#828a95"
"""Neither: what was not screened, lines at zero, figures that are not to be quoted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Palette:
    """Colours that depend on the background.

    Attributes:
        text: Titles, tick labels and legends.
        grid: Grid lines.
        surface: Background of hover labels.
        scale: Diverging colours from the most harmful over zero to the most beneficial.
    """

    text: str
    grid: str
    surface: str
    scale: tuple[str, ...]

    @property
    def stops(self) -> list[list[Any]]:
        """The diverging colours as plotly wants them: pairs of position (0 to 1) and colour."""
        return [[index / (len(self.scale) - 1), colour] for index, colour in enumerate(self.scale)]


LIGHT = Palette(
    text="#23272e",
    grid="#e3e5e8",
    surface="#ffffff",
    scale=("#7f3b08", "#c2681a", "#f1b56d", "#f3f2ef", "#8fc3e4", "#2f7ebc", "#0a3d74"),
)
DARK = Palette(
    text="#dfe3e8",
    grid="#363c45",
    surface="#20252c",
    scale=("#ffc27a", "#d97f2b", "#85501f", "#2a2f37", "#275b86", "#3f94d6", "#a5d8ff"),
)


def base_layout(*, height: int, palette: Palette = LIGHT) -> dict[str, Any]:
    """The layout all plots start from, as plotly's keyword arguments.

    Args:
        height: Height of the plot in pixels; the width follows its container.
        palette: Colours of text and grid.
    """
    axis = {
        "gridcolor": palette.grid,
        "zeroline": False,
        "fixedrange": True,
        "automargin": True,
        "title": {"standoff": 8},
    }
    return {
        "height": height,
        "template": "none",
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {
            "family": "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif",
            "size": 12,
            "color": palette.text,
        },
        "margin": {"l": 48, "r": 12, "t": 40, "b": 48},
        "dragmode": False,
        "hoverlabel": {
            "bgcolor": palette.surface,
            "bordercolor": NEUTRAL,
            "font": {"color": palette.text, "size": 13},
            "align": "left",
        },
        "legend": {
            "orientation": "h",
            "x": 0,
            "xanchor": "left",
            "y": 1,
            "yanchor": "bottom",
            "itemclick": False,
            "itemdoubleclick": False,
        },
        "xaxis": dict(axis),
        "yaxis": dict(axis),
    }


def theme_json() -> dict[str, dict[str, Any]]:
    """Both palettes, as the report's script reads them."""
    return {
        name: {**asdict(palette), "scale": palette.stops}
        for name, palette in (("light", LIGHT), ("dark", DARK))
    }
