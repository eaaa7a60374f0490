"""Stage 1: every head alone."""

from __future__ import annotations

from typing import NamedTuple

from cel_lens.heads import Head, HeadSet
from cel_lens.results import HeadBound, HeadGain, SearchConfig
from cel_lens.search.elimination import screen_by_elimination
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
    if config.screening == "eliminate":
        return Screening(*screen_by_elimination(run, heads, config.pool_size))
    run.measure("discovery", [HeadSet((head,)) for head in heads], "screening")
    run.repeat_intact("discovery")
    gains = [_gain(run, head) for head in heads]
    return Screening(tuple(sorted(gains, key=lambda one: rank_key(one.heads, one.rescued, one.damaged))))


def _gain(run: SearchRun, head: Head) -> HeadGain:
    rescued, damaged = run.counts("discovery", HeadSet((head,)))
    return HeadGain(head=head, n=len(run.panels.discovery), rescued=rescued, damaged=damaged)
