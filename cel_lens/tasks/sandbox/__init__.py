"""Running generated programs: limited, shut in as well as the system allows, judged by a completion record."""

from cel_lens.tasks.sandbox.limits import ISOLATIONS, Isolation, Limits, Program, ProgramResult, ResultKind
from cel_lens.tasks.sandbox.sandbox import Sandbox, open_sandbox

__all__ = [
    "ISOLATIONS",
    "Isolation",
    "Limits",
    "Program",
    "ProgramResult",
    "ResultKind",
    "Sandbox",
    "open_sandbox",
]
