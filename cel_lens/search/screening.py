"""Stage 1: every head alone."""

from __future__ import annotations

from typing import NamedTuple

from cel_lens.heads import Head, HeadSet
from cel_lens.results import AttributionScreen, HeadBound, HeadGain, SearchConfig
from cel_lens.search.attribution import Selection, judge_selection, select_heads
from cel_lens.search.elimination import rank_by_elimination
from cel_lens.search.ranking import rank_key
from cel_lens.search.run import SearchRun

__all__ = ["Screening", "screen"]


class Screening(NamedTuple):
    """What the screening found.

    Attributes:
        gains: Heads measured on the whole panel, best first.
        bounds: Heads stopped before, because they could no longer reach the pool.
        attribution: Which heads were measured, if that was decided by attribution.
    """

    gains: tuple[HeadGain, ...]
    bounds: tuple[HeadBound, ...] = ()
    attribution: AttributionScreen | None = None


def screen(run: SearchRun, heads: tuple[Head, ...], config: SearchConfig) -> Screening:
    """Remove every head alone on discovery, or those that attribution chooses.

    Args:
        run: The running search.
        heads: Heads to screen.
        config: Says how to screen and how large the pool is.
    """
    candidates = [HeadSet((head,)) for head in heads]
    stopped: tuple[HeadSet, ...] = ()
    selection: Selection | None = None
    if config.screening == "eliminate":
        run.measure("discovery", [], "intact model")
        run.repeat_intact("discovery")
        ranking = rank_by_elimination(run, candidates, keep=config.pool_size, stage="screening")
        candidates, stopped = list(ranking.finished), ranking.stopped
    elif config.screening == "attribution":
        run.measure("discovery", [], "intact model")
        run.repeat_intact("discovery")
        selection = select_heads(run, heads, config)
        candidates = [HeadSet((head,)) for head in selection.measured]
        run.measure("discovery", candidates, "screening")
    else:
        run.measure("discovery", candidates, "screening")
        run.repeat_intact("discovery")
    gains = sorted(
        (_gain(run, one) for one in candidates), key=lambda one: rank_key(one.heads, one.rescued, one.damaged)
    )
    pool = [one.head for one in gains[: config.pool_size]]
    return Screening(
        tuple(gains),
        tuple(_bound(run, one) for one in stopped),
        None if selection is None else judge_selection(selection, pool),
    )


def _gain(run: SearchRun, heads: HeadSet) -> HeadGain:
    rescued, damaged = run.counts("discovery", heads)
    return HeadGain(head=heads.heads[0], n=len(run.panels.discovery), rescued=rescued, damaged=damaged)


def _bound(run: SearchRun, heads: HeadSet) -> HeadBound:
    counts = run.part_counts(heads)
    return HeadBound(
        head=heads.heads[0],
        n=len(run.panels.discovery),
        measured=counts.n,
        rescued=counts.rescued,
        damaged=counts.damaged,
    )
