"""First-order attribution: what removing each head would do to every decision, from one forward and one backward.

A decision is a *margin*, positive when the verdict is "right". Removing a head takes its output ``z`` to zero, so to
first order the margin changes by ``-(d margin / d z) . z``, summed over positions (attribution patching: Nanda, 2023;
Syed, Rager and Conmy, "Attribution patching outperforms automated circuit discovery", 2023). A prediction, not a
measurement: how good it is has to be checked against real removals.

The margin of an example is

* for choices, the score of the right choice less the best score of a wrong one;
* for generated text, and for a single choice that has to be the greedy path, the smallest difference between the
  logit of the token that should come and the best other one, along the right answer. That is the intact answer if it
  is right; else the intact answer with the target in the place of what it answered. Where no right answer is known that
  way, the example has no margin, and nothing is predicted for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from cel_lens.evaluation.answers import finish_generation
from cel_lens.evaluation.batches import Item, choice_prompt, generation_prompt, make_items, right_padded
from cel_lens.evaluation.encoding import decode
from cel_lens.heads import Head
from cel_lens.models.protocol import LensModel
from cel_lens.results import Outcomes
from cel_lens.tasks import ChoiceScores, Example, Response, Task, judge_all

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Attribution", "PredictedCounts", "attribute"]

_BYTES = 1 << 30
"""Memory for what the backward pass needs, unless a single example takes more."""


class PredictedCounts(NamedTuple):
    """How many verdicts removing a head is predicted to change.

    Attributes:
        head: The head.
        rescued: Decisions whose margin becomes positive.
        damaged: Decisions whose margin is no longer positive.
    """

    head: Head
    rescued: int
    damaged: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribution:
    """Margins of the intact model and their predicted changes.

    Attributes:
        margins: ``[examples]``, in panel order; positive when right, NaN where there is none.
        changes: ``[layers, heads, examples]``: first-order change of the margin when the head is removed; 0 where
            there is no margin.
    """

    margins: npt.NDArray[np.float64]
    changes: npt.NDArray[np.float64]

    @property
    def n_without_margin(self) -> int:
        """Examples for which nothing is predicted."""
        return int(np.isnan(self.margins).sum())

    def ranking(self) -> list[PredictedCounts]:
        """Every head, the largest predicted gain first; ties in favour of the larger mean change, then coordinates."""
        known = ~np.isnan(self.margins)
        before, moved = self.margins[known], self.changes[:, :, known]
        after = before + moved
        rescued = ((before <= 0) & (after > 0)).sum(axis=-1)
        damaged = ((before > 0) & (after <= 0)).sum(axis=-1)
        total = moved.sum(axis=-1)
        found = [
            PredictedCounts(Head(layer, index), int(rescued[layer, index]), int(damaged[layer, index]))
            for layer, index in np.ndindex(rescued.shape)
        ]
        return sorted(
            found,
            key=lambda one: (one.damaged - one.rescued, -total[one.head.layer, one.head.index], one.head),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Path:
    """Token ids in a row, whose tokens from ``start`` on should come."""

    token_ids: tuple[int, ...]
    start: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Question:
    """One example as rows and a rule that makes a margin of them.

    Attributes:
        place: Position in the panel.
        paths: One for each choice, or the one right answer.
        right: For choices, which of them are right; ``None``: the path has to be greedy.
        divisors: For choices, what each score is divided by.
    """

    place: int
    paths: tuple[_Path, ...]
    right: tuple[bool, ...] | None = None
    divisors: tuple[int, ...] = ()

    @property
    def rows(self) -> tuple[tuple[int, ...], ...]:
        """The distinct inputs."""
        return tuple(dict.fromkeys(path.token_ids[:-1] for path in self.paths))


def attribute(lens: LensModel, task: Task, examples: Sequence[Example], intact: Outcomes) -> Attribution:
    """Predict what removing each head would do, example by example.

    Args:
        lens: The model, nothing ablated. No gradient is left on its weights.
        task: Asks and judges.
        examples: The panel.
        intact: What the intact model answered, in panel order.

    Returns:
        Margins and changes; nothing is evaluated.
    """
    import torch

    questions = _questions(lens, task, examples, intact)
    margins = np.full(len(examples), np.nan)
    changes = np.zeros((lens.n_layers, lens.n_heads, len(examples)))
    with torch.inference_mode(False), torch.enable_grad():
        for batch in _batches(lens, questions):
            found, moved = _one_batch(lens, batch)
            places = [one.place for one in batch]
            margins[places] = found
            changes[:, :, places] = moved
    return Attribution(margins=margins, changes=changes)


def _one_batch(
    lens: LensModel, questions: Sequence[_Question]
) -> tuple[list[float], npt.NDArray[np.float64]]:
    """Margins, and their changes ``[layers, heads, questions]``."""
    import torch

    rows = [row for one in questions for row in one.rows]
    owner = torch.tensor([at for at, one in enumerate(questions) for _ in one.rows], device=lens.device)
    tokens, mask = right_padded(rows, lens.device)
    with _heads_outputs(lens) as outputs:
        residual = lens.residual(tokens, mask)
    # the margins' own backward goes first, one example at a time: logits of a large vocabulary are not kept
    top = residual.detach()
    slope = torch.zeros_like(top)
    margins, first = [], 0
    for one in questions:
        mine = slice(first, first + len(one.rows))
        leaf = top[mine].clone().requires_grad_()
        margin = _margin(lens, one, leaf)
        (slope[mine],) = torch.autograd.grad(margin, leaf)
        margins.append(float(margin.detach()))
        first = mine.stop
    gradients = torch.autograd.grad(residual, outputs, slope, allow_unused=True)
    changes = np.zeros((lens.n_layers, lens.n_heads, len(questions)))
    for layer, (z, gradient) in enumerate(zip(outputs, gradients, strict=True)):
        if gradient is None:  # what the layer writes is not read
            continue
        by_row = -(z.detach().float() * gradient.float()).sum(dim=(1, 3))  # [rows, head]
        by_question = by_row.new_zeros(len(questions), lens.n_heads).index_add_(0, owner, by_row)
        changes[layer] = by_question.T.cpu().numpy()
    return margins, changes


@contextmanager
def _heads_outputs(lens: LensModel) -> Iterator[list[Tensor]]:
    """Every layer's ``z`` of the pass inside, in the graph of the pass."""
    found: list[Any] = [None] * lens.n_layers

    def note(layer: int) -> Any:
        def hook(module: Any, inputs: Any, output: Tensor) -> Tensor:
            # frozen weights make no graph below the first head
            found[layer] = output if output.requires_grad else output.detach().requires_grad_()
            return found[layer]  # type: ignore[no-any-return]

        return hook

    with ExitStack() as stack:
        for layer in range(lens.n_layers):
            stack.callback(lens.hook_z(layer).register_forward_hook(note(layer)).remove)
        yield found


