"""What is asked and what counts as right: the values and the protocol that every task shares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

from cel_lens.errors import InvalidInput

__all__ = [
    "ChoiceScores",
    "Choose",
    "Example",
    "Generate",
    "Generation",
    "Request",
    "Response",
    "Style",
    "Task",
    "Verdict",
    "check_task",
    "judge_all",
    "prepare_task",
]

Style: TypeAlias = Literal["completion", "chat"]
"""``"completion"``: the prompt is raw text. ``"chat"``: it is one user turn in the model's own template."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """One question with its right answer.

    Attributes:
        id: Unique name, stable between runs; results pair by it.
        prompt: The question, as the task's :meth:`Task.request` needs it.
        target: The right answer as text.
        choices: The possible answers of a choice task, in order.
        group: Examples with one group (the same passage, the same problem text) never stand on both
            panels, and discovery takes at most one of them. Empty: a group of its own.
        stratum: Kind of example; panels hold the same mix of kinds.
        split: Fixes the panel, where a benchmark defines it; ``None``: free.
        fields: Whatever else the task needs to judge.
    """

    id: str
    prompt: str
    target: str
    choices: tuple[str, ...] = ()
    group: str = ""
    stratum: str = ""
    split: Literal["discovery", "heldout"] | None = None
    fields: Mapping[str, Any] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Generate:
    """Ask for text, decoded greedily: the arg-max of the raw logits, lowest id on ties.

    Attributes:
        prompt: Text before the answer, or the user turn with ``style="chat"``.
        max_new_tokens: Cap on generated tokens, at least 1.
        stop: Generation ends when one of these texts appears; the response ends before it.
        style: Raw text or the model's chat template.
        prefill: Put behind the assistant header, with ``style="chat"``.
    """

    prompt: str
    max_new_tokens: int = 32
    stop: tuple[str, ...] = ()
    style: Style = "completion"
    prefill: str = ""

    def __post_init__(self) -> None:
        if self.max_new_tokens < 1:
            raise InvalidInput(f"max_new_tokens is at least 1, not {self.max_new_tokens}")
        if isinstance(self.stop, str) or any(not marker for marker in self.stop):
            raise InvalidInput(f"stop is a tuple of non-empty texts, not {self.stop!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Choose:
    """Ask for the log-likelihood of given continuations of a raw context.

    Attributes:
        context: Text before the continuation.
        choices: The continuations, each with its leading space where there is one.
    """

    context: str
    choices: tuple[str, ...]

    def __post_init__(self) -> None:
        if isinstance(self.choices, str) or not self.choices or any(not one for one in self.choices):
            raise InvalidInput(f"choices is a tuple of non-empty texts, not {self.choices!r}")


Request: TypeAlias = Generate | Choose


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """What a model wrote.

    Attributes:
        text: Decoded new text before the stop marker, end-of-sequence tokens left out.
        token_ids: New token ids, up to and including the first end-of-sequence token, or the shortest
            run of ids whose text holds the stop marker.
        ended: An end-of-sequence token was seen and no stop marker.
        stopped: A stop marker was seen.
        capped: Neither, and the cap was reached.
        thinking: The text holds a mark of a thinking block, a special token or not.
    """

    text: str
    token_ids: tuple[int, ...] = ()
    ended: bool = False
    stopped: bool = False
    capped: bool = False
    thinking: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ChoiceScores:
    """How likely each continuation is.

    Attributes:
        log_likelihoods: Summed natural log-probability of each continuation's tokens, at most 0.
        greedy: Whether every token of the continuation is the arg-max at its place.
        boundary_merge: A token spans the border between context and continuation.
    """

    log_likelihoods: tuple[float, ...]
    greedy: tuple[bool, ...]
    boundary_merge: bool = False


Response: TypeAlias = Generation | ChoiceScores


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Right or wrong.

    Attributes:
        correct: The verdict.
        answer: What was extracted from the response; ``None`` if nothing could be.
        flags: Things worth counting, such as ``"tie"``; ``"no-answer"`` and ``"capped"`` are added by
            the evaluation.
    """

    correct: bool
    answer: str | None = None
    flags: tuple[str, ...] = ()


@runtime_checkable
class Task(Protocol):
    """A benchmark: examples, how to ask, how to judge. Any object with these members is a task.

    A task may also have ``judge_all(examples, responses)``, which judges many responses at once and is then
    used instead of :meth:`judge`; ``prepare()``, which is called before any model does work and raises
    :class:`~cel_lens.errors.InvalidInput` if the task cannot be judged; and ``versions``, a mapping of names to
    texts: what else its verdicts depend on, recorded with results.

    Attributes:
        name: Name of the task.
        protocol: How the model is asked; results with different protocols are never compared.
        metric: How right and wrong are told apart.
    """

    @property
    def name(self) -> str:
        """Name of the task."""

    @property
    def protocol(self) -> str:
        """How the model is asked."""

    @property
    def metric(self) -> str:
        """How right and wrong are told apart."""

    def examples(self) -> Sequence[Example]:
        """All examples, always the same in the same order."""

    def request(self, example: Example) -> Request:
        """How to ask for one example; all examples of a task are asked in the same form."""

    def judge(self, example: Example, response: Any) -> Verdict:
        """Judge one response: a :class:`Generation` after :class:`Generate`, else :class:`ChoiceScores`."""


def check_task(task: object) -> Task:
    """Return the object itself if it has what a task needs.

    Raises:
        InvalidInput: If a member is missing or a name is not text.
    """
    needed = ("name", "protocol", "metric", "examples", "request", "judge")
    missing = [name for name in needed if not hasattr(task, name)]
    if missing or isinstance(task, type):
        what = f"the class {task.__name__}" if isinstance(task, type) else type(task).__name__
        lack = f"has no {', '.join(missing)}" if missing else "is a class: pass an object of it"
        raise InvalidInput(f"{what} is not a task: it {lack} (a task has {', '.join(needed)})")
    for name in needed[:3]:
        value = getattr(task, name)
        if not isinstance(value, str) or not value:
            raise InvalidInput(f"the task's {name} is a non-empty text, not {value!r}")
    assert isinstance(task, Task)
    return task


def prepare_task(task: object) -> Task:
    """Check a task and let it make sure that its answers can be judged here.

    Raises:
        InvalidInput: If it is not a task, or cannot be judged.
    """
    found = check_task(task)
    prepare = getattr(found, "prepare", None)
    if prepare is not None:
        prepare()
    return found


def judge_all(task: Task, examples: Sequence[Example], responses: Sequence[Response]) -> list[Verdict]:
    """Judge many responses, all at once where the task can.

    Raises:
        InvalidInput: If the task gives another number of verdicts than there are examples.
    """
    together = getattr(task, "judge_all", None)
    if together is None:
        return [task.judge(one, response) for one, response in zip(examples, responses, strict=True)]
    verdicts = list(together(examples, responses))
    if len(verdicts) != len(examples):
        raise InvalidInput(f"the task {task.name} gave {len(verdicts)} verdicts for {len(examples)} examples")
    return verdicts
