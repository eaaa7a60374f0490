"""The best head sets of the joint search."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from cel_lens.heads import HeadSet
from cel_lens.results import OPTIMISTIC, BeneficialHeads
from cel_lens.viz.theme import HARM, HELP, base_layout
from cel_lens.viz.wording import UNIT, plural, points

if TYPE_CHECKING:
    import plotly.graph_objects as go

__all__ = ["BestSubsets", "SubsetRow", "best_subsets", "draw_subsets"]

_SMALL_NUMBERS_OUTSIDE = 11


class SubsetRow(NamedTuple):
    """One head set.

    Attributes:
        rank: Place among all sets that were tried, from 1.
        heads: The removed heads.
        rescued: Discovery examples that became right.
        damaged: Discovery examples that became wrong.
        gain: Change of accuracy on discovery, a fraction from -1 to 1.
        chosen: Whether it is the set that was measured on held-out.
        finalist: Whether it was among the sets written down before held-out was read.
    """

    rank: int
    heads: HeadSet
    rescued: int
    damaged: int
    gain: float
    chosen: bool
    finalist: bool


class BestSubsets(NamedTuple):
    """The best head sets and how many there were.

    Attributes:
        rows: The best sets, best first.
        n_tried: Number of sets in the joint search, single heads included.
        n_examples: Discovery examples.
    """

    rows: tuple[SubsetRow, ...]
    n_tried: int
    n_examples: int

    @property
    def summary(self) -> str:
        """The plot in words, for readers who do not see it."""
        best = self.rows[0]
        return (
            f"Examples rescued and damaged by the {len(self.rows)} best of {plural(self.n_tried, 'head set')} on "
            f"{self.n_examples} discovery examples. First: {best.heads} with {best.rescued} rescued, "
            f"{best.damaged} damaged, gain {points(best.gain)} {UNIT} ({OPTIMISTIC})."
        )


def best_subsets(result: BeneficialHeads, *, most: int = 15) -> BestSubsets:
    """The first head sets of the joint search.

    Args:
        result: A finished search.
        most: Number of sets to show at most.
    """
    finalists = set(result.finalists)
    return BestSubsets(
        rows=tuple(
            SubsetRow(
                rank=rank,
                heads=one.heads,
                rescued=one.rescued,
                damaged=one.damaged,
                gain=one.gain,
                chosen=one.heads == result.heads,
                finalist=one.heads in finalists,
            )
            for rank, one in enumerate(result.subsets[:most], start=1)
        ),
        n_tried=result.n_subsets,
        n_examples=result.discovery.n,
    )


def draw_subsets(info: BestSubsets) -> go.Figure:
    """Draw rescued examples to the right of zero and damaged ones to the left, best set on top."""
    import plotly.graph_objects as go

    figure = go.Figure(layout=base_layout(height=26 * len(info.rows) + 134))
    labels = [f"<b>★ {row.heads}</b>" if row.chosen else str(row.heads) for row in info.rows]
    hovers = [
        f"<b>{row.heads}</b><br>gain {points(row.gain)} {UNIT}"
        f"<br>{row.rescued} rescued, {row.damaged} damaged of {info.n_examples}<br><i>{OPTIMISTIC}</i>"
        for row in info.rows
    ]
    for name, counts, sign, colour in (
        ("damaged", [row.damaged for row in info.rows], -1, HARM),
        ("rescued", [row.rescued for row in info.rows], 1, HELP),
    ):
        figure.add_trace(
            go.Bar(
                orientation="h",
                x=[sign * count for count in counts],
                y=list(range(len(counts))),
                text=[str(count) if count or sign > 0 else "" for count in counts],
                textposition="outside",
                textfont={"size": _SMALL_NUMBERS_OUTSIDE},
                cliponaxis=False,
                marker={"color": colour},
                hovertext=hovers,
                hovertemplate="%{hovertext}<extra></extra>",
                name=name,
            )
        )
    widest = max([1, *(row.rescued for row in info.rows), *(row.damaged for row in info.rows)])
    figure.update_layout(barmode="relative", bargap=0.3, margin={"l": 8, "r": 12, "t": 36, "b": 66})
    figure.update_xaxes(
        title_text=f"Examples of {info.n_examples}",
        range=[-1.18 * max([1, *(row.damaged for row in info.rows)]) - 0.16 * widest, 1.18 * widest],
        tickvals=_ticks(widest),
        ticktext=[str(abs(tick)) for tick in _ticks(widest)],
        zeroline=True,
        zerolinewidth=1,
    )
    figure.add_annotation(
        text=OPTIMISTIC,
        showarrow=False,
        font={"size": 11},
        xref="paper",
        yref="paper",
        x=1,
        y=0,
        xanchor="right",
        yanchor="top",
        yshift=-46,
    )
    figure.update_yaxes(
        tickvals=list(range(len(labels))), ticktext=labels, autorange="reversed", showgrid=False
    )
    return figure


def _ticks(widest: int) -> list[int]:
    """Whole numbers on both sides of zero, at most five on each."""
    step = next((step for step in (1, 2, 5, 10, 20, 50, 100, 200, 500) if widest / step <= 5), 1000)
    most = widest // step
    return [step * tick for tick in range(-most, most + 1)]
