"""A task for tests: requests given one by one, answers kept as they come."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cel_lens.tasks import ChoiceScores, Choose, Example, Generate, Verdict

PROMPTS = (
    "in the end 7 + 5 =",
    "a",
    "What is 12 plus 30? And then?",
    "x = 3",
    "on and on and on and on and on it goes until it is 99 - 1 =",
    "the other",
    "1 2 3 4 5 6",
)
"""Of very different lengths, so that batches are padded a lot."""

CHOICES = (" no", " yes and more", " the", " 42")


@dataclass(frozen=True)
class Asks:
    """Right is what equals the target; for choices, what the target says is greedy."""

    requests: Mapping[str, Generate | Choose]
    name: str = "asks"
    protocol: str = "test"
    metric: str = "match"
    targets: Mapping[str, str] = field(default_factory=dict)

    def examples(self) -> Sequence[Example]:
        return tuple(Example(id=name, prompt="", target=self.targets.get(name, "")) for name in self.requests)

    def request(self, example: Example) -> Generate | Choose:
        return self.requests[example.id]

    def judge(self, example: Example, response: Any) -> Verdict:
        if isinstance(response, ChoiceScores):
            return Verdict(correct=response.greedy[0], answer=str(response.greedy))
        return Verdict(correct=response.text == example.target, answer=response.text or None)


def writing(prompts: Sequence[str] = PROMPTS, **settings: Any) -> Asks:
    """Continue each prompt."""
    return Asks({f"write/{place}": Generate(prompt=one, **settings) for place, one in enumerate(prompts)})


def choosing(prompts: Sequence[str] = PROMPTS, choices: Sequence[str] = CHOICES) -> Asks:
    """Score the choices behind each prompt."""
    return Asks(
        {f"choose/{place}": Choose(context=one, choices=tuple(choices)) for place, one in enumerate(prompts)}
    )
