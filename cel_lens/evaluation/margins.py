"""How close a model's decisions are: by how much the nearest other answer was missed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from cel_lens.evaluation.batches import Item, generation_prompt, make_batches, make_items, right_padded
from cel_lens.models.protocol import LensModel
from cel_lens.results import Detail, Outcomes
from cel_lens.tasks import Example, Task

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["decision_margins"]


def decision_margins(
    lens: LensModel, task: Task, examples: Sequence[Example], outcomes: Outcomes, *, batch_size: int
) -> tuple[float, ...]:
    """The margin of every decision of the intact model.

    Args:
        lens: The model, nothing ablated.
        task: Says how to ask.
        examples: The panel.
        outcomes: What the intact model answered, in panel order.
        batch_size: Answers checked together.

    Returns:
        One number of at least 0 for each example. For choices, the best log-likelihood less the second
        best; for generation, the smallest difference between the two largest logits along the answer.
    """
    import torch

    items = make_items(lens, task, examples)
    if not items[0].generates:
        return tuple(_between_choices(one) for one in outcomes.details)
    margins = [0.0] * len(items)
    with torch.no_grad():
        for batch in make_batches(items, batch_size):
            answers = [outcomes.details[item.place].token_ids for item in batch.items]
            found = _along_answers(lens, batch.items, answers)
            for item, margin in zip(batch.items, found, strict=True):
                margins[item.place] = margin
    return tuple(margins)


def _between_choices(detail: Detail) -> float:
    best = sorted(detail.log_likelihoods, reverse=True)
    return best[0] - best[1] if len(best) > 1 else 0.0


def _along_answers(lens: LensModel, items: Sequence[Item], answers: Sequence[tuple[int, ...]]) -> list[float]:
    """One pass over prompts with their answers; logits of one answer at a time."""
    prompts = [generation_prompt(item).token_ids for item in items]
    rows = [prompt + answer[:-1] for prompt, answer in zip(prompts, answers, strict=True)]
    tokens, mask = right_padded(rows, lens.device)
    residual: Tensor = lens.residual(tokens, mask)
    margins = []
    for place, (prompt, row) in enumerate(zip(prompts, rows, strict=True)):
        top = lens.logits(residual[place, len(prompt) - 1 : len(row)]).topk(2, dim=-1).values
        margins.append(float((top[:, 0] - top[:, 1]).min()))
    return margins
