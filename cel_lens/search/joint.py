"""Stage 2: all subsets of the best single heads."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from cel_lens.heads import Head, HeadSet
from cel_lens.results import HeadGain, SubsetGain
from cel_lens.search.ranking import rank_key
from cel_lens.search.run import SearchRun

__all__ = ["search_subsets", "subsets_of"]


def subsets_of(pool: Sequence[Head], max_heads: int) -> list[HeadSet]:
    """All non-empty subsets of at most ``max_heads`` heads, smaller ones first, then by coordinates."""
    ordered = sorted(pool)
    return [HeadSet(chosen) for size in range(1, max_heads + 1) for chosen in combinations(ordered, size)]


def search_subsets(
    run: SearchRun, screening: Sequence[HeadGain], *, pool_size: int, max_heads: int
) -> tuple[SubsetGain, ...]:
    """Remove every subset of the pool on discovery.

    Args:
        run: The running search.
        screening: Single heads, best first.
        pool_size: How many of them form the pool.
        max_heads: Largest size of a subset.

    Returns:
        One gain for each subset, best first.
    """
    subsets = subsets_of([one.head for one in screening[:pool_size]], max_heads)
    run.measure("discovery", subsets, "joint search")
    gains = []
    for heads in subsets:
        rescued, damaged = run.counts("discovery", heads)
        gains.append(SubsetGain(heads=heads, n=len(run.panels.discovery), rescued=rescued, damaged=damaged))
    return tuple(sorted(gains, key=lambda one: rank_key(one.heads, one.rescued, one.damaged)))
