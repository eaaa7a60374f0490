"""Small tasks in text of our own, for engines to agree on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cel_lens.tasks import ChoiceScores, Choose, Example, Generate, Generation, Verdict


@dataclass(frozen=True)
class Writing:
    """Continue each text; right if the text has an even number of characters."""

    prompts: tuple[str, ...]
    max_new_tokens: int = 5
    stop: tuple[str, ...] = ()
    name: str = "writing"
    protocol: str = "completion"
    metric: str = "even"

    def examples(self) -> Sequence[Example]:
        return [
            Example(id=f"w{place}", prompt=text, target="even") for place, text in enumerate(self.prompts)
        ]

    def request(self, example: Example) -> Generate:
        return Generate(prompt=example.prompt, max_new_tokens=self.max_new_tokens, stop=self.stop)

    def judge(self, example: Example, response: Any) -> Verdict:
        assert isinstance(response, Generation)
        return Verdict(correct=len(response.text) % 2 == 0, answer=response.text)


@dataclass(frozen=True)
class Choosing:
    """Prefer one of several endings; right if it is the first."""

    rows: tuple[tuple[str, tuple[str, ...]], ...]
    name: str = "choosing"
    protocol: str = "raw"
    metric: str = "acc"

    def examples(self) -> Sequence[Example]:
        return [
            Example(id=f"c{place}", prompt=context, target=choices[0], choices=choices)
            for place, (context, choices) in enumerate(self.rows)
        ]

    def request(self, example: Example) -> Choose:
        return Choose(context=example.prompt, choices=example.choices)

    def judge(self, example: Example, response: Any) -> Verdict:
        assert isinstance(response, ChoiceScores)
        best = max(range(len(response.log_likelihoods)), key=lambda at: response.log_likelihoods[at])
        return Verdict(correct=best == 0, answer=f"{example.choices[best]} {response.greedy}")
