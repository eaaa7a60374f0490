"""Rows of similar length together: made once, the same for the intact and every ablated model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cel_lens.errors import InvalidInput
from cel_lens.evaluation.encoding import ChoicePrompt, GenerationPrompt, Prompt, encode_request
from cel_lens.models.protocol import LensModel
from cel_lens.tasks import Example, Task

if TYPE_CHECKING:
    from torch import Tensor, device

__all__ = [
    "Batch",
    "Item",
    "choice_prompt",
    "generation_prompt",
    "left_padded",
    "make_batches",
    "make_items",
    "right_padded",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One example ready to run.

    Attributes:
        place: Its position in the panel.
        example: The example.
        prompt: Its encoded prompt.
    """

    place: int
    example: Example
    prompt: Prompt

    @property
    def length(self) -> int:
        """Tokens of the longest input row."""
        if isinstance(self.prompt, GenerationPrompt):
            return len(self.prompt.token_ids)
        return len(self.prompt.context_ids) + max(map(len, self.prompt.continuation_ids))

    @property
    def generates(self) -> bool:
        """Whether text is generated; otherwise continuations are scored."""
        return isinstance(self.prompt, GenerationPrompt)


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Examples that run together; all are asked in the same form.

    Attributes:
        items: The examples, shortest first.
    """

    items: tuple[Item, ...]

    @property
    def generates(self) -> bool:
        """Whether text is generated; otherwise continuations are scored."""
        return self.items[0].generates


def make_items(lens: LensModel, task: Task, examples: Sequence[Example]) -> tuple[Item, ...]:
    """Encode all examples, in panel order.

    Args:
        lens: The model.
        task: Says how to ask.
        examples: A panel.

    Raises:
        InvalidInput: If there are no examples, the task asks in two forms, or a prompt cannot be encoded.
    """
    if not examples:
        raise InvalidInput("there are no examples to evaluate")
    items = tuple(
        Item(place=place, example=one, prompt=encode_request(lens, one, task.request(one)))
        for place, one in enumerate(examples)
    )
    if len({one.generates for one in items}) > 1:
        raise InvalidInput(f"the task {task.name} asks for text of some examples and for choices of others")
    return items


def make_batches(items: Sequence[Item], batch_size: int) -> tuple[Batch, ...]:
    """Put examples of similar length together.

    Args:
        items: Encoded examples.
        batch_size: Examples in one batch.
    """
    ordered = sorted(items, key=lambda one: (one.length, one.example.id))
    return tuple(
        Batch(items=tuple(ordered[start : start + batch_size]))
        for start in range(0, len(ordered), batch_size)
    )


def choice_prompt(item: Item) -> ChoicePrompt:
    """The prompt of an item of a choice batch."""
    assert isinstance(item.prompt, ChoicePrompt)
    return item.prompt


def generation_prompt(item: Item) -> GenerationPrompt:
    """The prompt of an item of a generation batch."""
    assert isinstance(item.prompt, GenerationPrompt)
    return item.prompt


def left_padded(rows: Sequence[tuple[int, ...]], device: device) -> tuple[Tensor, Tensor]:
    """Token ids and mask, ``[batch, pos]``, real tokens at the end; padding is masked, so its token does not matter."""
    return _padded(rows, device, left=True)


def right_padded(rows: Sequence[tuple[int, ...]], device: device) -> tuple[Tensor, Tensor]:
    """Token ids and mask, ``[batch, pos]``, real tokens at the start; padding is masked."""
    return _padded(rows, device, left=False)


def _padded(rows: Sequence[tuple[int, ...]], device: device, *, left: bool) -> tuple[Tensor, Tensor]:
    import torch

    width = max(map(len, rows))
    tokens = torch.zeros(len(rows), width, dtype=torch.long)
    mask = torch.zeros_like(tokens)
    for place, row in enumerate(rows):
        where = slice(width - len(row), width) if left else slice(0, len(row))
        tokens[place, where] = torch.tensor(row)
        mask[place, where] = 1
    return tokens.to(device), mask.to(device)
