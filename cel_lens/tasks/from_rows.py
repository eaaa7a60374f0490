"""A task from a local file: prompts with choices, or prompts with a target text."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Literal, TypeAlias, get_args

from cel_lens.errors import InvalidInput
from cel_lens.tasks.base import (
    ChoiceScores,
    Choose,
    Example,
    Generate,
    Generation,
    Request,
    Response,
    Style,
    Verdict,
)
from cel_lens.tasks.choices import prefer
from cel_lens.tasks.rows import Row, read_rows
from cel_lens.tasks.sources import Origin, Side, origin_of

__all__ = ["Rows", "RowsMetric", "rows_task"]

RowsMetric: TypeAlias = Literal["acc", "acc_norm", "exact-match"]
"""How rows are judged."""

_SPLITS: dict[str, Side] = {"discovery": "discovery", "heldout": "heldout", "": None}


@dataclass(frozen=True, kw_only=True)
class Rows:
    r"""A task whose rows hold everything.

    Rows have the columns ``prompt``, ``choices`` (a list of texts) and ``answer`` (one of the choices, or its
    index from 0), and the likeliest choice is the model's answer; or the columns ``prompt`` and ``target``, and
    the model's text must be the target, white space around both left aside. Further columns are optional:
    ``group`` (rows of one group never stand on both panels), ``stratum`` (panels hold the same mix) and ``split``
    (``discovery`` or ``heldout`` fixes the panel).

    Attributes:
        data: A JSONL or Parquet file.
        metric: For rows with choices ``"acc"``, or ``"acc_norm"`` for log-likelihoods per character; for rows
            with a target ``"exact-match"``.
        delimiter: For rows with choices: put between prompt and choice.
        style: For rows with a target: ``"completion"`` (raw text) or ``"chat"`` (the model's template).
        max_new_tokens: For rows with a target: longest answer.
        stop: For rows with a target: the answer ends before one of these.
        extract: For rows with a target: a regular expression; its first group in the model's text, or its whole
            match without a group, is the answer. Text without a match holds no answer.

    Example:
        >>> task = get_task("rows", data="capitals.jsonl")  # {"prompt": "France:", "target": "Paris"}
    """

    data: str | os.PathLike[str]
    metric: RowsMetric
    delimiter: str = " "
    style: Style = "completion"
    max_new_tokens: int = 32
    stop: tuple[str, ...] = ("\n",)
    extract: str = ""

    def __post_init__(self) -> None:
        if self.metric not in get_args(RowsMetric):
            raise InvalidInput(f"metric is 'acc', 'acc_norm' or 'exact-match', not {self.metric!r}")
        if self.style not in ("completion", "chat"):
            raise InvalidInput(f"style is 'completion' or 'chat', not {self.style!r}")
        try:
            re.compile(self.extract)
        except re.error as error:
            raise InvalidInput(f"extract is not a regular expression ({error}): {self.extract!r}") from error
        Generate(prompt="", max_new_tokens=self.max_new_tokens, stop=self.stop)

    @property
    def name(self) -> str:
        """``rows/`` and the name of the file."""
        return f"rows/{Path(self.data).stem}"

    @property
    def protocol(self) -> str:
        """Style and settings."""
        if self.metric != "exact-match":
            return "choices" if self.delimiter == " " else f"choices after {self.delimiter!r}"
        settings = f"{self.style}, at most {self.max_new_tokens} tokens, stop {list(self.stop)}"
        return settings + (
            f", extract {sha256(self.extract.encode()).hexdigest()[:8]}" if self.extract else ""
        )

    def examples(self) -> Sequence[Example]:
        """One example for each row, in order."""
        return _examples(origin_of(self.data))

    def request(self, example: Example) -> Request:
        """The prompt with its choices, or to be continued."""
        if example.choices:
            return Choose(
                context=example.prompt, choices=tuple(self.delimiter + one for one in example.choices)
            )
        return Generate(
            prompt=example.prompt,
            max_new_tokens=self.max_new_tokens,
            stop=self.stop,
            style=self.style,
        )

    def judge(self, example: Example, response: Response) -> Verdict:
        """Compare the likeliest choice, or the extracted text, with the answer."""
        if isinstance(response, ChoiceScores):
            lengths = [len(one) for one in example.choices] if self.metric == "acc_norm" else None
            found = prefer(response.log_likelihoods, lengths)
            return Verdict(
                correct=found.chosen == example.fields["answer"],
                answer=example.choices[found.chosen],
                flags=("tie",) if found.tied else (),
            )
        assert isinstance(response, Generation)
        answer: str | None = response.text.strip()
        if self.extract:
            match = re.search(self.extract, response.text)
            answer = None if match is None else (match[1] if match.re.groups else match[0]).strip()
        return Verdict(correct=answer == example.target.strip(), answer=answer or None)


def rows_task(
    *,
    data: str | os.PathLike[str],
    metric: RowsMetric | None = None,
    delimiter: str = " ",
    style: Style = "completion",
    max_new_tokens: int = 32,
    stop: Sequence[str] = ("\n",),
    extract: str = "",
) -> Rows:
    """Make a task from a file; see :class:`Rows` for the options.

    Raises:
        InvalidInput: If the file cannot be used, or the metric does not fit its columns.
    """
    chooses = bool(_examples(origin_of(data))[0].choices)
    fitting: tuple[RowsMetric, ...] = ("acc", "acc_norm") if chooses else ("exact-match",)
    if metric is not None and metric not in fitting:
        raise InvalidInput(
            f"the rows of {Path(data).name} {'have choices' if chooses else 'have a target'}, so metric is "
            f"{' or '.join(map(repr, fitting))}, not {metric!r}"
        )
    if isinstance(stop, str):
        raise InvalidInput(f"stop is a list of texts, not {stop!r}")
    return Rows(
        data=data,
        metric=metric or fitting[0],
        delimiter=delimiter,
        style=style,
        max_new_tokens=max_new_tokens,
        stop=tuple(stop),
        extract=extract,
    )


@lru_cache(maxsize=8)
def _examples(origin: Origin) -> tuple[Example, ...]:
    rows = read_rows(origin.file, ("prompt",))
    chooses = "choices" in rows[0].values
    return tuple(_example(row, chooses) for row in rows)


def _example(row: Row, chooses: bool) -> Example:
    needed = ("choices", "answer") if chooses else ("target",)
    missing = [name for name in needed if name not in row.values]
    if missing:
        raise InvalidInput(
            f"{row.place}: column {missing[0]!r} is missing (rows hold prompt, choices and answer, or prompt and "
            "target, all the same)"
        )
    choices = row.texts("choices") if chooses else ()
    if any(not one for one in choices):
        raise InvalidInput(f"{row.place}: column 'choices' holds an empty text")
    answer = _answer(row, choices) if chooses else 0
    split = _optional(row, "split")
    if split not in _SPLITS:
        raise InvalidInput(f"{row.place}: column 'split' is 'discovery' or 'heldout', not {split!r}")
    return Example(
        id=f"rows/{row.source}/{row.index:06d}",
        prompt=row.text("prompt"),
        target=choices[answer] if chooses else _target(row),
        choices=choices,
        group=_optional(row, "group"),
        stratum=_optional(row, "stratum"),
        split=_SPLITS[split],
        fields={"answer": answer},
    )


def _answer(row: Row, choices: tuple[str, ...]) -> int:
    """The index of the right choice; text that is a choice is that choice, even if it is a digit."""
    value = row.values["answer"]
    if isinstance(value, str) and value in choices:
        return choices.index(value)
    try:
        return row.number("answer", range(len(choices)))
    except InvalidInput as error:
        raise InvalidInput(
            f"{row.place}: column 'answer' is one of the choices, or its index from 0 to {len(choices) - 1}, "
            f"not {value!r}"
        ) from error


def _target(row: Row) -> str:
    value = row.values["target"]
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else row.text("target")


def _optional(row: Row, column: str) -> str:
    value = row.values.get(column)
    return "" if value is None else str(value)
