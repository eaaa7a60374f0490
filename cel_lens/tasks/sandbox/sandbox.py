"""Runs many small programs, each in an interpreter of its own, and says how each ended."""

from __future__ import annotations

import json
import marshal
import os
import platform
import secrets
import selectors
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal, get_args

from cel_lens.errors import EvaluationError, InvalidInput
from cel_lens.tasks.sandbox.limits import ISOLATIONS, Isolation, Limits, Program, ProgramResult, ResultKind

__all__ = ["Sandbox", "open_sandbox"]

_HERE = Path(__file__).parent
_MIB = 1 << 20
_GRACE = 10.0
"""Seconds beyond the wall limit after which a supervisor that has not answered counts as broken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sandbox:
    """A way of running programs that was tried on this machine; :func:`open_sandbox` makes one.

    Attributes:
        isolation: How well programs are shut in.
        limits: What each may use.
    """

    isolation: Isolation
    limits: Limits

    def run(self, programs: Sequence[Program]) -> tuple[ProgramResult, ...]:
        """Run programs, at most one for each processor at a time; one seen before is not run again.

        A program that met the wall limit is run once more, alone, before that is believed.

        Returns:
            How each program ended, in order.

        Raises:
            EvaluationError: If the sandbox itself failed; that is never a program's fault.
        """
        keys = [self._key(one) for one in programs]
        fresh = {key: one for key, one in zip(keys, programs, strict=True) if key not in _RESULTS}
        if fresh:
            with ThreadPoolExecutor(max_workers=_processors()) as pool:
                _RESULTS.update(zip(fresh, pool.map(self._run_once, fresh.values()), strict=True))
            for key, one in fresh.items():
                if _RESULTS[key] == _TIMEOUT and len(fresh) > 1:
                    _RESULTS[key] = self._run_once(one)
        return tuple(_RESULTS[key] for key in keys)

    def describe(self) -> dict[str, str]:
        """What verdicts depend on besides the programs."""
        limits = ", ".join(f"{name} {value:g}" for name, value in asdict(self.limits).items())
        return {
            "sandbox": self.isolation,
            "sandbox limits": limits,
            "sandbox python": f"{platform.python_version()}, standard library only",
        }

    def _key(self, program: Program) -> str:
        parts = json.dumps([program.code, program.checks, self.describe()])
        return sha256(parts.encode()).hexdigest()

    def _run_once(self, program: Program) -> ProgramResult:
        found = self._attempt(program)
        if found.kind == "sandbox-error":
            raise EvaluationError(f"the sandbox for generated programs failed: {found.detail}")
        return found

    def _attempt(self, program: Program) -> ProgramResult:
        job = _job(self, program)
        command = [_python(), "-I", "-S", "-B", "-c", _SUPERVISE]
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={},
                start_new_session=True,
            )
        except OSError as error:
            return ProgramResult(kind="sandbox-error", detail=str(error))
        with process:
            assert process.stdin is not None
            assert process.stdout is not None
            try:
                os.set_blocking(process.stdout.fileno(), False)
                process.stdin.write(marshal.dumps(job))
                process.stdin.flush()
                answer = _read_all(process.stdout.fileno(), self.limits.wall + _GRACE)
            except BrokenPipeError:
                answer = b""
            finally:
                with suppress(BrokenPipeError):
                    process.stdin.close()  # without its caller the supervisor ends everything
                try:
                    process.wait(timeout=_GRACE)
                except subprocess.TimeoutExpired:
                    process.kill()
        return _parse(answer)


def open_sandbox(limits: Limits, isolation: Isolation | Literal["auto"] = "auto") -> Sandbox:
    """Find the best isolation that works here: a few programs must end as they should.

    Args:
        limits: What each program may use.
        isolation: ``"auto"``, or the only one that is acceptable.

    Raises:
        InvalidInput: If programs cannot be run here; the message says what was tried.
    """
    if isolation != "auto" and isolation not in ISOLATIONS:
        raise InvalidInput(f"isolation is auto, {', '.join(ISOLATIONS)}, not {isolation!r}")
    if os.name != "posix":
        raise InvalidInput("generated programs can only be run on Linux or macOS")
    reasons = []
    for level in ISOLATIONS if isolation == "auto" else (isolation,):
        problem = _problem(Sandbox(isolation=level, limits=limits))
        if not problem:
            return Sandbox(isolation=level, limits=limits)
        reasons.append(f"{level}: {problem}")
    raise InvalidInput(f"generated programs cannot be run safely here ({'; '.join(reasons)})")


_RESULTS: dict[str, ProgramResult] = {}
_TIMEOUT = ProgramResult(kind="timeout")
_SUPERVISE = f"import sys; sys.path.insert(0, {str(_HERE)!r}); from child.supervisor import main; main()"

_LOOK_OUTSIDE = """
import socket
reached = []
probe = socket.socket()
probe.settimeout(1)
try:
    probe.connect(("127.0.0.1", PORT))
    reached.append("the network")
