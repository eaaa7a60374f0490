"""The sweep engine: evaluates many head sets on one panel."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from cel_lens.errors import UnsupportedModel
from cel_lens.evaluation.answers import collect
from cel_lens.evaluation.batches import Item, make_items
from cel_lens.evaluation.sweep.choices import score_chunk
from cel_lens.evaluation.sweep.climb import Counter, Machine, Shared, climb
from cel_lens.evaluation.sweep.generation import Writer
from cel_lens.evaluation.sweep.intact import Intact
from cel_lens.evaluation.sweep.memory import Budget
from cel_lens.evaluation.sweep.panel import Chunk, common_prefix, cut, make_chunk, width
from cel_lens.evaluation.sweep.plan import Group, make_groups
from cel_lens.heads import INTACT, HeadSet
from cel_lens.models.protocol import LensModel
from cel_lens.results import Outcomes
from cel_lens.tasks import Example, Generation, Response, Task

__all__ = ["SweepEngine", "why_not_sweep"]

_BANDS = 6
"""A panel too large for the memory is walked through once for each band of layers."""


def why_not_sweep(lens: LensModel) -> str | None:
    """Why a model cannot be swept, as in "because it has ..."; ``None`` if it can."""
    reason = lens.why_not_by_layer()
    if reason is not None:
        return reason
    layers = lens.layers
    rules = [layers.attention_rule(layer) for layer in range(layers.n_layers)]
    if any(rule.soft_cap is not None for rule in rules):
        return "it has a soft cap on attention scores"
    if any(rule.window is not None for rule in rules):
        return "it has sliding-window attention"
    return None


class SweepEngine:
    """Gives the reference engine's outcomes by sharing whatever conditions and examples have in common.

    Args:
        lens: The model.
        task: Asks and judges.
        examples: The panel.
        memory: Memory it may use for activations, in bytes or as limits; ``None``: 60 % of what is free.

    Attributes:
        counter: The work done so far.

    Raises:
        UnsupportedModel: If the model cannot be run layer by layer.
    """

    name = "sweep"

    def __init__(
        self, lens: LensModel, task: Task, examples: Sequence[Example], *, memory: int | Budget | None = None
    ) -> None:
        reason = why_not_sweep(lens)
        if reason is not None:
            raise UnsupportedModel(
                f"the sweep engine cannot run this model because {reason}: use the reference engine"
            )
        self.counter = Counter()
        self._lens, self._task = lens, task
        self._machine = Machine(lens, lens.layers, self.counter, set())
        self._examples = tuple(examples)
        items = make_items(lens, task, examples)
        self._items = tuple(sorted(items, key=lambda one: (one.length, one.example.id)))
        self._generates = self._items[0].generates
        self._prefix = common_prefix(self._items)
        self._budget = (
            memory
            if isinstance(memory, Budget)
            else Budget.of(lens, memory, longest=self._items[-1].length, keeps_below=self._generates)
        )
        self._answers: dict[int, Generation] = {}

    def evaluate(
        self, head_sets: Sequence[HeadSet], places: Sequence[int] | None = None
    ) -> Iterator[Outcomes]:
        """The outcomes of every head set, by ascending lowest layer, smaller ones first.

        Args:
            head_sets: Conditions.
            places: Only the examples at these positions of the panel; ``None``: all.

        Raises:
            EvaluationError: If a logit is not finite; names the head set and the example.
        """
        with torch.no_grad():
            if self._generates and not self._answers:
                self._find_intact_answers()
        wanted = list(dict.fromkeys(head_sets))
        if self._generates and INTACT in wanted:
            wanted.remove(INTACT)
            chosen = self._answers if places is None else {place: self._answers[place] for place in places}
            known: dict[int, Response] = dict(chosen)
            yield collect(self._task, self._examples, known, INTACT, INTACT)
        slices = self._slices(None if places is None else set(places))
        for band in self._bands(make_groups(wanted), len(slices)):
            found: dict[HeadSet, dict[int, Response]] = {
                heads: {} for group in band for heads in group.head_sets
            }
            for number, part in enumerate(slices):
                # gradients must not stay switched off while the caller has control
                walk = self._walk(part, band)
                while True:
                    with torch.no_grad():
                        step = next(walk, None)
                    if step is None:
                        break
                    group, responses = step
                    for heads, some in zip(group.head_sets, responses, strict=True):
                        found[heads] |= some
                    if number == len(slices) - 1:
                        for heads in sorted(group.head_sets, key=lambda one: (len(one), one)):
                            yield self._outcomes(heads, found.pop(heads))

    def _walk(
        self, part: Sequence[Item], groups: Sequence[Group]
    ) -> Iterator[tuple[Group, list[dict[int, Response]]]]:
        """Walk the intact model up through a slice and let each group climb from its layer."""
        drafts = [self._answers[item.place].token_ids for item in part] if self._answers else None
        chunks = self._chunks(part, drafts, max(len(group.head_sets) for group in groups))
        intact = Intact(self._machine, self._prefix, chunks, keep_below=self._generates)
        for group in groups:
            intact.advance(group.layer)
            yield group, self._climb(group, intact, chunks)

    def _climb(self, group: Group, intact: Intact, chunks: Sequence[Chunk]) -> list[dict[int, Response]]:
        before: list[Shared] = []
        prefix = intact.prefix()
        if prefix is not None:
            nothing = prefix[0].tokens[:, :0]  # only its keys and values are used
            seen = climb(self._machine, group, *prefix, [], record=True, read=nothing).seen
            before = [Shared(layers=seen)]
        if self._generates:
            writer = Writer(self._machine, group, intact, before)
            for place, chunk in enumerate(chunks):
                writer.add(place, chunk)
            return writer.responses()
        found: list[dict[int, Response]] = [{} for _ in group.head_sets]
        for place, chunk in enumerate(chunks):
            scores = score_chunk(self._machine, group, intact, place, chunk, before)
            for responses, more in zip(found, scores, strict=True):
                responses.update(more)
        return found

    def _find_intact_answers(self) -> None:
        group = Group(layer=0, head_sets=(INTACT,), forks={})
        answers: dict[int, Generation] = {}
        for part in self._slices():
            chunks = self._chunks(part, [()] * len(part), 1)
            intact = Intact(self._machine, self._prefix, chunks, keep_below=True)
            (responses,) = self._climb(group, intact, chunks)
            for place, response in responses.items():
                assert isinstance(response, Generation)
                answers[place] = response
        self._answers = answers

    def _outcomes(self, heads: HeadSet, responses: dict[int, Response]) -> Outcomes:
        inactive = HeadSet(tuple(head for head in heads if head not in self._machine.active))
        return collect(self._task, self._examples, responses, heads, inactive)

    def _slices(self, places: set[int] | None = None) -> list[Sequence[Item]]:
        items = [item for item in self._items if places is None or item.place in places]
        runs = cut([self._width(item) for item in items], self._budget.slice_tokens)
        return [[items[place] for place in run] for run in runs]

    def _chunks(
        self, part: Sequence[Item], drafts: Sequence[tuple[int, ...]] | None, n_states: int
    ) -> list[Chunk]:
        tokens = max(1, self._budget.chunk_tokens // n_states)
        runs = cut([self._width(item) for item in part], tokens)
        return [
            make_chunk(
                [part[place] for place in run],
                [] if drafts is None else [drafts[place] for place in run],
                len(self._prefix),
                self._lens.device,
            )
            for run in runs
        ]

    def _width(self, item: Item) -> int:
        answer = self._answers.get(item.place)
        return width(item, () if answer is None else answer.token_ids, len(self._prefix))

    def _bands(self, groups: list[Group], n_slices: int) -> list[list[Group]]:
        if n_slices == 1 or len(groups) <= _BANDS:
            return [groups] if groups else []
        size = -(-len(groups) // _BANDS)
        return [groups[start : start + size] for start in range(0, len(groups), size)]
