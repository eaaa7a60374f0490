"""A panel as rows of tokens: what all prompts share, what the rows of one example share, and the rest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cel_lens.evaluation.batches import Item, choice_prompt, generation_prompt

if TYPE_CHECKING:
    from torch import Tensor, device

__all__ = ["Chunk", "Rows", "common_prefix", "cut", "make_chunk"]

_SHORTEST_PREFIX = 4
"""A shorter common prefix is not worth a pass of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Rows of tokens, padded on the right.

    Attributes:
        tokens: ``[rows, pos]``.
        lengths: Real tokens of each row, ``[rows]``.
        offsets: Position of each row's first token: one number, or ``[rows]``.
    """

    tokens: Tensor
    lengths: Tensor
    offsets: Tensor | int


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """Examples that run together.

    Attributes:
        items: The examples.
        bodies: One row for each example: its prompt behind the common prefix, and for generation the
            intact model's answer without its last token.
        prompt_lengths: Tokens of each body that belong to the prompt.
        drafts: For generation, the intact answer of each example.
        endings: For choices, ``n_choices`` rows for each example: each continuation without its last
            token; ``None`` if every continuation is a single token.
        n_choices: Most choices of one example.
    """

    items: tuple[Item, ...]
    bodies: Rows
    prompt_lengths: tuple[int, ...]
    drafts: tuple[tuple[int, ...], ...] = ()
    endings: Rows | None = None
    n_choices: int = 0


def context_ids(item: Item) -> tuple[int, ...]:
    """The tokens before the answer."""
    if hasattr(item.prompt, "context_ids"):
        return choice_prompt(item).context_ids
    return generation_prompt(item).token_ids


def common_prefix(items: Sequence[Item]) -> tuple[int, ...]:
    """The longest run of tokens with which all prompts begin, at least one token short of each prompt."""
    rows = [context_ids(item) for item in items]
    if len(rows) < 2:
        return ()
    first, last = min(rows), max(rows)
    shared = 0
    for left, right in zip(first, last, strict=False):
        if left != right:
            break
        shared += 1
    shared = min(shared, min(map(len, rows)) - 1)
    return first[:shared] if shared >= _SHORTEST_PREFIX else ()


def width(item: Item, draft: tuple[int, ...], prefix: int) -> int:
    """Tokens that an example takes in a chunk, padding left out."""
    own = len(context_ids(item)) - prefix + max(0, len(draft) - 1)
    if hasattr(item.prompt, "continuation_ids"):
        own += sum(len(one) - 1 for one in choice_prompt(item).continuation_ids)
    return own


def cut(widths: Sequence[int], tokens: int) -> list[range]:
    """Cut a sequence of examples into runs whose padded tokens stay within a budget, one at least."""
    runs, start, widest = [], 0, 0
    for place, one in enumerate(widths):
        widest = max(widest, one)
        if place > start and widest * (place + 1 - start) > tokens:
            runs.append(range(start, place))
            start, widest = place, one
    runs.append(range(start, len(widths)))
    return runs


def make_chunk(
    items: Sequence[Item], drafts: Sequence[tuple[int, ...]], prefix: int, device: device
) -> Chunk:
    """Lay examples out as rows.

    Args:
        items: Examples of one kind of request.
        drafts: For generation, the intact answers, or empty ones before they are known.
        prefix: Length of the common prefix.
        device: Where the rows lie.
    """
    contexts = [context_ids(item)[prefix:] for item in items]
    lengths = tuple(map(len, contexts))
    if drafts:
        rows = [context + draft[:-1] for context, draft in zip(contexts, drafts, strict=True)]
        return Chunk(
            items=tuple(items),
            bodies=_rows(rows, prefix, device),
            prompt_lengths=lengths,
            drafts=tuple(drafts),
        )
    return Chunk(
        items=tuple(items),
        bodies=_rows(contexts, prefix, device),
        prompt_lengths=lengths,
        endings=_endings(items, lengths, prefix, device),
        n_choices=max(len(choice_prompt(item).continuation_ids) for item in items),
    )


def _endings(items: Sequence[Item], lengths: Sequence[int], prefix: int, device: device) -> Rows | None:
    import torch

    n_choices = max(len(choice_prompt(item).continuation_ids) for item in items)
    rows: list[tuple[int, ...]] = []
    for item in items:
        inputs = [one[:-1] for one in choice_prompt(item).continuation_ids]
        rows += inputs + [()] * (n_choices - len(inputs))
    if not any(rows):
        return None
    starts = torch.tensor(lengths, device=device).repeat_interleave(n_choices) + prefix
    return _rows(rows, starts, device)


def _rows(rows: Sequence[tuple[int, ...]], offsets: Tensor | int, device: device) -> Rows:
    import torch

    tokens = torch.zeros(len(rows), max(map(len, rows)), dtype=torch.long)
    for place, row in enumerate(rows):
        tokens[place, : len(row)] = torch.tensor(row, dtype=torch.long)
    lengths = torch.tensor([len(row) for row in rows], device=device)
    return Rows(tokens=tokens.to(device), lengths=lengths, offsets=offsets)