except OSError:
    pass
for folder in ("/", "/usr", "/usr/bin"):
    try:
        open(folder + "/cel-lens-probe", "w")
        reached.append(folder)
    except OSError:
        pass
open("own", "w").write("x")
"""

_FIXTURES: tuple[tuple[str, Program, ResultKind], ...] = (
    ("a right program", Program(code="def f(): return 1", checks="assert f() == 1"), "passed"),
    ("a wrong program", Program(code="def f(): return 2", checks="assert f() == 1"), "assertion"),
    ("a program that leaves", Program(code="import sys; sys.exit(0)", checks=""), "early-exit"),
    ("an endless loop", Program(code="while True: pass", checks=""), "timeout"),
)


@cache
def _problem(sandbox: Sandbox) -> str:
    """Why programs cannot be run like this here; empty if they can."""
    if sandbox.isolation == "bubblewrap":
        if not shutil.which("bwrap"):
            return "bwrap is not installed"
        if os.geteuid() == 0:
            return "for root the limit on processes would not hold"
    short = Sandbox(isolation=sandbox.isolation, limits=Limits(**(asdict(sandbox.limits) | {"wall": 1.0})))
    for name, program, expected in _FIXTURES:
        found = (short if expected == "timeout" else sandbox)._attempt(program)
        if found.kind != expected:
            return f"{name} ended with {found}"
    return "" if sandbox.isolation == "limits" else _gap(sandbox)


def _gap(sandbox: Sandbox) -> str:
    """What a program reaches that it should not; empty if nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        look = _LOOK_OUTSIDE.replace("PORT", str(server.getsockname()[1]))
        found = sandbox._attempt(Program(code=look, checks="assert not reached"))
    return "" if found.kind == "passed" else f"a look outside ended with {found}"


def _job(sandbox: Sandbox, program: Program) -> dict[str, Any]:
    limits = sandbox.limits
    memory = limits.memory * _MIB
    return {
        "isolation": sandbox.isolation,
        "bubblewrap": shutil.which("bwrap"),
        "python": _python(),
        "runner": _runner(),
        "visible": list(_visible()),
        "temporary": tempfile.gettempdir(),
        "token": secrets.token_hex(16),
        "program": program.code,
        "checks": program.checks,
        "wall": limits.wall,
        "memory": memory,
        "output": limits.output * _MIB,
        "folder": limits.folder * _MIB,
        "limits": [
            ("RLIMIT_CORE", 0, 0),
            ("RLIMIT_CPU", limits.cpu, limits.cpu + 1),
            ("RLIMIT_FSIZE", limits.file_size * _MIB, limits.file_size * _MIB),
            ("RLIMIT_NOFILE", limits.open_files, limits.open_files),
            ("RLIMIT_NPROC", limits.processes, limits.processes),
            *([("RLIMIT_AS", memory, memory)] if sys.platform == "linux" else []),
        ],
    }


def _python() -> str:
    """The interpreter without a virtual environment around it."""
    return os.path.realpath(getattr(sys, "_base_executable", "") or sys.executable)


@cache
def _runner() -> str:
    return (_HERE / "child" / "runner.py").read_text(encoding="utf-8")


@cache
def _visible() -> tuple[str, ...]:
    """What a program sees of the disk: the interpreter, its library and those of the system."""
    found = ["/usr", "/bin", "/lib", "/lib32", "/lib64", "/etc/ld.so.cache"]
    for path in (sys.base_prefix, sys.base_exec_prefix, str(Path(_python()).parent.parent)):
        real = os.path.realpath(path)
        if real != "/" and not any(real == one or real.startswith(one + "/") for one in found):
            found.append(real)
    return tuple(found)


def _processors() -> int:
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def _read_all(fd: int, seconds: float) -> bytes:
    """Everything until the other side closes, or what came of it in that time."""
    found = b""
    deadline = time.monotonic() + seconds
    with selectors.DefaultSelector() as selector:
        selector.register(fd, selectors.EVENT_READ)
        while (left := deadline - time.monotonic()) > 0:
            if selector.select(left):
                data = os.read(fd, 1 << 16)
                if not data:
                    break
                found += data
    return found


def _parse(answer: bytes) -> ProgramResult:
    try:
        kind, detail = marshal.loads(answer)
        if kind not in get_args(ResultKind):
            raise ValueError(f"unknown kind {kind!r}")
        return ProgramResult(kind=kind, detail=detail)
    except (ValueError, EOFError, TypeError) as error:
        return ProgramResult(kind="sandbox-error", detail=f"the supervisor gave no answer ({error})")
