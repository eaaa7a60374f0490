"""The intact model on the way up: the state from which every condition starts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from cel_lens.evaluation.sweep.attention import KeysValues
from cel_lens.evaluation.sweep.climb import Machine, Shared, step
from cel_lens.evaluation.sweep.panel import Chunk, Rows

__all__ = ["Intact"]


@dataclass(kw_only=True)
class _Level:
    """Rows with their intact residual stream before the current layer, and keys and values below it."""

    rows: Rows
    residual: Tensor
    below: dict[int, KeysValues] = field(default_factory=dict)


class Intact:
    """Walks a slice of a panel upwards, one layer at a time, keeping the residual of the current layer.

    Args:
        machine: The model.
        prefix: Tokens with which all prompts begin.
        chunks: The examples behind it.
        keep_below: Whether to keep keys and values of the layers left behind, which continuing a
            generation needs.

    Attributes:
        layer: The current layer.
    """

    def __init__(
        self,
        machine: Machine,
        prefix: tuple[int, ...],
        chunks: Sequence[Chunk],
        *,
        keep_below: bool,
    ) -> None:
        self.layer = 0
        self._machine = machine
        self._keep = keep_below
        device = chunks[0].bodies.tokens.device
        self._prefix: _Level | None = None
        if prefix:
            tokens = torch.tensor([prefix], device=device)
            lengths = torch.tensor([len(prefix)], device=device)
            self._prefix = self._level(Rows(tokens=tokens, lengths=lengths, offsets=0))
        self._bodies = [self._level(chunk.bodies) for chunk in chunks]
        self._endings = [None if chunk.endings is None else self._level(chunk.endings) for chunk in chunks]

    def advance(self, layer: int) -> None:
        """Walk up until the current layer is this one."""
        while self.layer < layer:
            self._pass()
            self.layer += 1

    def prefix(self) -> tuple[Rows, Tensor] | None:
        """The common prefix and its residual stream before the current layer."""
        return None if self._prefix is None else (self._prefix.rows, self._prefix.residual)

    def body(self, place: int) -> tuple[Rows, Tensor]:
        """The bodies of a chunk and their residual stream before the current layer."""
        return self._bodies[place].rows, self._bodies[place].residual

    def endings(self, place: int) -> tuple[Rows, Tensor] | None:
        """The endings of a chunk and their residual stream before the current layer."""
        level = self._endings[place]
        return None if level is None else (level.rows, level.residual)

    def prefix_below(self) -> Shared | None:
        """Keys and values of the prefix in the layers left behind."""
        return None if self._prefix is None else Shared(layers=self._prefix.below)

    def body_below(self, place: int) -> dict[int, KeysValues]:
        """Keys and values of a chunk's bodies in the layers left behind."""
        return self._bodies[place].below

    def _level(self, rows: Rows) -> _Level:
        return _Level(rows=rows, residual=self._machine.layers.embed(rows.tokens, rows.offsets))

    def _pass(self) -> None:
        front: list[KeysValues] = []
        if self._prefix is not None:
            front = [self._through(self._prefix, [])]
        for body, endings in zip(self._bodies, self._endings, strict=True):
            own = self._through(body, front)
            if endings is not None:
                self._through(endings, [*front, KeysValues(own.k, own.v, body.rows.lengths)])

    def _through(self, level: _Level, shared: list[KeysValues]) -> KeysValues:
        level.residual, own = step(
            self._machine,
            self.layer,
            level.rows,
            level.residual,
            shared,
            fork=None,
        )
        if self._keep:
            level.below[self.layer] = own
        return own
