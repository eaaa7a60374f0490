"""Steps that both ways of running a model layer by layer share."""

from __future__ import annotations

import torch
from torch import Tensor

from cel_lens.heads import INTACT, HeadSet
from cel_lens.models.protocol import Layers

__all__ = ["rms_normalise", "turn", "walk"]


def rms_normalise(residual: Tensor, weight: Tensor, eps: float) -> Tensor:
    """RMSNorm in full precision, with fewer passes over memory than the textbook order of steps.

    Args:
        residual: ``[..., width]``, in float32.
        weight: ``[width]``.
        eps: Added to the mean square.
    """
    size = torch.linalg.vector_norm(residual, dim=-1, keepdim=True)
    scale = size.square_().div_(residual.shape[-1]).add_(eps).rsqrt_()
    weighted: Tensor = (residual * scale).mul_(weight)
    return weighted


def turn(heads: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate queries or keys, the first half of the rotated channels against the second.

    Args:
        heads: ``[rows, pos, head, d_head]``.
        cos: ``[..., pos, 1, rotated]``; channels from ``rotated`` on stay as they are.
        sin: The same shape.
    """
    rotated = cos.shape[-1]
    half = rotated // 2
    if rotated == heads.shape[-1]:
        turned = heads * cos
    else:
        turned = heads.clone()
        turned[..., :rotated] *= cos
    turned[..., :half].addcmul_(heads[..., half:rotated], sin[..., :half], value=-1)
    turned[..., half:rotated].addcmul_(heads[..., :half], sin[..., half:])
    return turned


def walk(layers: Layers, tokens: Tensor, heads: HeadSet = INTACT) -> Tensor:
    """All layers one after the other, with attention written out in full precision.

    Args:
        layers: The model layer by layer.
        tokens: Token ids, ``[rows, pos]``, without padding.
        heads: Heads to remove.

    Returns:
        The residual stream after the last layer, ``[rows, pos, d_model]``.
    """
    residual = layers.embed(tokens, 0)
    places = torch.arange(tokens.shape[1], device=tokens.device)
    behind = places[:, None] - places
    removed = heads.by_layer()
    for layer in range(layers.n_layers):
        q, k, v = layers.project(layer, residual, 0)
        rule = layers.attention_rule(layer)
        group = q.shape[2] // k.shape[2]
        k, v = k.repeat_interleave(group, dim=2), v.repeat_interleave(group, dim=2)
        scores = torch.einsum("bqhd,bkhd->bhqk", q.float(), k.float()) / rule.divisor
        if rule.soft_cap is not None:
            scores = rule.soft_cap * torch.tanh(scores / rule.soft_cap)
        hidden = (behind < 0) | (behind >= (rule.window or len(places)))
        weights = scores.masked_fill(hidden, -torch.inf).softmax(dim=-1)
        z = torch.einsum("bhqk,bkhd->bqhd", weights, v.float()).to(q.dtype)
        z[:, :, list(removed.get(layer, ()))] = 0
        residual = layers.finish(layer, residual, z)
    return residual
