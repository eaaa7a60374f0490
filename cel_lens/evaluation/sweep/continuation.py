"""Decoding the answers that differ from the intact one, one token of each at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from cel_lens.evaluation.answers import is_finished
from cel_lens.evaluation.batches import Item, generation_prompt
from cel_lens.evaluation.sweep.attention import KeysValues, attend
from cel_lens.evaluation.sweep.climb import Machine, Shared, keep_mask
from cel_lens.evaluation.sweep.plan import Group
from cel_lens.evaluation.sweep.reading import Blame, argmax

__all__ = ["OpenRow", "OpenRows", "blame", "continue_rows"]


@dataclass(kw_only=True)
class OpenRow:
    """One example under one condition while its answer is being written.

    Attributes:
        state: Index of the condition.
        place: Index of the example in its chunk.
        item: The example.
        seen: Tokens of its body whose keys and values hold.
        written: Tokens of its answer so far.
    """

    state: int
    place: int
    item: Item
    seen: int
    written: list[int] = field(default_factory=list)


class OpenRows(NamedTuple):
    """Rows of one chunk whose answers go on.

    Attributes:
        rows: The rows.
        seen: Layer to their own keys and values, one owner for each row.
    """

    rows: list[OpenRow]
    seen: dict[int, KeysValues]


def blame(group: Group, rows: Sequence[OpenRow]) -> Blame:
    """Names the head set and the example of a row."""
    return lambda at: f"{group.head_sets[rows[at].state].label} on {rows[at].item.example.id}"


def continue_rows(
    machine: Machine,
    group: Group,
    pieces: Sequence[OpenRows],
    prefix_below: Shared | None,
    before: list[Shared],
) -> None:
    """Write all answers to their end.

    Args:
        machine: The model.
        group: The conditions.
        pieces: The rows; their ``written`` grows.
        prefix_below: The common prefix of the intact model below the group's first layer.
        before: The common prefix under the conditions, if there is one.
    """
    _Continuation(machine, group, pieces, prefix_below, before[0] if before else None).run()


class _Continuation:
    """Rows sorted by condition, so that the rows of one condition are consecutive, and their keys and values."""

    def __init__(
        self,
        machine: Machine,
        group: Group,
        pieces: Sequence[OpenRows],
        prefix_below: Shared | None,
        prefix: Shared | None,
    ) -> None:
        self._machine, self._layers, self._group = machine, machine.layers, group
        self._prefix_below, self._prefix = prefix_below, prefix
        rows = [row for piece in pieces for row in piece.rows]
        order = sorted(range(len(rows)), key=lambda at: rows[at].state)
        self._rows = [rows[at] for at in order]
        self._device = pieces[0].seen[0].k.device
        self._lengths = torch.tensor([row.seen for row in self._rows], device=self._device)
        self._offset = 0 if prefix is None else next(iter(prefix.layers.values())).k.shape[1]
        room = max(generation_prompt(row.item).max_new_tokens - len(row.written) for row in rows)
        rank = torch.tensor(sorted(range(len(rows)), key=order.__getitem__), device=self._device)
        self._own = {layer: _together(pieces, layer, rank, room) for layer in pieces[0].seen}

    def run(self) -> None:
        """Write all answers to their end."""
        while self._rows:
            tokens = torch.tensor([row.written[-1] for row in self._rows], device=self._device)
            top = self._forward(tokens)
            rows = self._rows
            found = argmax(self._machine, top, blame(self._group, rows))
            for row, token in zip(rows, found.tolist(), strict=True):
                row.written.append(token)
            self._lengths += 1
            kept = [
                at
                for at, row in enumerate(rows)
                if not is_finished(self._machine.lens, row.item, row.written)
            ]
            if len(kept) < len(rows):
                self._keep(kept)

    def _forward(self, tokens: Tensor) -> Tensor:
        """Run one new token of each row through all layers, ``[rows, d_model]``."""
        layers = self._layers
        offsets = self._lengths + self._offset
        x = layers.embed(tokens[:, None], offsets)
        for layer in range(layers.n_layers):
            q, k, v = layers.project(layer, x, offsets)
            own = self._grow(layer, k, v)
            z = self._attend(layer, q, own)
            zeroed = [self._group.head_sets[row.state].by_layer().get(layer, ()) for row in self._rows]
            if any(zeroed):
                z = z * keep_mask(tuple(zeroed), layers.n_heads, z)[:, None, :, None]
            x = layers.finish(layer, x, z)
        self._machine.counter.layer_tokens += layers.n_layers * len(self._rows)
        return x[:, 0]

    def _grow(self, layer: int, k: Tensor, v: Tensor) -> KeysValues:
        """Put the new token's keys and values behind those of its row."""
        own = self._own[layer]
        at = torch.arange(len(self._rows), device=self._device)
        own.k[at, self._lengths] = k[:, 0]
        own.v[at, self._lengths] = v[:, 0]
        longest = int(self._lengths.max()) + 1
        return KeysValues(own.k[:, :longest], own.v[:, :longest], self._lengths + 1)

    def _states(self, layer: int) -> list[int]:
        """The state of each row before a layer; the intact one below the group's first layer."""
        if layer < self._group.layer:
            return [0] * len(self._rows)
        lineage = self._group.lineage(layer)
        return [lineage[row.state] for row in self._rows]

    def _attend(self, layer: int, q: Tensor, own: KeysValues) -> Tensor:
        divisor = self._layers.score_divisor(layer)
        shared = self._prefix_below if layer < self._group.layer else self._prefix
        if shared is None:
            return attend(q, own, [], divisor, causal=False)
        k, v, _ = shared.layers[layer]
        states = self._states(layer)
        parts, start = [], 0
        while start < len(states):
            end = start
            while end < len(states) and states[end] == states[start]:
                end += 1
            one = slice(states[start], states[start] + 1)
            assert own.lengths is not None
            mine = KeysValues(own.k[start:end], own.v[start:end], own.lengths[start:end])
            parts.append(attend(q[start:end], mine, [KeysValues(k[one], v[one])], divisor, causal=False))
            start = end
        return torch.cat(parts)

    def _keep(self, kept: Sequence[int]) -> None:
        chosen = torch.tensor(kept, device=self._device, dtype=torch.long)
        self._rows = [self._rows[at] for at in kept]
        self._lengths = self._lengths[chosen]
        self._own = {layer: KeysValues(k[chosen], v[chosen]) for layer, (k, v, _) in self._own.items()}


def _together(pieces: Sequence[OpenRows], layer: int, rank: Tensor, room: int) -> KeysValues:
    """The keys and values of all rows in their new order, with room for the tokens to come."""
    sample = pieces[0].seen[layer].k
    width = max(piece.seen[layer].k.shape[1] for piece in pieces) + room
    k = sample.new_zeros(rank.shape[0], width, *sample.shape[2:])
    v = torch.zeros_like(k)
    start = 0
    for piece in pieces:
        at = rank[start : start + len(piece.rows)]
        some = piece.seen[layer]
        k[at, : some.k.shape[1]] = some.k
        v[at, : some.v.shape[1]] = some.v
        start += len(piece.rows)
    return KeysValues(k, v)
