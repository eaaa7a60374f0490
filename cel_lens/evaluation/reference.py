"""The reference engine: one condition at a time, by the model's own forward pass.

It is the plain loop that everybody writes, done carefully; faster engines must agree with it, example
by example.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from cel_lens.errors import EvaluationError
from cel_lens.evaluation.answers import collect, finish_generation, is_finished
from cel_lens.evaluation.batches import (
    Batch,
    Item,
    choice_prompt,
    generation_prompt,
    left_padded,
    make_batches,
    make_items,
    right_padded,
)
from cel_lens.heads import HeadSet
from cel_lens.models.ablation import Ablation, ablate
from cel_lens.models.protocol import LensModel
from cel_lens.results import Outcomes
from cel_lens.tasks import ChoiceScores, Example, Response, Task

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["ReferenceEngine"]

_POSITIONS_AT_ONCE = 512
"""Positions unembedded together, so that a large vocabulary does not fill the memory."""


class ReferenceEngine:
    """Evaluates head sets on one panel.

    Args:
        lens: The model.
        task: Asks and judges.
        examples: The panel.
        batch_size: Examples run together.
    """

    name = "reference"

    def __init__(self, lens: LensModel, task: Task, examples: Sequence[Example], batch_size: int) -> None:
        self._lens = lens
        self._task = task
        self._examples = tuple(examples)
        self._items = make_items(lens, task, examples)
        self._batch_size = batch_size

    def evaluate(
        self, head_sets: Sequence[HeadSet], places: Sequence[int] | None = None
    ) -> Iterator[Outcomes]:
        """The outcomes of each head set, in the given order.

        Args:
            head_sets: Conditions.
            places: Only the examples at these positions of the panel; ``None``: all.

        Raises:
            EvaluationError: If a logit is not finite; names the head set and the example.
        """
        import torch

        items = self._items if places is None else [self._items[place] for place in places]
        batches = make_batches(items, self._batch_size)
        for heads in head_sets:
            responses: dict[int, Response] = {}
            # not inference_mode: tables that TransformerLens keeps in the model may grow, for later use with gradients
            with torch.no_grad(), ablate(self._lens, heads) as ablation:
                for batch in batches:
                    run = self._generate if batch.generates else self._score
                    responses |= run(batch, ablation)
            _check_calls(ablation)
            yield collect(self._task, self._examples, responses, heads, ablation.inactive)

    def _generate(self, batch: Batch, ablation: Ablation) -> dict[int, Response]:
        import torch

        tokens, mask = left_padded(
            [generation_prompt(one).token_ids for one in batch.items], self._lens.device
        )
        cache = self._lens.new_cache(len(batch.items))
        written: list[list[int]] = [[] for _ in batch.items]
        running = list(range(len(batch.items)))
        while True:
            ablation.real = mask
            logits = self._lens.logits(self._lens.residual(tokens, mask, cache)[:, -1:])[:, 0]
            self._check_finite(logits[running], [batch.items[row] for row in running], ablation)
            chosen = logits.argmax(dim=-1)
            for row, token in zip(running, chosen[running].tolist(), strict=True):
                written[row].append(token)
            running = [row for row in running if not is_finished(self._lens, batch.items[row], written[row])]
            if not running:
                break
            tokens = chosen[:, None]
            mask = torch.ones_like(tokens)
        return {
            item.place: finish_generation(self._lens, item, token_ids)
            for item, token_ids in zip(batch.items, written, strict=True)
        }

    def _score(self, batch: Batch, ablation: Ablation) -> dict[int, Response]:
        rows = _distinct_rows(batch)
        tokens, mask = right_padded(list(rows), self._lens.device)
        ablation.real = mask
        residual = self._lens.residual(tokens, mask)
        return {item.place: self._scores(item, rows, residual, ablation) for item in batch.items}

    def _scores(
        self, item: Item, rows: dict[tuple[int, ...], int], residual: Tensor, ablation: Ablation
    ) -> ChoiceScores:
        import torch

        prompt = choice_prompt(item)
        start = len(prompt.context_ids) - 1
        likelihoods, greedy = [], []
        for continuation in prompt.continuation_ids:
            row = rows[prompt.context_ids + continuation[:-1]]
            total, path = 0.0, True
            for first in range(0, len(continuation), _POSITIONS_AT_ONCE):
                wanted = torch.tensor(
                    continuation[first : first + _POSITIONS_AT_ONCE], device=residual.device
                )
                places = slice(start + first, start + first + len(wanted))
                logits = self._lens.logits(residual[row : row + 1, places])[0]
                self._check_finite(logits, [item] * len(wanted), ablation)
                scores = logits.log_softmax(dim=-1).gather(1, wanted[:, None])
                total += float(scores.sum())
                path = path and bool((logits.argmax(dim=-1) == wanted).all())
            likelihoods.append(total)
            greedy.append(path)
        return ChoiceScores(
            log_likelihoods=tuple(likelihoods), greedy=tuple(greedy), boundary_merge=prompt.boundary_merge
        )

    def _check_finite(self, logits: Tensor, items: Sequence[Item], ablation: Ablation) -> None:
        finite = logits.isfinite().all(dim=-1)
        if not bool(finite.all()):
            item = items[int((~finite).nonzero()[0, 0])]
            raise EvaluationError(
                f"the model gives a logit that is not finite with {ablation.heads.label} on {item.example.id}"
            )


def _check_calls(ablation: Ablation) -> None:
    skipped = [layer for layer, calls in ablation.calls.items() if not calls]
    if skipped:
        raise EvaluationError(
            f"layer {skipped[0]} never ran while {ablation.heads.label} was removed, so nothing was ablated"
        )


def _distinct_rows(batch: Batch) -> dict[tuple[int, ...], int]:
    """Input rows of a choice batch: continuations that read the same input share one."""
    rows: dict[tuple[int, ...], int] = {}
    for item in batch.items:
        prompt = choice_prompt(item)
        for continuation in prompt.continuation_ids:
            rows.setdefault(prompt.context_ids + continuation[:-1], len(rows))
    return rows
