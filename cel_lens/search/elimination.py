"""Ranking that stops candidates which can no longer reach the best ones; these are the exhaustive ones, exactly.

Examples that the intact model gets wrong come first. After them a candidate's gain can only fall, so its
gain so far bounds the final one. The candidates with the best bounds are finished; every other one goes
on only while its bound could still put it before the last place that counts. What is left of the panel is
run in the order of how close the intact decisions were, because close ones are lost first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from cel_lens.heads import INTACT, HeadSet
from cel_lens.search.ranking import RankKey, rank_key
from cel_lens.search.run import SearchRun

__all__ = ["Ranking", "rank_by_elimination"]

_SHARES = (8, 8, 4)
"""The examples that the intact model gets right are run in blocks: an eighth, an eighth, a quarter, the rest."""


class Ranking(NamedTuple):
    """What elimination leaves.

    Attributes:
        finished: Candidates measured on the whole panel, best first; the best of all are among them.
        stopped: The others, by the bound at which they were stopped, best first.
    """

    finished: tuple[HeadSet, ...]
    stopped: tuple[HeadSet, ...]


class _Block(NamedTuple):
    """Examples that are run together."""

    name: str
    places: tuple[int, ...]


def rank_by_elimination(run: SearchRun, candidates: Sequence[HeadSet], *, keep: int, stage: str) -> Ranking:
    """Find the best candidates that measuring every one on every discovery example would give.

    Args:
        run: The running search; the intact model is measured on discovery.
        candidates: Head sets; those already measured on the whole panel cost nothing.
        keep: How many of the best must be found, in their order.
        stage: Name shown and timed.

    Returns:
        All candidates; the first ``keep`` finished ones are those of the exhaustive ranking.
    """
    wrong, blocks = _blocks(run)
    finished = [one for one in candidates if run.is_known("discovery", one)]
    going = [one for one in candidates if not run.is_known("discovery", one)]
    if wrong.places:
        run.measure_part(going, wrong.places, stage=stage, part=wrong.name)
    stopped: list[HeadSet] = []
    for number, block in enumerate(blocks):
        leading = sorted([*finished, *going], key=lambda one: _best_key(run, one))[:keep]
        leaders = [one for one in going if one in leading]
        for rest in blocks[number:]:
            run.measure_part(leaders, rest.places, stage=stage, part=rest.name)
        finished += leaders
        bar = _bar(run, finished, keep)
        going = [one for one in going if one not in leading]
        stopped += [one for one in going if _best_key(run, one) > bar]
        going = [one for one in going if _best_key(run, one) <= bar]
        run.measure_part(going, block.places, stage=stage, part=block.name)
    finished += going
    for one in finished:
        run.assemble(one)
    return Ranking(
        tuple(sorted(finished, key=lambda one: _best_key(run, one))),
        tuple(sorted(stopped, key=lambda one: _best_key(run, one))),
    )


def _blocks(run: SearchRun) -> tuple[_Block, list[_Block]]:
    """The examples that the intact model gets wrong, and blocks of the others, the closest decisions first."""
    intact = run.record("discovery", INTACT).correct
    order = run.closest_first()
    wrong = tuple(place for place in order if not intact[place])
    right = tuple(place for place in order if intact[place])
    blocks: list[_Block] = []
    start = 0
    for share in (*_SHARES, 1):
        end = len(right) if share == 1 else start + -(-len(right) // share)
        if right[start:end]:
            blocks.append(_Block(f"right examples {len(blocks) + 1}", right[start:end]))
        start = end
    return _Block("wrong examples", wrong), blocks


def _best_key(run: SearchRun, heads: HeadSet) -> RankKey:
    """The rank key that a candidate has if it damages nothing more."""
    counts = run.part_counts(heads)
    return rank_key(heads, counts.rescued, counts.damaged)


def _bar(run: SearchRun, finished: Sequence[HeadSet], keep: int) -> RankKey:
    """The key of the last place that counts among the finished candidates."""
    return sorted(_best_key(run, one) for one in finished)[:keep][-1]
