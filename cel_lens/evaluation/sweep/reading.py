"""Logits of chosen positions, a slab at a time, and what is read from them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from cel_lens.errors import EvaluationError
from cel_lens.evaluation.sweep.climb import Machine

__all__ = ["Blame", "Read", "argmax", "read_targets"]

SLAB = 512
"""Positions unembedded together."""


class Read(NamedTuple):
    """What was read at each position for one target token.

    Attributes:
        log_probability: Of the target, natural logarithm, ``[positions]``.
        greedy: Whether the target is the arg-max, ``[positions]``.
    """

    log_probability: Tensor
    greedy: Tensor


Blame = Callable[[int], str]
"""Index of a position to a text that names the head set and the example."""


def argmax(machine: Machine, residual: Tensor, blame: Blame) -> Tensor:
    """The arg-max token at each position, lowest id on ties, ``[positions]``.

    Args:
        machine: The model.
        residual: After the last layer, ``[positions, d_model]``.
        blame: Names a position in an error.

    Raises:
        EvaluationError: If a logit is not finite.
    """
    slabs = [logits.argmax(dim=-1) for _, logits in _slabs(machine, residual, blame)]
    return torch.cat(slabs)


def read_targets(machine: Machine, residual: Tensor, targets: Tensor, blame: Blame) -> Read:
    """How likely target tokens are.

    Args:
        machine: The model.
        residual: After the last layer, ``[positions, d_model]``.
        targets: Token ids, ``[positions, targets]``.
        blame: Names a position in an error.

    Returns:
        Both entries with shape ``[positions, targets]``.

    Raises:
        EvaluationError: If a logit is not finite.
    """
    scores, greedy = [], []
    for start, logits in _slabs(machine, residual, blame):
        wanted = targets[start : start + logits.shape[0]]
        scores.append(logits.log_softmax(dim=-1).gather(1, wanted))
        greedy.append(logits.argmax(dim=-1, keepdim=True) == wanted)
    return Read(torch.cat(scores), torch.cat(greedy))


def _slabs(machine: Machine, residual: Tensor, blame: Blame) -> Iterator[tuple[int, Tensor]]:
    for start in range(0, residual.shape[0], SLAB):
        logits = machine.layers.logits(residual[start : start + SLAB])
        finite = torch.isfinite(logits.sum(dim=-1))  # a sum is finite only if every term is
        if not bool(finite.all()):
            where = start + int((~finite).nonzero()[0, 0])
            raise EvaluationError(f"the model gives a logit that is not finite with {blame(where)}")
        machine.counter.unembedded += logits.shape[0]
        yield start, logits
