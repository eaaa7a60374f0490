"""The two tasks as the search sees them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cel_lens.conflict.population import ANSWERS, WORDS, population, prompt_of
from cel_lens.conflict.setting import ConflictSetting, Which
from cel_lens.errors import InvalidInput
from cel_lens.tasks import Choose, Example, Verdict

__all__ = ["ConflictTask"]


@dataclass(frozen=True, slots=True)
class ConflictTask:
    """One of the two tasks: 512 prompts, to be answered yes or no.

    Both tasks have the same prompts under the same ids as long as the cue says nothing (``cue=0.5``), so the
    panels of the two are the same prompts with other right answers.

    Args:
        which: ``"A"`` or ``"B"``.
        seed: Decides which cue each prompt begins with.
        setting: The tasks.

    Raises:
        InvalidInput: If there is no such task.
    """

    which: Which
    seed: int = 0
    setting: ConflictSetting = field(default_factory=ConflictSetting)

    def __post_init__(self) -> None:
        if self.which not in ("A", "B"):
            raise InvalidInput(f"a conflict task is 'A' or 'B', not {self.which!r}")

    @property
    def name(self) -> str:
        """``conflict-a`` or ``conflict-b``."""
        return f"conflict-{self.which.lower()}"

    @property
    def protocol(self) -> str:
        """The answer is a choice between the next words "yes" and "no"."""
        return "yes-or-no"

    @property
    def metric(self) -> str:
        """Right is the answer that the task makes likelier."""
        return "likelier-answer"

    def rows(self) -> tuple[int, ...]:
        """The row of each example in the :class:`Population`, in the order of the examples."""
        n = len(WORDS) ** 3
        first = self.setting.cue if self.which == "A" else 1 - self.setting.cue
        draws = np.random.default_rng(self.seed).random(n)
        return tuple(int(row) for row in np.where(draws < first, 0, n) + np.arange(n))

    def examples(self) -> Sequence[Example]:
        """One example for each triple of words."""
        everything = population(self.setting)
        right = everything.says_yes(self.which)
        found = []
        for row in self.rows():
            words = everything.words[row]
            found.append(
                Example(
                    id="conflict/" + "-".join(WORDS[index] for index in words),
                    prompt=prompt_of(self.setting, words, int(everything.cue[row])),
                    target=ANSWERS[0] if right[row] else ANSWERS[1],
                    choices=ANSWERS,
                    fields={"row": row},
                )
            )
        return tuple(found)

    def request(self, example: Example) -> Choose:
        """Score both answers as the next word."""
        return Choose(context=example.prompt, choices=tuple(f" {answer}" for answer in ANSWERS))

    def judge(self, example: Example, response: Any) -> Verdict:
        """The likelier answer counts; on a tie it is "yes"."""
        yes, no = response.log_likelihoods
        answer = ANSWERS[0] if yes >= no else ANSWERS[1]
        return Verdict(correct=answer == example.target, answer=answer, flags=("tie",) if yes == no else ())
