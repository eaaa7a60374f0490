"""Stage 1: every head alone."""

from __future__ import annotations

from cel_lens.heads import Head, HeadSet
from cel_lens.results import HeadGain
from cel_lens.search.ranking import rank_key
from cel_lens.search.run import SearchRun

__all__ = ["screen"]


def screen(run: SearchRun, heads: tuple[Head, ...]) -> tuple[HeadGain, ...]:
    """Remove every head alone on discovery.

    Args:
        run: The running search.
        heads: Heads to screen.

    Returns:
        One gain for each head, best first.
    """
    run.measure("discovery", [HeadSet((head,)) for head in heads], "screening")
    run.repeat_intact("discovery")
    gains = [_gain(run, head) for head in heads]
    return tuple(sorted(gains, key=lambda one: rank_key(one.heads, one.rescued, one.damaged)))


def _gain(run: SearchRun, head: Head) -> HeadGain:
    rescued, damaged = run.counts("discovery", HeadSet((head,)))
    return HeadGain(head=head, n=len(run.panels.discovery), rescued=rescued, damaged=damaged)
