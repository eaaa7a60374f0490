"""Right or wrong, example by example: what every statistic is a function of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from cel_lens.errors import InvalidInput
from cel_lens.heads import INTACT, HeadSet

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Detail", "OutcomeMatrix", "Outcomes"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Detail:
    """What the model did with one example under one condition.

    Attributes:
        answer: What was extracted from the output and judged; ``None`` if nothing could be extracted.
        target: The right answer.
        text: Generated text, without the stop marker; for a choice task the chosen continuation.
        token_ids: Generated token ids, up to and including the first end-of-sequence token.
        log_likelihoods: For choice tasks, the summed log-likelihood (natural logarithm, at most 0) of
            every choice, in the order of the choices.
        flags: Things worth counting: ``"no-answer"`` (nothing could be extracted), ``"capped"`` (the
            limit of new tokens was reached), ``"tie"`` (two choices scored the same),
            ``"boundary-merge"`` (a token spans the border between prompt and continuation),
            ``"thinking"`` (the text holds a mark of a thinking block); and those of the task.
    """

    answer: str | None
    target: str
    text: str = ""
    token_ids: tuple[int, ...] = ()
    log_likelihoods: tuple[float, ...] = ()
    flags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcomes:
    """The verdicts of one condition on a panel of examples.

    Attributes:
        heads: The heads that were removed; empty for the intact model.
        task: Name of the task.
        protocol: How the model was asked, for example ``"completion-6shot"``.
        metric: How right and wrong were told apart, for example ``"integer-match"``.
        example_ids: One id for each example, unique, in panel order.
        correct: The verdicts, in the same order.
        details: What the model answered, in the same order.
        inactive: Removed heads whose output was zero everywhere, so that removing them changed nothing.
    """

    heads: HeadSet
    task: str
    protocol: str
    metric: str
    example_ids: tuple[str, ...]
    correct: tuple[bool, ...]
    details: tuple[Detail, ...]
    inactive: HeadSet = INTACT

    def __post_init__(self) -> None:
        if not len(self.example_ids) == len(self.correct) == len(self.details):
            raise ValueError("example_ids, correct and details have one entry for each example")
        if len(set(self.example_ids)) != len(self.example_ids):
            raise ValueError("example ids are unique")

    @property
    def n(self) -> int:
        """Number of examples."""
        return len(self.example_ids)

    @property
    def n_correct(self) -> int:
        """Number of right verdicts."""
        return sum(self.correct)

    @property
    def accuracy(self) -> float:
        """Share of right verdicts, from 0 to 1."""
        return self.n_correct / self.n

    def count(self, flag: str) -> int:
        """Number of examples that carry a flag (see :class:`Detail`)."""
        return sum(flag in detail.flags for detail in self.details)

    def to_frame(self) -> pd.DataFrame:
        """One row for each example: id, verdict, answer, target, text, log-likelihoods and flags."""
        import pandas as pd

        return pd.DataFrame(
            {
                "example_id": self.example_ids,
                "heads": self.heads.label,
                "correct": self.correct,
                "answer": [detail.answer for detail in self.details],
                "target": [detail.target for detail in self.details],
                "text": [detail.text for detail in self.details],
                "log_likelihoods": [detail.log_likelihoods for detail in self.details],
                "flags": [", ".join(detail.flags) for detail in self.details],
            }
        )


@dataclass(frozen=True, eq=False)
class OutcomeMatrix:
    """The verdicts of many conditions on one panel.

    Attributes:
        conditions: One head set for each row, unique; the first is the intact model.
        example_ids: One id for each column, unique, in panel order.
        correct: Verdicts, boolean, shape ``[conditions, examples]``; not writable.
    """

    conditions: tuple[HeadSet, ...]
    example_ids: tuple[str, ...]
    correct: npt.NDArray[np.bool_]

    def __post_init__(self) -> None:
        if (
            self.correct.shape != (len(self.conditions), len(self.example_ids))
            or self.correct.dtype != np.bool_
        ):
            raise ValueError(
                f"correct is boolean with shape [{len(self.conditions)}, {len(self.example_ids)}], "
                f"not {self.correct.dtype} {list(self.correct.shape)}"
            )
        if not self.conditions or self.conditions[0] != INTACT:
            raise ValueError("the first condition is the intact model")
        if len(set(self.conditions)) != len(self.conditions):
            raise ValueError("conditions are unique")
        if len(set(self.example_ids)) != len(self.example_ids):
            raise ValueError("example ids are unique")
        own = self.correct.copy()
        own.setflags(write=False)
        object.__setattr__(self, "correct", own)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, OutcomeMatrix):
            return NotImplemented
        return (
            self.conditions == other.conditions
            and self.example_ids == other.example_ids
            and bool(np.array_equal(self.correct, other.correct))
        )

    __hash__ = None  # type: ignore[assignment]

    def row(self, heads: HeadSet) -> npt.NDArray[np.bool_]:
        """Verdicts of one condition, shape ``[examples]``.

        Raises:
            InvalidInput: If the condition was not evaluated on this panel.
        """
        try:
            verdicts: npt.NDArray[np.bool_] = self.correct[self.conditions.index(heads)]
            return verdicts
        except ValueError as error:
            raise InvalidInput(f"{heads.label} was not evaluated on this panel") from error

    @classmethod
    def stack(cls, outcomes: Sequence[Outcomes]) -> OutcomeMatrix:
        """Put the outcomes of several conditions on one panel together, intact first.

        Raises:
            ValueError: If they were not measured on the same examples in the same order, or not with
                the same task, protocol and metric.
        """
        first = outcomes[0]
        for other in outcomes[1:]:
            if other.example_ids != first.example_ids:
                raise ValueError(
                    f"{other.heads.label} was measured on other examples than {first.heads.label}"
                )
            if (other.task, other.protocol, other.metric) != (first.task, first.protocol, first.metric):
                raise ValueError(
                    f"{other.heads.label} was measured with another protocol than {first.heads.label}"
                )
        ordered = sorted(outcomes, key=lambda one: (len(one.heads), one.heads))
        return cls(
            conditions=tuple(one.heads for one in ordered),
            example_ids=first.example_ids,
            correct=np.array([one.correct for one in ordered], dtype=np.bool_),
        )
