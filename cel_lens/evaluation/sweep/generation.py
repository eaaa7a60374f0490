"""Greedy generation of many conditions by checking the intact model's answer.

The intact answer stands behind each prompt. Where the ablated arg-max agrees with it token by token, the
ablated answer is proven to be the same; where it first differs, generation goes on from there, reading
the keys and values of everything that agreed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from cel_lens.evaluation.answers import finish_generation, is_finished
from cel_lens.evaluation.batches import Item, generation_prompt
from cel_lens.evaluation.sweep.attention import KeysValues, attend
from cel_lens.evaluation.sweep.climb import Climb, Machine, Shared, climb, keep_mask
from cel_lens.evaluation.sweep.intact import Intact
from cel_lens.evaluation.sweep.panel import Chunk
from cel_lens.evaluation.sweep.plan import Group
from cel_lens.evaluation.sweep.reading import Blame, argmax
from cel_lens.tasks import Response

__all__ = ["generate_chunk"]

_ROWS = 256
"""Rows continued together."""


@dataclass(kw_only=True)
class _Row:
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


def generate_chunk(
    machine: Machine,
    group: Group,
    intact: Intact,
    place: int,
    chunk: Chunk,
    before: list[Shared],
) -> list[dict[int, Response]]:
    """Generate the answers of a chunk's examples under every condition of a group.

    Args:
        machine: The model.
        group: The conditions.
        intact: The intact model at the group's first layer.
        place: Index of the chunk.
        chunk: The examples with their intact answers, or without any to find them.
        before: The common prefix under these conditions, if there is one.

    Returns:
        For each condition, position in the panel to response.
    """
    rows, residual = intact.body(place)
    body = climb(machine, group, rows, residual, before, record=True)
    answers = [
        _Row(state=state, place=at, item=item, seen=chunk.prompt_lengths[at])
        for state in range(len(group.head_sets))
        for at, item in enumerate(chunk.items)
    ]
    differing = _check_drafts(machine, group, chunk, body, answers)
    for first in range(0, len(differing), _ROWS):
        some = differing[first : first + _ROWS]
        _Continuation(machine, group, intact, place, body, before, some).run()
    found: list[dict[int, Response]] = [{} for _ in group.head_sets]
    for row in answers:
        found[row.state][row.item.place] = finish_generation(machine.lens, row.item, row.written)
    return found


def _check_drafts(
    machine: Machine,
    group: Group,
    chunk: Chunk,
    body: Climb,
    answers: Sequence[_Row],
) -> list[_Row]:
    """Write what the drafts prove; the rows that are not finished by it come back, in order."""
    top = body.residual.view(len(group.head_sets), len(chunk.items), *body.residual.shape[1:])
    open_rows, agreeing = [], list(answers)
    while agreeing:
        states = torch.tensor([row.state for row in agreeing], device=top.device)
        places = torch.tensor([row.place for row in agreeing], device=top.device)
        last = torch.tensor([row.seen - 1 for row in agreeing], device=top.device)
        tokens = argmax(machine, top[states, places, last], _blame(group, agreeing))
        still = []
        for row, token in zip(agreeing, tokens.tolist(), strict=True):
            step = len(row.written)
            row.written.append(token)
            if is_finished(machine.lens, row.item, row.written):
                continue
            draft = chunk.drafts[row.place]
            if step < len(draft) - 1 and draft[step] == token:
                row.seen += 1
                still.append(row)
            else:
                open_rows.append(row)
        agreeing = still
    return sorted(open_rows, key=lambda row: (row.state, row.place))


def _blame(group: Group, rows: Sequence[_Row]) -> Blame:
    return lambda at: f"{group.head_sets[rows[at].state].label} on {rows[at].item.example.id}"


class _Continuation:
    """Decodes rows of several conditions to their end, one token of each at a time.

    Rows are sorted by condition, so that the rows of one condition are consecutive.
    """

    def __init__(
        self,
        machine: Machine,
        group: Group,
        intact: Intact,
        place: int,
        body: Climb,
        before: list[Shared],
        rows: Sequence[_Row],
    ) -> None:
        self._machine, self._layers, self._group = machine, machine.layers, group
        self._rows = list(rows)
        self._room = max(generation_prompt(row.item).max_new_tokens - len(row.written) for row in rows)
        self._device = body.residual.device
        self._prefix = before[0] if before else None
        self._prefix_below = intact.prefix_below()
        self._n_bodies = intact.body(place)[0].tokens.shape[0]
        self._offset = intact.body(place)[0].offsets
        self._seen = {**intact.body_below(place), **body.seen}
        self._own: dict[int, KeysValues] = {}
        self._lengths = torch.tensor([row.seen for row in rows], device=self._device)

    def run(self) -> None:
        """Write all answers to their end."""
        while self._rows:
            tokens = torch.tensor([row.written[-1] for row in self._rows], device=self._device)
            top = self._forward(tokens)
            rows = self._rows
            found = argmax(self._machine, top, _blame(self._group, rows))
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
        if layer not in self._own:
            self._own[layer] = self._gather(layer)
        own = self._own[layer]
        at = torch.arange(len(self._rows), device=self._device)
        own.k[at, self._lengths] = k[:, 0]
        own.v[at, self._lengths] = v[:, 0]
        longest = int(self._lengths.max()) + 1
        return KeysValues(own.k[:, :longest], own.v[:, :longest], self._lengths + 1)

    def _gather(self, layer: int) -> KeysValues:
        """A copy of the rows' own keys and values, with room for the tokens to come."""
        states = self._states(layer)
        owners = torch.tensor(
            [state * self._n_bodies + row.place for state, row in zip(states, self._rows, strict=True)],
            device=self._device,
        )
        k, v, _ = self._seen[layer]
        room = k.new_zeros(len(owners), self._room + 1, *k.shape[2:])
        return KeysValues(torch.cat([k[owners], room], dim=1), torch.cat([v[owners], room], dim=1))

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
