"""Causal attention in which rows share keys and values without copies.

The keys that a token sees lie in parts: its own row up to itself, and parts shared by several rows (a
prefix common to all prompts, the context of an example's endings). Each part is attended by itself and
the parts are merged by their softmax normalisers, which is the softmax over all keys (Milakov and
Gimelshein, "Online normalizer calculation for softmax", 2018).
"""

from __future__ import annotations

from math import e, log2
from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["KeysValues", "attend"]

_BITS = log2(e)
"""``exp`` is taken as a power of 2: where the result is nearly nothing, a processor's own ``exp`` is slow."""


class KeysValues(NamedTuple):
    """Keys and values that one or several rows see.

    Attributes:
        k: ``[owners, keys, key_value_head, d_head]``; each owner serves equally many consecutive rows.
        v: The same shape.
        lengths: How many of the keys are real, ``[owners]``; ``None``: all.
    """

    k: Tensor
    v: Tensor
    lengths: Tensor | None = None


class _Share(NamedTuple):
    """One part's unnormalised output with its largest score and its sum of weights, per head."""

    out: Tensor
    top: Tensor
    total: Tensor


def attend(q: Tensor, own: KeysValues, shared: list[KeysValues], divisor: float, *, causal: bool) -> Tensor:
    """Outputs of all heads.

    Args:
        q: Queries, ``[rows, pos, head, d_head]``.
        own: Keys and values of the rows themselves, one owner for each row.
        shared: Further parts, all of which lie before the rows.
        divisor: Scores are divided by it.
        causal: Whether a query at pos sees only its own keys up to pos; otherwise all real ones.

    Returns:
        ``[rows, pos, head, d_head]``.
    """
    shares = [_share(q, part, divisor, causal=False) for part in shared]
    shares.append(_share(q, own, divisor, causal=causal))
    if len(shares) == 1:
        return (shares[0].out / shares[0].total).to(q.dtype)
    top = shares[0].top
    for share in shares[1:]:
        top = torch.maximum(top, share.top)
    weights = [torch.exp(share.top - top) for share in shares]
    out = sum((share.out * weight for share, weight in zip(shares, weights, strict=True)), torch.zeros(()))
    total = sum(
        (share.total * weight for share, weight in zip(shares, weights, strict=True)), torch.zeros(())
    )
    return (out / total).to(q.dtype)


def _share(q: Tensor, part: KeysValues, divisor: float, *, causal: bool) -> _Share:
    rows, pos, n_heads, d_head = q.shape
    owners, keys, n_key_value_heads, _ = part.k.shape
    each, group = rows // owners, n_heads // n_key_value_heads
    grouped = q.view(owners, each, pos, n_key_value_heads, group, d_head).permute(0, 3, 1, 2, 4, 5)
    queries = grouped.reshape(owners * n_key_value_heads, each * pos * group, d_head).float() / divisor
    k = part.k.permute(0, 2, 3, 1).reshape(owners * n_key_value_heads, d_head, keys).float()
    v = part.v.permute(0, 2, 1, 3).reshape(owners * n_key_value_heads, keys, d_head).float()
    scores = torch.bmm(queries, k)
    if causal:
        hidden = torch.ones(pos, keys, dtype=torch.bool, device=q.device).triu_(1)
        scores.view(-1, pos, group, keys).masked_fill_(hidden[:, None], -torch.inf)
    if part.lengths is not None:
        beyond = torch.arange(keys, device=q.device) >= part.lengths[:, None]
        scores.view(owners, -1, keys).masked_fill_(beyond[:, None], -torch.inf)
    top = scores.amax(dim=-1, keepdim=True)
    weights = scores.sub_(top).mul_(_BITS).exp2_()

    def by_row(tensor: Tensor) -> Tensor:
        shaped = tensor.view(owners, n_key_value_heads, each, pos, group, -1)
        return shaped.permute(0, 2, 3, 1, 4, 5).reshape(rows, pos, n_heads, -1)

    return _Share(by_row(torch.bmm(weights, v)), by_row(top), by_row(weights.sum(dim=-1, keepdim=True)))
