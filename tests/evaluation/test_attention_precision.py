"""The sweep's attention keeps float32 scores whatever the weights are, which large queries and keys need."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from cel_lens.evaluation.sweep.attention import KeysValues, attend

D_HEAD, DIVISOR = 64, 8.0


def large(pos: int, *, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values in bfloat16; the scores have a size of hundreds, differences of a few."""
    generator = torch.Generator().manual_seed(seed)

    def normal(heads: int) -> Tensor:
        return torch.randn(2, pos, heads, D_HEAD, generator=generator)

    q, k, v = 0.4 * normal(4), 0.4 * normal(2), normal(2)
    q[..., 0], k[..., 0] = 60.0, 50.0  # as biases of q and k do in Qwen2: the same for all keys
    return q.bfloat16(), k.bfloat16(), v.bfloat16()


def exact(q: Tensor, k: Tensor, v: Tensor, scores_in: torch.dtype = torch.float64) -> Tensor:
    """Causal attention in float64, its scores rounded once."""
    k, v = (part.double().repeat_interleave(2, dim=2) for part in (k, v))
    scores = (torch.einsum("bqhd,bkhd->bhqk", q.double(), k) / DIVISOR).to(scores_in).double()
    hidden = torch.ones(q.shape[1], k.shape[1], dtype=torch.bool).triu(1 + k.shape[1] - q.shape[1])
    weights = scores.masked_fill(hidden, -torch.inf).softmax(dim=-1)
    return torch.einsum("bhqk,bkhd->bqhd", weights, v)


@pytest.mark.parametrize("seed", range(3))
def test_only_the_result_is_rounded_to_bfloat16(seed: int) -> None:
    q, k, v = large(24, seed=seed)
    found = attend(q, KeysValues(k, v), [], DIVISOR, causal=True)
    truth = exact(q, k, v)
    assert found.dtype == torch.bfloat16
    step = (
        truth.abs() / 256 + 1e-4
    )  # half a step of bfloat16 is at most 1/256 of the number, and float32's own noise
    assert bool(((found.double() - truth).abs() <= step).all())
    coarse = exact(q, k, v, torch.bfloat16)
    assert (coarse - truth).abs().max() > 0.3, (
        "scores in bfloat16 would do as well, so the test proves nothing"
    )


@pytest.mark.parametrize("seed", range(3))
def test_parts_seen_by_several_rows_are_merged_in_float32(seed: int) -> None:
    q, k, v = large(24, seed=seed)
    k[1, :9], v[1, :9] = k[0, :9], v[0, :9]
    shared = [KeysValues(k[:1, :9], v[:1, :9])]
    found = attend(q[:, 9:], KeysValues(k[:, 9:], v[:, 9:]), shared, DIVISOR, causal=True)
    truth = exact(q, k, v)[:, 9:]
    assert bool(((found.double() - truth).abs() <= truth.abs() / 256 + 1e-4).all())
