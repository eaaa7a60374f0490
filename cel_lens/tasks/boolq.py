r"""BoolQ: yes/no questions about a passage (Clark et al., 2019), scored as lm-evaluation-harness does.

The prompt is ``{passage}\nQuestion: {question}?\nAnswer:``, zero-shot, raw text. The answers `` no`` and
`` yes`` are compared by summed log-likelihood; an exact tie goes to ``no``, the first.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from cel_lens.errors import InvalidInput
from cel_lens.tasks.base import ChoiceScores, Choose, Example, Response, Verdict
from cel_lens.tasks.choices import prefer
from cel_lens.tasks.rows import Row
from cel_lens.tasks.sources import BenchmarkSource, Origin, drop_shared_groups, load_rows, origin_of

__all__ = ["BoolQ"]

_ANSWERS = ("no", "yes")

_SOURCE = BenchmarkSource(
    path="aps/super_glue",
    revision="3de24cf8022e94f4ee4b9d55a6f539891524d646",
    configs=("boolq",),
    splits={"train": "discovery", "validation": "heldout"},
    rows={"train": 9427, "validation": 3270},
)


@dataclass(frozen=True, kw_only=True)
class BoolQ:
    """The BoolQ task.

    Examples of one passage form a group: they never stand on both panels, and discovery takes one of them.

    Attributes:
        data: A JSONL or Parquet file with columns ``question``, ``passage`` and ``answer`` (true or
            false) or ``label`` (0 or 1); ``None``: the pinned revision of ``aps/super_glue`` on the Hugging
            Face Hub, discovery from its training and held-out from its validation split.
    """

    data: str | os.PathLike[str] | None = None
    name: str = field(default="boolq", init=False)
    protocol: str = field(default="completion-0shot", init=False)
    metric: str = field(default="acc", init=False)

    def examples(self) -> Sequence[Example]:
        """One example for each row, in order."""
        return _examples(origin_of(self.data))

    def request(self, example: Example) -> Choose:
        """Passage, question, and the two answers."""
        return Choose(context=example.prompt, choices=tuple(f" {one}" for one in example.choices))

    def judge(self, example: Example, response: Response) -> Verdict:
        """The likelier answer; ``no`` on an exact tie.

        Raises:
            EvaluationError: If a log-likelihood is not finite.
        """
        assert isinstance(response, ChoiceScores)
        found = prefer(response.log_likelihoods)
        answer = example.choices[found.chosen]
        return Verdict(correct=answer == example.target, answer=answer, flags=("tie",) if found.tied else ())


@lru_cache(maxsize=4)
def _examples(origin: Origin) -> tuple[Example, ...]:
    rows = load_rows(origin, _SOURCE, ("question", "passage"))
    return drop_shared_groups([_example(row) for row in rows])


def _example(row: Row) -> Example:
    passage, question = row.text("passage"), row.text("question")
    column = "answer" if "answer" in row.values else "label"
    if column not in row.values:
        raise InvalidInput(f"{row.place}: column 'answer' or 'label' is missing")
    return Example(
        id=f"boolq/{row.source}/{row.index:06d}",
        prompt=f"{passage}\nQuestion: {question}?\nAnswer:",
        target=_ANSWERS[row.number(column, range(2))],
        choices=_ANSWERS,
        group=passage,
        split=row.split,
    )