def _margin(lens: LensModel, question: _Question, residual: Tensor) -> Tensor:
    """The margin of one example from the residual streams of its rows, ``[rows, pos, d_model]``."""
    import torch

    rows = {row: place for place, row in enumerate(question.rows)}
    scores = []
    for path in question.paths:
        wanted = torch.tensor(path.token_ids[path.start :], device=residual.device)
        row = rows[path.token_ids[:-1]]
        logits = lens.logits(residual[row : row + 1, path.start - 1 : len(path.token_ids) - 1])[0]
        if question.right is None:
            here = logits.gather(1, wanted[:, None])
            others = logits.scatter(1, wanted[:, None], -torch.inf).amax(dim=1, keepdim=True)
            return (here - others).min()
        scores.append(logits.log_softmax(dim=-1).gather(1, wanted[:, None]).sum())
    normed = torch.stack(scores) / torch.tensor(question.divisors, device=residual.device)
    right = torch.tensor(question.right, device=residual.device)
    return normed[right].max() - normed[~right].max()


def _questions(lens: LensModel, task: Task, examples: Sequence[Example], intact: Outcomes) -> list[_Question]:
    items = make_items(lens, task, examples)
    if items[0].generates:
        return _right_answers(lens, task, items, intact)
    found = [_choices(task, item) for item in items]
    return [one for one in found if one is not None]


