"""The gain of every screened head, layer by head."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from cel_lens.heads import Head
from cel_lens.results import OPTIMISTIC, BeneficialHeads, HeadBound, HeadGain
from cel_lens.viz.theme import LIGHT, NEUTRAL, base_layout
from cel_lens.viz.wording import UNIT, layer_ranges, plural, points

if TYPE_CHECKING:
    import plotly.graph_objects as go

__all__ = ["GainMap", "draw_gain_map", "gain_map", "pool_heads"]

_ROW_PIXELS = (9, 17)
_TALLEST = 520


class GainMap(NamedTuple):
    """What the heat map of screening gains shows.

    Attributes:
        cells: The screened heads by layer, then index; ``None`` where a head was not screened,
            shape ``[n_layers][n_heads]``.
        chosen: The heads of the chosen set.
        pool: The heads that entered the joint search, the chosen ones left out.
        inactive: Screened heads whose output was zero everywhere.
        limit: The colours run from ``-limit`` to ``+limit``, a fraction of 1, above 0.
        n_beyond: Screened heads whose gain lies outside the colours.
        eliminated: Heads stopped before the end of the panel, of which only a bound is known.
    """

    cells: tuple[tuple[HeadGain | None, ...], ...]
    chosen: tuple[Head, ...]
    pool: tuple[Head, ...]
    inactive: tuple[Head, ...]
    limit: float
    n_beyond: int
    eliminated: tuple[HeadBound, ...] = ()

    @property
    def n_layers(self) -> int:
        """Layers of the model."""
        return len(self.cells)

    @property
    def n_heads(self) -> int:
        """Query heads in each layer."""
        return len(self.cells[0])

    @property
    def screened(self) -> tuple[HeadGain, ...]:
        """The screened heads, by layer, then index."""
        return tuple(cell for row in self.cells for cell in row if cell is not None)

    @property
    def unscreened(self) -> tuple[Head, ...]:
        """The heads that were not screened at all, by layer, then index."""
        stopped = {one.head for one in self.eliminated}
        return tuple(
            Head(layer, index)
            for layer, row in enumerate(self.cells)
            for index, cell in enumerate(row)
            if cell is None and Head(layer, index) not in stopped
        )

    @property
    def unscreened_layers(self) -> tuple[int, ...]:
        """Layers of which no head was screened."""
        found = [head.layer for head in self.unscreened]
        return tuple(layer for layer in range(self.n_layers) if found.count(layer) == self.n_heads)

    @property
    def coverage(self) -> str:
        """In words, how much of the model was screened."""
        total = self.n_layers * self.n_heads
        if not self.unscreened:
            text = f"All {total} heads of the model were screened"
        else:
            text = f"Only {len(self.screened) + len(self.eliminated)} of {total} heads were screened"
        if self.unscreened_layers:
            text += f"; layers {layer_ranges(self.unscreened_layers)} were not looked at"
        if self.eliminated:
            text += (
                f"; {plural(len(self.eliminated), 'head')} could no longer reach the pool and "
                f"{'was' if len(self.eliminated) == 1 else 'were'} stopped early, with a bound in place of a gain"
            )
        return text + "."

    @property
    def summary(self) -> str:
        """The map in one sentence, for readers who do not see it."""
        gains = [cell.gain for cell in self.screened]
        better, worse = sum(gain > 0 for gain in gains), sum(gain < 0 for gain in gains)
        best = max(self.screened, key=lambda cell: cell.gain)
        return (
            f"Heat map of discovery gains, {self.n_layers} layers by {self.n_heads} heads. Removing one head "
            f"raised accuracy for {better} heads, lowered it for {worse} and left it equal for "
            f"{len(gains) - better - worse}; the best is {best.head} with {points(best.gain)} {UNIT} "
            f"({OPTIMISTIC})."
        )


def pool_heads(result: BeneficialHeads) -> tuple[Head, ...]:
    """The heads that entered the joint search, sorted by layer, then index."""
    return tuple(sorted(one.heads.heads[0] for one in result.subsets if len(one.heads) == 1))


def gain_map(result: BeneficialHeads) -> GainMap:
    """Arrange the screening gains by layer and head.

    A single head that the model cannot do without would leave all others pale, so the colours reach to
    the best gain or to the 95th percentile of the absolute gains, whichever is larger.
    """
    by_head = {one.head: one for one in result.screening}
    provenance = result.provenance
    sizes = np.abs([one.gain for one in result.screening])
    best = max(one.gain for one in result.screening)
    limit = float(max(best, np.quantile(sizes, 0.95), 1 / result.discovery.n))
    return GainMap(
        cells=tuple(
            tuple(by_head.get(Head(layer, index)) for index in range(provenance.n_heads))
            for layer in range(provenance.n_layers)
        ),
        chosen=result.heads.heads,
        pool=tuple(head for head in pool_heads(result) if head not in result.heads),
        inactive=tuple(Head.parse(name) for name in provenance.inactive),
        limit=limit,
        n_beyond=int((sizes > limit).sum()),
        eliminated=result.eliminated,
    )


def draw_gain_map(info: GainMap) -> go.Figure:
    """Draw the heat map: layers downwards, heads across, colour in percentage points."""
    import plotly.graph_objects as go

    rows = min(max(_TALLEST // info.n_layers, _ROW_PIXELS[0]), _ROW_PIXELS[1]) * info.n_layers
    figure = go.Figure(layout=base_layout(height=max(rows, 120) + 176))
    figure.add_trace(_heat_map(info))
    if info.unscreened:
        texts = [f"<b>{head}</b><br>not screened" for head in info.unscreened]
        figure.add_trace(_hatching(info.unscreened, texts, name="not screened", shape="/"))
    if info.eliminated:
        stopped = tuple(one.head for one in info.eliminated)
        texts = [_bound(one) for one in info.eliminated]
        figure.add_trace(_hatching(stopped, texts, name="stopped early", shape="."))
    for heads, name, symbol, size in (
        (info.pool, "in the pool", "circle", 7),
        (info.chosen, "chosen", "star", 13),
    ):
        if heads:
            figure.add_trace(_marks(heads, name, symbol=symbol, size=size))
    bound = 100 * info.limit
    figure.update_layout(
        barmode="overlay",
        bargap=0,
        margin={"l": 44, "r": 12, "t": 44, "b": 108},
        coloraxis={
            "colorscale": LIGHT.stops,
            "cmin": -bound,
            "cmax": bound,
            "colorbar": {
                "orientation": "h",
                "thickness": 12,
                "len": 1.0,
                "y": -48 / max(rows, 120),
                "yanchor": "top",
                "outlinewidth": 0,
                "title": {"text": f"Gain when removed ({UNIT})", "side": "bottom"},
                "nticks": 7,
            },
        },
    )
    figure.update_xaxes(
        title_text="Query head",
        showgrid=False,
        range=[-0.5, info.n_heads - 0.5],
        dtick=_step(info.n_heads, 12),
    )
    figure.update_yaxes(
        title_text="Layer", showgrid=False, range=[info.n_layers - 0.5, -0.5], dtick=_step(info.n_layers, 16)
    )
    return figure


def _step(count: int, most: int) -> int:
    """The smallest round distance that gives at most ``most`` tick labels."""
    return next((step for step in (1, 2, 4, 5, 10, 20, 50) if count / step <= most), 100)


def _heat_map(info: GainMap) -> go.Heatmap:
    import plotly.graph_objects as go

    return go.Heatmap(
        z=[[None if cell is None else 100 * cell.gain for cell in row] for row in info.cells],
        text=[[_hover(info, cell) for cell in row] for row in info.cells],
        hovertemplate="%{text}<extra></extra>",
        hoverongaps=False,
        coloraxis="coloraxis",
        xgap=1,
        ygap=1,
        showlegend=False,
    )


def _hover(info: GainMap, cell: HeadGain | None) -> str:
    if cell is None:
        return ""
    marks = [
        word
        for heads, word in (
            (info.chosen, "chosen"),
            (info.pool, "in the pool"),
            (info.inactive, "output zero everywhere"),
        )
        if cell.head in heads
    ]
    return (
        f"<b>{cell.head}</b>{''.join(f' · {word}' for word in marks)}"
        f"<br>gain {points(cell.gain)} {UNIT}"
        f"<br>{cell.rescued} rescued, {cell.damaged} damaged of {cell.n}"
        f"<br><i>{OPTIMISTIC}</i>"
    )


def _bound(one: HeadBound) -> str:
    return (
        f"<b>{one.head}</b><br>stopped early: gain at most {points(one.at_most)} {UNIT}"
        f"<br>{one.rescued} rescued, {one.damaged} damaged of {one.measured} measured examples ({one.n} in all)"
        f"<br><i>{OPTIMISTIC}</i>"
    )


def _hatching(heads: tuple[Head, ...], texts: list[str], *, name: str, shape: str) -> go.Bar:
    """Hatched bars in the cells of heads without a gain."""
    import plotly.graph_objects as go

    return go.Bar(
        orientation="h",
        x=[1] * len(heads),
        base=[head.index - 0.5 for head in heads],
        y=[head.layer for head in heads],
        width=1,
        marker={
            "color": "rgba(0,0,0,0)",
            "line": {"width": 0},
            "pattern": {
                "shape": shape,
                "fgcolor": NEUTRAL,
                "bgcolor": "rgba(0,0,0,0)",
                "size": 6,
                "solidity": 0.2,
            },
        },
        text=texts,
        textposition="none",
        hovertemplate="%{text}<extra></extra>",
        name=name,
        showlegend=True,
    )


def _marks(heads: tuple[Head, ...], name: str, *, symbol: str, size: int) -> Any:
    """White marks with a dark edge, which show on every cell colour."""
    import plotly.graph_objects as go

    return go.Scatter(
        x=[head.index for head in heads],
        y=[head.layer for head in heads],
        mode="markers",
        marker={
            "symbol": symbol,
            "size": size,
            "color": "#ffffff",
            "opacity": 1,
            "line": {"color": "#101418", "width": 1.3},
        },
        hoverinfo="skip",
        name=name,
        showlegend=True,
    )
