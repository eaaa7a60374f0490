"""Screening, joint search, freezing and the one look at held-out."""

from cel_lens.search.pipeline import find_beneficial_heads

__all__ = ["find_beneficial_heads"]
