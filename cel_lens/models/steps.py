"""Steps that both ways of running a model layer by layer share."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["rms_normalise", "turn"]


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
