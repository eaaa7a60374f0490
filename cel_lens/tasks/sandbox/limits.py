"""What a program may use, how well it is shut in, and how it can end."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal, TypeAlias, get_args

from cel_lens.errors import InvalidInput

__all__ = ["ISOLATIONS", "Isolation", "Limits", "Program", "ProgramResult", "ResultKind"]

Isolation: TypeAlias = Literal["namespaces", "bubblewrap", "limits"]
"""``"namespaces"`` and ``"bubblewrap"``: a view of the disk that holds the interpreter and the system's
libraries, read-only, and one small folder in memory; no network; processes of its own, all of which end with
the program. ``"limits"``: resource limits, an empty environment and a temporary folder only."""

ISOLATIONS: tuple[Isolation, ...] = get_args(Isolation)

ResultKind: TypeAlias = Literal[
    "passed",
    "assertion",
    "exception",
    "syntax",
    "timeout",
    "crash",
    "memory",
    "output-limit",
    "early-exit",
    "sandbox-error",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one program may use.

    Attributes:
        wall: Seconds from its start to its end, the start of the interpreter included.
        cpu: Seconds of processor time of one process.
        memory: Address space of one process, in MiB; all processes together may hold twice as much.
        processes: Processes and threads at once.
        file_size: Largest file, in MiB.
        folder: Room in its folder, in MiB.
        open_files: Open files of one process.
        output: Bytes written to standard output and standard error together, in MiB.
    """

    wall: float = 3.0
    cpu: int = 4
    memory: int = 512
    processes: int = 32
    file_size: int = 1
    folder: int = 16
    open_files: int = 64
    output: int = 1

    def __post_init__(self) -> None:
        for one in fields(self):
            value = getattr(self, one.name)
            whole = one.name == "wall" or isinstance(value, int)
            if isinstance(value, bool) or not isinstance(value, int | float) or not whole or not value > 0:
                raise InvalidInput(f"the limit {one.name} is a positive number, not {value!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A program and what must still run after it.

    Attributes:
        code: The program.
        checks: Further code in the same module, run after it: set-up and assertions.
    """

    code: str
    checks: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramResult:
    """How a program ended.

    Attributes:
        kind: ``"passed"`` if it and its checks ran to their end; else the first thing that went wrong.
        detail: The exception type, the signal or the limit.
    """

    kind: ResultKind
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.kind}: {self.detail}" if self.detail else self.kind
