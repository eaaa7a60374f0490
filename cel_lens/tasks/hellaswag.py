"""HellaSwag: which of four endings continues a text (Zellers et al., 2019), as lm-evaluation-harness scores it.

The context is ``{activity_label}: {ctx_a} {ctx_b}`` with ``ctx_b`` capitalised; context and endings are
cleaned of the marks that the WikiHow texts carry. Two metrics: ``acc`` compares summed log-likelihoods,
``acc_norm`` divides each by the number of characters of its cleaned ending; ties go to the first.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

from cel_lens.errors import InvalidInput
from cel_lens.tasks.base import ChoiceScores, Choose, Example, Response, Verdict
from cel_lens.tasks.choices import ChoiceMetric, prefer
from cel_lens.tasks.rows import Row
from cel_lens.tasks.sources import BenchmarkSource, Origin, Side, drop_shared_groups, load_rows, origin_of

__all__ = ["HellaSwag", "clean_text"]

_COLUMNS = ("activity_label", "ctx_a", "ctx_b", "endings", "label")

_SIDES: dict[str, Side] = {"train": "discovery", "val": "heldout"}

_SOURCE = BenchmarkSource(
    path="Rowan/hellaswag",
    revision="218ec52e09a7e7462a5400043bb9a69a41d06b76",
    configs=("default",),
    splits={"train": "discovery", "validation": "heldout"},
    rows={"train": 39905, "validation": 10042},
)


@dataclass(frozen=True, kw_only=True)
class HellaSwag:
    """The HellaSwag task.

    Examples with the same known ``source_id`` form a group.

    Attributes:
        metric: ``"acc_norm"`` or ``"acc"``. Examples that the other metric counts as right carry the flag
            ``"right-by-acc"`` or ``"right-by-acc_norm"``, so both can be read from one result.
        data: A JSONL or Parquet file with the published columns; ``None``: the pinned revision of
            ``Rowan/hellaswag`` on the Hugging Face Hub, discovery from its training and held-out from its
            validation split. A local file whose column ``split`` holds both ``train`` and ``val`` keeps them
            apart in the same way.
    """

    metric: ChoiceMetric = "acc_norm"
    data: str | os.PathLike[str] | None = None
    name: str = field(default="hellaswag", init=False)
    protocol: str = field(default="completion-0shot", init=False)

    def __post_init__(self) -> None:
        if self.metric not in ("acc_norm", "acc"):
            raise InvalidInput(f"metric is 'acc_norm' or 'acc', not {self.metric!r}")

    def examples(self) -> Sequence[Example]:
        """One example for each row, in order."""
        return _examples(origin_of(self.data))

    def request(self, example: Example) -> Choose:
        """The cleaned context and its four endings."""
        return Choose(context=example.prompt, choices=tuple(f" {one}" for one in example.choices))

    def judge(self, example: Example, response: Response) -> Verdict:
        """The ending with the best score; the first of them on an exact tie.

        Raises:
            EvaluationError: If a log-likelihood is not finite.
        """
        assert isinstance(response, ChoiceScores)
        gold = int(example.fields["label"])
        plain = prefer(response.log_likelihoods)
        per_character = prefer(response.log_likelihoods, [len(one) for one in example.choices])
        used, other = (per_character, plain) if self.metric == "acc_norm" else (plain, per_character)
        flags = ["tie"] if used.tied else []
        if other.chosen == gold:
            flags.append("right-by-acc" if self.metric == "acc_norm" else "right-by-acc_norm")
        return Verdict(correct=used.chosen == gold, answer=example.choices[used.chosen], flags=tuple(flags))


def clean_text(text: str) -> str:
    """Take the marks of WikiHow texts out of a context or an ending.

    Outer white space goes first and is not looked at again, so an ending that begins with a mark keeps
    the space behind it; two spaces become one in a single pass.

    Example:
        >>> clean_text("Care: [header] How to X [title] Do Y. [step] Z. ")
        'Care: How to X. Do Y. Z.'
        >>> clean_text("[title] Start")
        ' Start'
    """
    found = text.strip().replace(" [title]", ". ")
    return re.sub(r"\[.*?\]", "", found).replace("  ", " ")


@lru_cache(maxsize=4)
def _examples(origin: Origin) -> tuple[Example, ...]:
    rows = load_rows(origin, _SOURCE, _COLUMNS)
    if {row.values.get("split") for row in rows} >= set(_SIDES):
        rows = tuple(replace(row, split=_SIDES.get(row.values["split"])) for row in rows)
    return drop_shared_groups([_example(row) for row in rows])


def _example(row: Row) -> Example:
    # str.capitalize also lowers every other letter, as the published protocol does
    second = row.text("ctx_b", empty=True).capitalize()
    query = clean_text(f"{row.text('activity_label')}: {row.text('ctx_a', empty=True)} {second}")
    endings = tuple(clean_text(one) for one in row.texts("endings", count=4))
    if not query.partition(": ")[2].strip():
        raise InvalidInput(
            f"{row.place}: columns 'ctx_a' and 'ctx_b': nothing is left of them after cleaning"
        )
    empty = [place for place, one in enumerate(endings, start=1) if not one.strip()]
    if empty:
        raise InvalidInput(
            f"{row.place}: column 'endings': nothing is left of ending {empty[0]} after cleaning"
        )
    label = row.number("label", range(4))
    source = row.text("source_id", empty=True) if "source_id" in row.values else ""
    return Example(
        id=f"hellaswag/{row.source}/{row.index:06d}",
        prompt=query,
        target=endings[label],
        choices=endings,
        group=source,
        split=row.split,
        fields={"label": label},
    )
