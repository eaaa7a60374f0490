"""From what a model did to verdicts; shared by all engines."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from cel_lens.evaluation.batches import Item, generation_prompt
from cel_lens.evaluation.encoding import decode
from cel_lens.heads import HeadSet
from cel_lens.models.protocol import LensModel
from cel_lens.results import Detail, Outcomes
from cel_lens.tasks import ChoiceScores, Example, Generation, Response, Task, Verdict, judge_all

__all__ = ["collect", "finish_generation", "is_finished"]


def is_finished(lens: LensModel, item: Item, token_ids: Sequence[int]) -> bool:
    """Whether generation of a row is over: an end-of-sequence token, a stop marker or the cap."""
    prompt = generation_prompt(item)
    if not token_ids:
        return False
    if token_ids[-1] in lens.eos_token_ids or len(token_ids) >= prompt.max_new_tokens:
        return True
    return _is_stopped(lens, tuple(token_ids), prompt.stop)


def finish_generation(lens: LensModel, item: Item, token_ids: Sequence[int]) -> Generation:
    """Cut the new tokens of one row where its answer ends.

    Everything after the first end-of-sequence token is dropped. If a stop marker is in the text, the
    shortest run of tokens whose text holds it is kept, and the response is the text before it: the
    marker decides first, because padding after a stop looks like an end of sequence.
    """
    prompt = generation_prompt(item)
    kept = tuple(token_ids)
    ends = [place for place, token in enumerate(kept) if token in lens.eos_token_ids]
    if ends:
        kept = kept[: ends[0] + 1]
    text = decode(lens, kept)
    # a thinking mark may be a special token, which the text leaves out
    thinking = re.search("</?think>", decode(lens, kept, special=True)) is not None
    if _is_stopped(lens, kept, prompt.stop):
        size = next(size for size in range(1, len(kept) + 1) if _is_stopped(lens, kept[:size], prompt.stop))
        text = decode(lens, kept[:size])
        # a marker that is a special token is not in the text
        first = min((text.index(marker) for marker in prompt.stop if marker in text), default=len(text))
        return Generation(text=text[:first], token_ids=kept[:size], stopped=True, thinking=thinking)
    capped = not ends and len(kept) >= prompt.max_new_tokens
    return Generation(text=text, token_ids=kept, ended=bool(ends), capped=capped, thinking=thinking)


def _is_stopped(lens: LensModel, token_ids: tuple[int, ...], stop: tuple[str, ...]) -> bool:
    """Whether a marker is in the text, read with special tokens or without."""
    texts = [decode(lens, token_ids, special=special) for special in (False, True)] if stop else []
    return any(marker in text for text in texts for marker in stop)


def collect(
    task: Task,
    examples: Sequence[Example],
    responses: Mapping[int, Response],
    heads: HeadSet,
    inactive: HeadSet,
) -> Outcomes:
    """Judge the responses of one condition, in panel order.

    Args:
        task: Judges.
        examples: The panel.
        responses: Position in the panel to response; the other examples are left out.
        heads: The removed heads.
        inactive: Those of them that had no output to remove.
    """
    places = sorted(responses)
    examples = [examples[place] for place in places]
    ordered = [responses[place] for place in places]
    verdicts = judge_all(task, examples, ordered)
    return Outcomes(
        heads=heads,
        task=task.name,
        protocol=task.protocol,
        metric=task.metric,
        example_ids=tuple(one.id for one in examples),
        correct=tuple(bool(one.correct) for one in verdicts),
        details=tuple(map(_detail, examples, ordered, verdicts)),
        inactive=inactive,
    )


def _detail(example: Example, response: Response, verdict: Verdict) -> Detail:
    answer, found = verdict.answer, list(verdict.flags)
    if answer is None:
        found.append("no-answer")
    if isinstance(response, Generation):
        if response.capped:
            found.append("capped")
        if response.thinking and "thinking" not in found:
            found.append("thinking")
        return Detail(
            answer=answer,
            target=example.target,
            text=response.text,
            token_ids=response.token_ids,
            flags=tuple(found),
        )
    assert isinstance(response, ChoiceScores)
    if response.boundary_merge:
        found.append("boundary-merge")
    return Detail(
        answer=answer,
        target=example.target,
        log_likelihoods=response.log_likelihoods,
        flags=tuple(found),
    )
