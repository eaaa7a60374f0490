"""Greedy generation of many conditions by checking the intact model's answer.

The intact answer stands behind each prompt. Where the ablated arg-max agrees with it token by token, the
ablated answer is proven to be the same; where it first differs, generation goes on from there, reading
the keys and values of everything that agreed.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from cel_lens.evaluation.answers import finish_generation, is_finished
from cel_lens.evaluation.sweep.attention import KeysValues
from cel_lens.evaluation.sweep.climb import Climb, Machine, Shared, climb
from cel_lens.evaluation.sweep.continuation import OpenRow, OpenRows, blame, continue_rows
from cel_lens.evaluation.sweep.intact import Intact
from cel_lens.evaluation.sweep.panel import Chunk
from cel_lens.evaluation.sweep.plan import Group
from cel_lens.evaluation.sweep.reading import argmax
from cel_lens.tasks import Response

__all__ = ["Writer"]

_ROWS = 256
"""Answers continued together: single tokens are cheap only in numbers."""


class Writer:
    """Writes the answers of a group's conditions, chunk by chunk.

    Args:
        machine: The model.
        group: The conditions.
        intact: The intact model at the group's first layer.
        before: The common prefix under these conditions, if there is one.
    """

    def __init__(self, machine: Machine, group: Group, intact: Intact, before: list[Shared]) -> None:
        self._machine, self._group, self._intact, self._before = machine, group, intact, before
        self._rows: list[OpenRow] = []
        self._open: list[OpenRows] = []

    def add(self, place: int, chunk: Chunk) -> None:
        """Answer a chunk's examples as far as their drafts reach.

        Args:
            place: Index of the chunk in the slice.
            chunk: The examples with their intact answers, or without any to find them.
        """
        rows, residual = self._intact.body(place)
        drafted = torch.arange(max(1, *map(len, chunk.drafts)), device=residual.device)
        starts = torch.tensor(chunk.prompt_lengths, device=residual.device)[:, None] - 1
        read = (starts + drafted).clamp(max=rows.tokens.shape[1] - 1)
        body = climb(self._machine, self._group, rows, residual, self._before, record=True, read=read)
        answers = [
            OpenRow(state=state, place=at, item=item, seen=chunk.prompt_lengths[at])
            for state in range(len(self._group.head_sets))
            for at, item in enumerate(chunk.items)
        ]
        self._rows += answers
        differing = self._check(chunk, body, answers)
        if differing:
            self._open.append(OpenRows(differing, self._keys_values(place, body, chunk, differing)))
        if sum(len(one.rows) for one in self._open) >= _ROWS:
            self._continue()

    def responses(self) -> list[dict[int, Response]]:
        """Finish all answers: for each condition, position in the panel to response."""
        self._continue()
        found: list[dict[int, Response]] = [{} for _ in self._group.head_sets]
        for row in self._rows:
            found[row.state][row.item.place] = finish_generation(self._machine.lens, row.item, row.written)
        return found

    def _continue(self) -> None:
        if self._open:
            continue_rows(self._machine, self._group, self._open, self._intact.prefix_below(), self._before)
        self._open = []

    def _check(self, chunk: Chunk, body: Climb, answers: Sequence[OpenRow]) -> list[OpenRow]:
        """Write what the drafts prove; the rows that are not finished by it come back."""
        top = body.residual.view(len(self._group.head_sets), len(chunk.items), *body.residual.shape[1:])
        open_rows, agreeing = [], list(answers)
        while agreeing:
            states = torch.tensor([row.state for row in agreeing], device=top.device)
            places = torch.tensor([row.place for row in agreeing], device=top.device)
            steps = torch.tensor([len(row.written) for row in agreeing], device=top.device)
            tokens = argmax(self._machine, top[states, places, steps], blame(self._group, agreeing))
            still = []
            for row, token in zip(agreeing, tokens.tolist(), strict=True):
                step = len(row.written)
                row.written.append(token)
                if is_finished(self._machine.lens, row.item, row.written):
                    continue
                draft = chunk.drafts[row.place]
                if step < len(draft) - 1 and draft[step] == token:
                    row.seen += 1
                    still.append(row)
                else:
                    open_rows.append(row)
            agreeing = still
        return open_rows

    def _keys_values(
        self, place: int, body: Climb, chunk: Chunk, rows: Sequence[OpenRow]
    ) -> dict[int, KeysValues]:
        """A copy of the rows' own keys and values in every layer."""
        found = {}
        for layer, (k, v, _) in {**self._intact.body_below(place), **body.seen}.items():
            states = self._group.lineage(layer) if layer >= self._group.layer else None
            owners = torch.tensor(
                [(0 if states is None else states[row.state]) * len(chunk.items) + row.place for row in rows],
                device=k.device,
            )
            found[layer] = KeysValues(k[owners], v[owners])
        return found
