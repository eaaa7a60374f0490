"""Every prompt of the two tasks, what each task says about it, and the best joint answer.

A prompt is a cue and three words, one in each role: ``east ba fi nu ?``. A word means a number, and another
one in each role, so the prompt holds three features x_0, x_1, x_2. A task with targets w says "yes" with
probability sigma(w x); its right answer is the likelier one. Nothing else tells the tasks apart but the cue.

Without a cue the best joint prediction of two equally frequent tasks is
``p = (sigma(w_A x) + sigma(w_B x)) / 2``. As sigma(u) + sigma(v) > 1 exactly if u + v > 0, its likelier answer
is the sign of ``(w_A + w_B) x / 2``: with w_A = (0, b, c) and w_B = (a, b, c) that is the sign of
``w* x`` with ``w* = (a/2, b, c)``, the joint optimum of the theory.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import product

import numpy as np
import numpy.typing as npt

from cel_lens.conflict.setting import ConflictSetting, Which
from cel_lens.errors import InvalidInput

__all__ = ["ANSWERS", "CUES", "MEANINGS", "WORDS", "Population", "population", "vocabulary"]

WORDS = ("ba", "de", "fi", "go", "ku", "lo", "me", "nu")
"""The words of a role."""

MEANINGS = np.array(
    [
        [-4, -3, -2, -1, 1, 2, 3, 4],
        [-2, 4, -4, 2, 3, -3, -1, 1],
        [-3, -1, 1, 3, 2, 4, -4, -2],
    ]
) / np.sqrt(7.5)
"""What each word means in each role, shape ``[role, word]``: mean 0, variance 1, and no two rows correlated."""

CUES = ("east", "west")
"""``east`` points to task A."""

ANSWERS = ("yes", "no")
"""The two answers."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Population:
    """All 1,024 prompts: 512 triples of words, each with both cues.

    Each task has every triple equally often, with the cue that points to it as often as the setting says.

    Attributes:
        words: Index of the word in each role, shape ``[prompts, 3]``.
        cue: Index of the cue, shape ``[prompts]``.
        features: x, shape ``[prompts, 3]``.
        evidence_a: ``w_A x``: log-odds of "yes" in task A, never 0, shape ``[prompts]``.
        evidence_b: The same of task B.
        p_yes: Probability of "yes" when only the prompt is known, shape ``[prompts]``.
    """

    words: npt.NDArray[np.int64]
    cue: npt.NDArray[np.int64]
    features: npt.NDArray[np.float64]
    evidence_a: npt.NDArray[np.float64]
    evidence_b: npt.NDArray[np.float64]
    p_yes: npt.NDArray[np.float64]

    @property
    def compromise(self) -> npt.NDArray[np.bool_]:
        """Whether "yes" is the likelier answer when only the prompt is known, shape ``[prompts]``."""
        return np.asarray(self.p_yes > 0.5)

    def says_yes(self, which: Which) -> npt.NDArray[np.bool_]:
        """Whether "yes" is right in a task, shape ``[prompts]``."""
        return np.asarray((self.evidence_a if which == "A" else self.evidence_b) > 0)

    @property
    def entropy(self) -> float:
        """The least mean cross-entropy that any model can reach, in nats."""
        p = np.clip(self.p_yes, 1e-300, None)
        q = np.clip(1 - self.p_yes, 1e-300, None)
        return float(-(p * np.log(p) + q * np.log(q)).mean())


@lru_cache(maxsize=32)
def population(setting: ConflictSetting) -> Population:
    """Enumerate the prompts of a setting; the first 512 have the first cue, the others the second.

    Raises:
        InvalidInput: If the targets leave a prompt without a right answer in a task, or in the compromise.
    """
    triples = np.array(list(product(range(len(WORDS)), repeat=3)))
    words = np.concatenate([triples, triples])
    cue = np.repeat([0, 1], len(triples))
    features = np.stack([MEANINGS[role][words[:, role]] for role in range(3)], axis=1)
    a, b = features @ np.array(setting.targets_a), features @ np.array(setting.targets_b)
    p_task_a = np.where(cue == 0, setting.cue, 1 - setting.cue)
    found = Population(
        words=words,
        cue=cue,
        features=features,
        evidence_a=a,
        evidence_b=b,
        p_yes=p_task_a * _sigmoid(a) + (1 - p_task_a) * _sigmoid(b),
    )
    if min(np.abs(a).min(), np.abs(b).min(), np.abs(found.p_yes - 0.5).min()) < 1e-9:
        raise InvalidInput(
            f"targets {setting.targets_a} and {setting.targets_b} leave a prompt between yes and no: "
            "change one slightly"
        )
    return found


def vocabulary(setting: ConflictSetting) -> tuple[str, ...]:
    """The words of all prompts and answers."""
    roles = [word_of(setting, role, index) for role in range(3) for index in range(len(WORDS))]
    return (*dict.fromkeys(roles), *CUES, "?", *ANSWERS)


def word_of(setting: ConflictSetting, role: int, index: int) -> str:
    """The word that stands for a meaning in a role."""
    return WORDS[index] if setting.common_words else f"{WORDS[index]}{role}"


def prompt_of(setting: ConflictSetting, words: npt.NDArray[np.int64], cue: int) -> str:
    """A prompt as text."""
    return " ".join(
        [CUES[cue], *(word_of(setting, role, int(index)) for role, index in enumerate(words)), "?"]
    )


def _sigmoid(x: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    return np.asarray(1 / (1 + np.exp(-x)))
