"""Screening that stops heads which can no longer reach the pool; the pool is the exhaustive one, exactly.

Examples that the intact model gets wrong come first. After them a head's gain can only fall, so its
gain so far bounds the final one. The heads with the best bounds are finished; every other head goes on
only while its bound could still put it before the last place of the pool.
"""

from __future__ import annotations

from collections.abc import Sequence

from cel_lens.heads import INTACT, Head, HeadSet
from cel_lens.results import HeadBound, HeadGain
from cel_lens.search.ranking import RankKey, rank_key
from cel_lens.search.run import SearchRun

__all__ = ["screen_by_elimination"]

_BLOCKS = 4
"""The examples that the intact model gets right are run in so many blocks."""


def screen_by_elimination(
    run: SearchRun, heads: Sequence[Head], pool_size: int
) -> tuple[tuple[HeadGain, ...], tuple[HeadBound, ...]]:
    """Find the pool that removing every head on every example would give.

    Args:
        run: The running search.
        heads: Heads to screen.
        pool_size: How many of the best heads must be found.

    Returns:
        The heads that were finished, best first, the pool among them; and the others with the bound at
        which they were stopped, best first.
    """
    run.measure("discovery", [], "intact model")
    run.repeat_intact("discovery")
    intact = run.record("discovery", INTACT).correct
    wrong = tuple(place for place, right in enumerate(intact) if not right)
    right = tuple(place for place, right in enumerate(intact) if right)
    going = [HeadSet((head,)) for head in heads]
    if wrong:
        run.measure_part(going, wrong, "wrong examples")
    going.sort(key=lambda one: _best_key(run, one))
    first, going = going[:pool_size], going[pool_size:]
    blocks = _blocks(right)
    for name, block in blocks:
        run.measure_part(first, block, name)
    finished, stopped = list(first), []
    for name, block in blocks:
        bar = _bar(run, finished, pool_size)
        stopped += [one for one in going if _best_key(run, one) > bar]
        going = [one for one in going if _best_key(run, one) <= bar]
        if going:
            run.measure_part(going, block, name)
    finished += going
    for one in finished:
        run.assemble(one)
    return _gains(run, finished), _bounds(run, stopped)


def _blocks(right: tuple[int, ...]) -> list[tuple[str, tuple[int, ...]]]:
    size = max(1, -(-len(right) // _BLOCKS))
    return [
        (f"right examples {number + 1}", right[start : start + size])
        for number, start in enumerate(range(0, len(right), size))
    ]


def _best_key(run: SearchRun, heads: HeadSet) -> RankKey:
    """The rank key a head has if it damages nothing more."""
    counts = run.part_counts(heads)
    return rank_key(heads, counts.rescued, counts.damaged)


def _bar(run: SearchRun, finished: Sequence[HeadSet], pool_size: int) -> RankKey:
    """The key of the last place in the pool among the finished heads."""
    return sorted(_best_key(run, one) for one in finished)[:pool_size][-1]


def _gains(run: SearchRun, finished: Sequence[HeadSet]) -> tuple[HeadGain, ...]:
    n = len(run.panels.discovery)
    gains = []
    for one in finished:
        rescued, damaged = run.counts("discovery", one)
        gains.append(HeadGain(head=one.heads[0], n=n, rescued=rescued, damaged=damaged))
    return tuple(sorted(gains, key=lambda one: rank_key(one.heads, one.rescued, one.damaged)))


def _bounds(run: SearchRun, stopped: Sequence[HeadSet]) -> tuple[HeadBound, ...]:
    n = len(run.panels.discovery)
    bounds = []
    for one in stopped:
        counts = run.part_counts(one)
        bounds.append(
            HeadBound(
                head=one.heads[0], n=n, measured=counts.n, rescued=counts.rescued, damaged=counts.damaged
            )
        )
    return tuple(sorted(bounds, key=lambda one: rank_key(one.heads, one.rescued, one.damaged)))
