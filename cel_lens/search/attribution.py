"""Choosing which heads to measure by attribution, with a random check of the others."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import NamedTuple

import numpy as np

from cel_lens.heads import Head
from cel_lens.results import AttributionScreen, HeadPrediction, SearchConfig
from cel_lens.search.run import SearchRun

__all__ = ["Selection", "judge_selection", "select_heads"]

_CONFIDENCE = 0.95


class Selection(NamedTuple):
    """Which heads are measured.

    Attributes:
        predictions: Every head, best prediction first.
        n_chosen: How many of the first are measured.
        sample: Heads of the rest that are measured to see what was missed.
        n_without_margin: Examples for which nothing can be predicted.
    """

    predictions: tuple[HeadPrediction, ...]
    n_chosen: int
    sample: tuple[Head, ...]
    n_without_margin: int

    @property
    def measured(self) -> tuple[Head, ...]:
        """All heads to measure, ascending."""
        return tuple(sorted([*(one.head for one in self.predictions[: self.n_chosen]), *self.sample]))


def select_heads(run: SearchRun, heads: Sequence[Head], config: SearchConfig) -> Selection:
    """Predict what removing each head does, and choose which to measure.

    Args:
        run: The running search; the intact model is measured on discovery.
        heads: Heads to screen.
        config: Says how many are chosen, and how many of the others are drawn.
    """
    predicted = run.predictions()
    wanted = set(heads)
    predictions = tuple(one for one in predicted.heads if one.head in wanted)
    top = config.attribution_top
    n_chosen = min(
        len(predictions), max(-(-len(predictions) // 4), 4 * config.pool_size) if top is None else top
    )
    rest = [one.head for one in predictions[n_chosen:]]
    n_drawn = min(len(rest), ceil(len(rest) * config.attribution_sample))
    drawn = np.random.default_rng([abs(config.seed), config.seed < 0]).choice(
        len(rest), size=n_drawn, replace=False
    )
    sample = tuple(sorted(rest[place] for place in drawn))
    return Selection(predictions, n_chosen, sample, predicted.n_without_margin)


def judge_selection(selection: Selection, pool: Sequence[Head]) -> AttributionScreen:
    """Say how much of the pool the random sample of the others held.

    Args:
        selection: What was measured.
        pool: The best measured heads.
    """
    hits = tuple(head for head in selection.sample if head in set(pool))
    n_others = len(selection.predictions) - selection.n_chosen
    return AttributionScreen(
        predictions=selection.predictions,
        n_chosen=selection.n_chosen,
        sample=selection.sample,
        sample_in_pool=hits,
        pool_size=len(pool),
        missed_at_most=_most_good(n_others, len(selection.sample), len(hits)) - len(hits),
        n_without_margin=selection.n_without_margin,
    )


def _most_good(n_others: int, n_drawn: int, n_hits: int) -> int:
    """The largest number of good heads among the others that so few hits do not speak against."""
    if n_drawn == n_others:
        return n_hits
    from scipy.stats import hypergeom

    counts = np.arange(n_hits, n_others - (n_drawn - n_hits) + 1)
    likely = hypergeom.cdf(n_hits, n_others, counts, n_drawn) > 1 - _CONFIDENCE
    return int(counts[likely].max())