def _choices(task: Task, item: Item) -> _Question | None:
    """Which choices are right is asked of the judge, one choice at a time."""
    prompt = choice_prompt(item)
    n_choices = len(prompt.continuation_ids)
    paths = tuple(
        _Path(token_ids=prompt.context_ids + one, start=len(prompt.context_ids))
        for one in prompt.continuation_ids
    )
    if n_choices == 1:
        return _Question(place=item.place, paths=paths)
    right = tuple(
        task.judge(item.example, _as_if_preferred(chosen, n_choices)).correct for chosen in range(n_choices)
    )
    if all(right) or not any(right):
        return None
    texts = item.example.choices
    per_character = task.metric == "acc_norm" and len(texts) == n_choices
    divisors = tuple(max(1, len(one)) for one in texts) if per_character else (1,) * n_choices
    return _Question(place=item.place, paths=paths, right=right, divisors=divisors)


def _as_if_preferred(chosen: int, n_choices: int) -> ChoiceScores:
    return ChoiceScores(
        log_likelihoods=tuple(-1e-3 if place == chosen else -1e6 for place in range(n_choices)),
        greedy=tuple(place == chosen for place in range(n_choices)),
    )


def _right_answers(lens: LensModel, task: Task, items: Sequence[Item], intact: Outcomes) -> list[_Question]:
    answers = {
        item.place: intact.details[item.place].token_ids for item in items if intact.correct[item.place]
    }
    guesses: dict[int, tuple[int, ...]] = {}
    for item in items:
        guess = None if item.place in answers else _with_target(lens, item, intact)
        if guess is not None:
            guesses[item.place] = guess
    asked = [items[place] for place in guesses]
    responses: list[Response] = [finish_generation(lens, item, guesses[item.place]) for item in asked]
    verdicts = judge_all(task, [item.example for item in asked], responses) if asked else []
    answers |= {
        item.place: guesses[item.place]
        for item, verdict in zip(asked, verdicts, strict=True)
        if verdict.correct
    }
    found = []
    for place, answer in sorted(answers.items()):
        prompt = generation_prompt(items[place]).token_ids
        if answer:
            path = _Path(token_ids=prompt + answer, start=len(prompt))
            found.append(_Question(place=place, paths=(path,)))
    return found


def _with_target(lens: LensModel, item: Item, intact: Outcomes) -> tuple[int, ...] | None:
    """The intact answer's tokens with the target where it answered something else."""
    detail = intact.details[item.place]
    kept = list(detail.token_ids)
    ends = []
    while kept and kept[-1] in lens.eos_token_ids:
        ends.append(kept.pop())
    text = decode(lens, tuple(kept))
    if not detail.answer or detail.answer not in text:
        return None
    changed = text.replace(detail.answer, detail.target, 1)
    written = tuple(lens.tokenizer.encode(changed, add_special_tokens=False)) + tuple(ends)
    return written[: generation_prompt(item).max_new_tokens]


def _batches(lens: LensModel, questions: Sequence[_Question]) -> list[list[_Question]]:
    """Examples of similar length together, within the memory that a backward pass may take."""
    ordered = sorted(questions, key=lambda one: (max(map(len, one.rows)), one.place))
    batches: list[list[_Question]] = []
    for one in ordered:
        together = [*batches[-1], one] if batches else [one]
        if batches and _backward_bytes(lens, together) <= _BYTES:
            batches[-1].append(one)
        else:
            batches.append([one])
    return batches


def _backward_bytes(lens: LensModel, questions: Sequence[_Question]) -> int:
    """About what a forward pass keeps for its backward: some copies of every stream, and the attention weights."""
    n_rows = sum(len(one.rows) for one in questions)
    width = max(len(row) for one in questions for row in one.rows)
    streams = 10 * lens.d_model + 5 * lens.d_mlp + 8 * lens.n_heads * lens.d_head
    return 4 * lens.n_layers * n_rows * width * (streams + 4 * lens.n_heads * width)
