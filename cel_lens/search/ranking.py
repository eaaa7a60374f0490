"""The order of candidates: gain, then fewer damaged examples, then fewer heads, then coordinates."""

from __future__ import annotations

from cel_lens.heads import HeadSet

__all__ = ["RankKey", "rank_key"]

RankKey = tuple[int, int, int, HeadSet]


def rank_key(heads: HeadSet, rescued: int, damaged: int) -> RankKey:
    """Sort key of a candidate; the smallest is the best. All candidates share one panel, so counts suffice."""
    return damaged - rescued, damaged, len(heads), heads
