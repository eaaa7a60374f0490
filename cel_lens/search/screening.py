"""Stage 1: every head alone."""

from __future__ import annotations

from typing import NamedTuple

from cel_lens.heads import Head, HeadSet
from cel_lens.results import HeadBound, HeadGain, SearchConfig
from cel_lens.search.elimination import rank_by_elimination
from cel_lens.search.ranking import rank_key
from cel_lens.search.run import SearchRun

__all__ = ["Screening", "screen"]


class Screening(NamedTuple):
    """What the screening found.

    Attributes:
        gains: Heads measured on the whole panel, best first.
        bounds: Heads stopped before, because they could no longer reach the pool.
    """

    gains: tuple[HeadGain, ...]
    bounds: tuple[HeadBound, ...] = ()


def screen(run: SearchRun, heads: tuple[Head, ...], config: SearchConfig) -> Screening:
    """Remove every head alone on discovery.

    Args:
        run: The running search.
        heads: Heads to screen.
        config: Says how to screen and how large the pool is.
    """
    candidates = [HeadSet((head,)) for head in heads]
    stopped: tuple[HeadSet, ...] = ()
    if config.screening == "eliminate":
        run.measure("discovery", [], "intact model")
        run.repeat_intact("discovery")
        ranking = rank_by_elimination(run, candidates, keep=config.pool_size, stage="screening")
        candidates, stopped = list(ranking.finished), ranking.stopped
    else:
        run.measure("discovery", candidates, "screening")
        run.repeat_intact("discovery")
    gains = sorted(
        (_gain(run, one) for one in candidates), key=lambda one: rank_key(one.heads, one.rescued, one.damaged)
    )
    return Screening(tuple(gains), tuple(_bound(run, one) for one in stopped))


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
