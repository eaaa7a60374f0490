"""Scoring continuations of many conditions."""

from __future__ import annotations

import torch
from torch import Tensor

from cel_lens.evaluation.batches import choice_prompt
from cel_lens.evaluation.sweep.climb import Climb, Machine, Shared, climb
from cel_lens.evaluation.sweep.intact import Intact
from cel_lens.evaluation.sweep.panel import Chunk
from cel_lens.evaluation.sweep.plan import Group
from cel_lens.evaluation.sweep.reading import Read, read_targets
from cel_lens.tasks import ChoiceScores, Response

__all__ = ["score_chunk"]


def score_chunk(
    machine: Machine,
    group: Group,
    intact: Intact,
    place: int,
    chunk: Chunk,
    before: list[Shared],
) -> list[dict[int, Response]]:
    """Score every choice of a chunk's examples under every condition of a group.

    Args:
        machine: The model.
        group: The conditions.
        intact: The intact model at the group's first layer.
        place: Index of the chunk.
        chunk: The examples.
        before: The common prefix under these conditions, if there is one.

    Returns:
        For each condition, position in the panel to scores.
    """
    rows, residual = intact.body(place)
    ends = intact.endings(place)
    last = torch.tensor(chunk.prompt_lengths, device=residual.device)[:, None] - 1
    body = climb(machine, group, rows, residual, before, record=ends is not None, read=last)
    first = _first_tokens(machine, group, chunk, body.residual[:, 0])
    rest: Read | None = None
    if ends is not None:
        shared = Shared(layers=body.seen, lengths=rows.lengths)
        ending = climb(machine, group, ends[0], ends[1], [*before, shared], record=False)
        rest = _further_tokens(machine, group, chunk, ending)
    return _responses(group, chunk, first, rest)


def _first_tokens(machine: Machine, group: Group, chunk: Chunk, top: Tensor) -> Read:
    """The first token of every choice, from the last of the context, ``[state * item, d_model]``: ``[..., choice]``."""
    targets = torch.zeros(len(chunk.items), chunk.n_choices, dtype=torch.long)
    for place, item in enumerate(chunk.items):
        for choice, continuation in enumerate(choice_prompt(item).continuation_ids):
            targets[place, choice] = continuation[0]
    wanted = targets.to(top.device).repeat(len(group.head_sets), 1)

    def blame(where: int) -> str:
        state, item = divmod(where, len(chunk.items))
        return f"{group.head_sets[state].label} on {chunk.items[item].example.id}"

    return read_targets(machine, top, wanted, blame)


def _further_tokens(machine: Machine, group: Group, chunk: Chunk, ending: Climb) -> Read:
    """The second and later tokens of every choice: ``[state * real ending positions, 1]``."""
    rows, places, targets, owners = [], [], [], []
    for item_place, item in enumerate(chunk.items):
        for choice, continuation in enumerate(choice_prompt(item).continuation_ids):
            for place, token in enumerate(continuation[1:]):
                rows.append(item_place * chunk.n_choices + choice)
                places.append(place)
                targets.append(token)
                owners.append(item_place)
    n_states = len(group.head_sets)
    device = ending.residual.device
    residual = ending.residual.view(n_states, -1, *ending.residual.shape[1:])
    chosen = residual[:, torch.tensor(rows, device=device), torch.tensor(places, device=device)]
    wanted = torch.tensor(targets, device=device).repeat(n_states)[:, None]

    def blame(where: int) -> str:
        state, at = divmod(where, len(owners))
        return f"{group.head_sets[state].label} on {chunk.items[owners[at]].example.id}"

    return read_targets(machine, chosen.flatten(0, 1), wanted, blame)


def _responses(group: Group, chunk: Chunk, first: Read, rest: Read | None) -> list[dict[int, Response]]:
    n_states = len(group.head_sets)
    first_scores = first.log_probability.view(n_states, len(chunk.items), chunk.n_choices).tolist()
    first_greedy = first.greedy.view(n_states, len(chunk.items), chunk.n_choices).tolist()
    rest_scores = [] if rest is None else rest.log_probability.view(n_states, -1).tolist()
    rest_greedy = [] if rest is None else rest.greedy.view(n_states, -1).tolist()
    found: list[dict[int, Response]] = []
    for state in range(n_states):
        responses: dict[int, Response] = {}
        at = 0
        for place, item in enumerate(chunk.items):
            totals, paths = [], []
            for choice, continuation in enumerate(choice_prompt(item).continuation_ids):
                end = at + len(continuation) - 1
                further = rest_scores[state][at:end] if rest_scores else []
                totals.append(first_scores[state][place][choice] + sum(further))
                paths.append(
                    first_greedy[state][place][choice]
                    and all(rest_greedy[state][at:end] if rest_greedy else [])
                )
                at = end
            responses[item.place] = ChoiceScores(
                log_likelihoods=tuple(totals),
                greedy=tuple(paths),
                boundary_merge=choice_prompt(item).boundary_merge,
            )
        found.append(responses)
    return found
