"""Stage 2: all subsets of the best single heads."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import NamedTuple

from cel_lens.heads import Head, HeadSet
from cel_lens.results import HeadGain, SearchConfig, SubsetBound, SubsetGain
from cel_lens.search.elimination import rank_by_elimination
from cel_lens.search.ranking import rank_key
from cel_lens.search.run import SearchRun

__all__ = ["JointSearch", "search_subsets", "subsets_of"]


def subsets_of(pool: Sequence[Head], max_heads: int) -> list[HeadSet]:
    """All non-empty subsets of at most ``max_heads`` heads, smaller ones first, then by coordinates."""
    ordered = sorted(pool)
    return [HeadSet(chosen) for size in range(1, max_heads + 1) for chosen in combinations(ordered, size)]


class JointSearch(NamedTuple):
    """What the joint search found.

    Attributes:
        gains: Subsets measured on the whole panel, best first; the finalists are the first of them.
        bounds: Subsets stopped before, because they could no longer be among the finalists.
    """

    gains: tuple[SubsetGain, ...]
    bounds: tuple[SubsetBound, ...] = ()


def search_subsets(run: SearchRun, screening: Sequence[HeadGain], config: SearchConfig) -> JointSearch:
    """Remove every subset of the pool on discovery.

    Args:
        run: The running search.
        screening: Single heads, best first.
        config: Says how large pool and subsets are, how many finalists there are, and whether subsets that
            cannot be among them are stopped.
    """
    pool = [one.head for one in screening[: config.pool_size]]
    subsets = subsets_of(pool, config.max_heads)
    stopped: tuple[HeadSet, ...] = ()
    if config.screening == "eliminate":
        ranking = rank_by_elimination(run, subsets, keep=config.n_finalists, stage="joint search")
        subsets, stopped = list(ranking.finished), ranking.stopped
    else:
        run.measure("discovery", subsets, "joint search")
    gains = sorted(
        (_gain(run, one) for one in subsets), key=lambda one: rank_key(one.heads, one.rescued, one.damaged)
    )
    return JointSearch(tuple(gains), tuple(_bound(run, one) for one in stopped))


def _gain(run: SearchRun, heads: HeadSet) -> SubsetGain:
    rescued, damaged = run.counts("discovery", heads)
    return SubsetGain(heads=heads, n=len(run.panels.discovery), rescued=rescued, damaged=damaged)


def _bound(run: SearchRun, heads: HeadSet) -> SubsetBound:
    counts = run.part_counts(heads)
    return SubsetBound(
        heads=heads,
        n=len(run.panels.discovery),
        measured=counts.n,
        rescued=counts.rescued,
        damaged=counts.damaged,
    )
