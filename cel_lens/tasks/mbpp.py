"""MBPP: short Python programs, judged by running their tests (Austin et al., 2021).

Three solved tasks (ids 2, 3 and 4 of the data set), then the task and its tests; greedy decoding up to 256
tokens or the mark ``[DONE]``. The program before that mark runs with the set-up code and all tests; it is right
if everything has run to its end (pass@1).
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal, TypeAlias, get_args

from cel_lens.errors import InvalidInput
from cel_lens.tasks.base import Example, Generate, Generation, Response, Style, Verdict
from cel_lens.tasks.rows import Row
from cel_lens.tasks.sandbox import Isolation, Limits, Program, Sandbox, open_sandbox
from cel_lens.tasks.sources import BenchmarkSource, Origin, Side, load_rows, origin_of

__all__ = ["MBPP", "ProgramOrder", "assemble", "extract_program"]

ProgramOrder: TypeAlias = Literal["program-setup-tests", "setup-program-tests", "program-tests"]
"""Where the set-up code of a task stands; two tasks have one, and it needs what the program defines."""

_SHOTS = (2, 3, 4)
_SIDES: dict[Side, range] = {"heldout": range(11, 511), "discovery": range(601, 975)}
_BEGIN, _DONE = "[BEGIN]\n", "[DONE]"

_SOURCE = BenchmarkSource(
    path="google-research-datasets/mbpp",
    revision="4bb6404fdc6cacfda99d4ac4205087b89d32030c",
    configs=("full",),
    splits={"prompt": None, "test": "heldout", "train": "discovery"},
    rows={"prompt": 10, "test": 500, "train": 374},
)


@dataclass(frozen=True, kw_only=True)
class MBPP:
    """The MBPP task.

    Discovery is drawn from ids 601 to 974 and held-out from 11 to 510, the published splits.

    Attributes:
        style: ``"chat"``: one user turn in the model's template, the answer begun with ``[BEGIN]``;
            ``"completion"``: raw text.
        data: A JSONL or Parquet file with the published columns that holds ids 2, 3 and 4 for the prompt;
            ``None``: the pinned revision of ``google-research-datasets/mbpp`` on the Hugging Face Hub.
        allow_code_execution: Programs that a model wrote are run only if this is true.
        order: Where the set-up code stands.
        limits: What each program may use.
        isolation: ``"auto"``: the best that works on this machine; or the only acceptable one.
    """

    style: Style = "chat"
    data: str | os.PathLike[str] | None = None
    allow_code_execution: bool = False
    order: ProgramOrder = "program-setup-tests"
    limits: Limits = field(default_factory=Limits)
    isolation: Isolation | Literal["auto"] = "auto"
    name: str = field(default="mbpp", init=False)
    metric: str = field(default="pass@1", init=False)

    def __post_init__(self) -> None:
        for name, known in (("style", get_args(Style)), ("order", get_args(ProgramOrder))):
            if getattr(self, name) not in known:
                raise InvalidInput(f"{name} is {' or '.join(map(repr, known))}, not {getattr(self, name)!r}")

        if not isinstance(self.limits, Limits):
            raise InvalidInput(f"limits is a Limits object, not {self.limits!r}")

    @property
    def protocol(self) -> str:
        """``chat-prefill-3shot`` or ``completion-3shot``, and the order of the parts if it is not ours."""
        base = "chat-prefill-3shot" if self.style == "chat" else "completion-3shot"
        return base if self.order == "program-setup-tests" else f"{base}, {self.order}"

    @property
    def versions(self) -> dict[str, str]:
        """How programs are run here; results record it."""
        return self._sandbox().describe()

    def prepare(self) -> None:
        """Make sure that programs may and can be run, before any model does work.

        Raises:
            InvalidInput: If running them was not allowed, or no isolation works here.
        """
        self._sandbox()

    def examples(self) -> Sequence[Example]:
        """The tasks of both published splits, in order."""
        return _read(origin_of(self.data)).examples

    def request(self, example: Example) -> Generate:
        """The three solved tasks and this one, up to where the program begins."""
        raw = _read(origin_of(self.data)).shots + example.prompt
        if self.style == "completion":
            return Generate(prompt=raw + _BEGIN, max_new_tokens=256, stop=(_DONE,))
        return Generate(prompt=raw, max_new_tokens=256, stop=(_DONE,), style="chat", prefill=_BEGIN)

    def judge(self, example: Example, response: Response) -> Verdict:
        """Run one program; :meth:`judge_all` is quicker for many.

        Raises:
            InvalidInput: If running programs was not allowed.
            EvaluationError: If the sandbox itself failed.
        """
        return self.judge_all([example], [response])[0]

    def judge_all(self, examples: Sequence[Example], responses: Sequence[Response]) -> list[Verdict]:
        """Run the programs of many responses, one for each processor at a time.

        Raises:
            InvalidInput: If running programs was not allowed.
            EvaluationError: If the sandbox itself failed.
        """
        texts = []
        for response in responses:
            assert isinstance(response, Generation)
            texts.append(extract_program(response.text))
        programs = [
            assemble(text, example.fields, self.order) for text, example in zip(texts, examples, strict=True)
        ]
        verdicts = []
        for text, result in zip(texts, self._sandbox().run(programs), strict=True):
            right = result.kind == "passed"
            flags: list[str] = [] if right else [result.kind]
            if re.search(r"^\s*```", text, re.MULTILINE):
                flags.append("code-fence")
            answer = str(result) if text.strip() else None
            verdicts.append(Verdict(correct=right, answer=answer, flags=tuple(flags)))
        return verdicts

    def _sandbox(self) -> Sandbox:
        if not self.allow_code_execution:
            raise InvalidInput(
                "the task mbpp runs programs that the model writes: allow it with allow_code_execution=True "
                "(--allow-code-execution)"
            )
        return open_sandbox(self.limits, self.isolation)


def extract_program(text: str) -> str:
    """The program in a completion: everything before the first ``[DONE]``, each tab as four spaces."""
    return text.partition(_DONE)[0].replace("\t", "    ")


def assemble(program: str, fields: Mapping[str, Any], order: ProgramOrder) -> Program:
    """Put a program together with the set-up code and the tests of its task.

    Args:
        program: The program.
        fields: ``setup`` and ``tests`` of the example.
        order: Where the set-up code stands.
    """
    setup, tests = fields["setup"], "\n".join(fields["tests"])
    if order == "setup-program-tests":
        return Program(code=f"{setup}\n{program}", checks=tests)
    return Program(code=program, checks=f"{setup}\n{tests}" if order == "program-setup-tests" else tests)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Read:
    shots: str
    examples: tuple[Example, ...]


@lru_cache(maxsize=4)
def _read(origin: Origin) -> _Read:
    rows = load_rows(origin, _SOURCE, ("task_id", "text", "code", "test_list"))
    by_id: dict[int, Row] = {}
    for row in rows:
        first = by_id.setdefault(row.number("task_id"), row)
        if first is not row:
            raise InvalidInput(
                f"{row.place}: task_id {row.number('task_id')} stands in {first.place} already"
            )
    missing = [number for number in _SHOTS if number not in by_id]
    if missing:
        raise InvalidInput(
            f"{origin.file or _SOURCE.path} has no row with task_id {missing[0]}: rows 2, 3 and 4 are the "
            "solved tasks of the prompt"
        )
    shots = "".join(
        f"{_block(by_id[number])}{_BEGIN}{by_id[number].text('code')}\n{_DONE}\n\n" for number in _SHOTS
    )
    found = tuple(
        _example(number, row, side)
        for side, numbers in _SIDES.items()
        for number, row in sorted(by_id.items())
        if number in numbers
    )
    if not found:
        raise InvalidInput(f"{origin.file} has no row with a task_id from 11 to 510 or from 601 to 974")
    return _Read(shots=shots, examples=found)


def _block(row: Row) -> str:
    tests = "\n".join(row.texts("test_list"))
    return (
        f"You are an expert Python programmer, and here is your task: {row.text('text')} "
        f"Your code should pass these tests:\n\n{tests}\n"
    )


def _example(number: int, row: Row, side: Side) -> Example:
    setup = row.text("test_setup_code", empty=True) if "test_setup_code" in row.values else ""
    return Example(
        id=f"mbpp/{row.source}/{number:06d}",
        prompt=_block(row),
        target="passed",
        split=side,
        fields={"code": row.text("code"), "setup": setup, "tests": row.texts("test_list")},
    )
