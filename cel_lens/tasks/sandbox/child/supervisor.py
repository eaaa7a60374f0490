"""Starts one program, watches it, ends everything it started, and says how it went.

The caller runs :func:`main` in a bare interpreter (``python -I -S -B``). The job comes on standard input, which
stays open: when it closes, the caller is gone and everything is ended. The answer goes to standard output. Both
are marshalled values: the json module would take longer to import than a small program takes to run.
"""

from __future__ import annotations

import marshal
import os
import select
import sys
import time

from .confine import NOBODY, PR_SET_CHILD_SUBREAPER, map_ids, prctl
from .processes import descendants, end_all, resident
from .start import Pipes, become_program, tell

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .start import Job


class Answer:
    """How a program ended, or what its runner reported.

    Attributes:
        kind: One of the kinds of ``ProgramResult``, or ``"started"``.
        detail: The exception type, the signal or the limit.
        token: In a record of success, the job's token.
    """

    def __init__(self, kind: str, detail: str = "", token: str = "") -> None:
        self.kind, self.detail, self.token = kind, detail, token


CHECK_EVERY = 0.05
"""Seconds between looks at the memory of all processes together."""


def main() -> None:
    """Answer one job."""
    job = marshal.load(sys.stdin.buffer)
    try:
        answer = supervise(job)
    except Exception as error:
        answer = Answer("sandbox-error", f"{type(error).__name__}: {error}")
    sys.stdout.buffer.write(marshal.dumps((answer.kind, answer.detail)))
    sys.stdout.flush()


def supervise(job: Job) -> Answer:
    """Run the job's program to its end or to a limit."""
    if sys.platform == "linux":
        prctl(PR_SET_CHILD_SUBREAPER, 1)
    folder = _make_folder(job) if job["isolation"] == "limits" else None
    try:
        child = Child(job, folder)
        try:
            cause = child.watch()
        finally:
            status = child.end()
        return judge(job, cause, status, child.records())
    finally:
        if folder is not None:
            import shutil

            shutil.rmtree(folder, ignore_errors=True)


def judge(job: Job, cause: str, status: int | None, records: list[Answer]) -> Answer:
    """From what was seen to one answer; a limit that was met decides first.

    Args:
        job: Holds the token that a record of success must show.
        cause: The limit that was met; empty if none was.
        status: The program's wait status, if it ended by itself.
        records: What the runner reported.
    """
    last = records[-1] if records else Answer("")
    if last.kind == "sandbox-error":
        return last
    if cause:
        return Answer(cause)
    if not records:
        return Answer("sandbox-error", f"the interpreter did not start (status {status})")
    if last.kind == "passed":
        passed = last.token == job["token"] and status == 0
        return Answer("passed") if passed else Answer("early-exit", "not a normal end")
    if last.kind != "started":
        return Answer(last.kind, last.detail)
    code = -1 if status is None else os.waitstatus_to_exitcode(status)
    number = -code if code < 0 else max(0, code - 128)  # bubblewrap adds 128 to the signal
    return _signalled(number) if number else Answer("early-exit", f"exit status {code}")


def _signalled(number: int) -> Answer:
    import signal  # slow to import, and seldom needed

    if number == signal.SIGXCPU:
        return Answer("timeout", "processor time")
    if number == signal.SIGXFSZ:
        return Answer("output-limit", "file size")
    names = {int(one): one.name for one in signal.Signals}
    return Answer("crash", names.get(number, f"signal {number}"))


class Child:
    """The program's process, with the pipes to it.

    Attributes:
        pid: The process that was forked here; under ``namespaces`` the program is its grandchild.
    """

    def __init__(self, job: Job, folder: str | None) -> None:
        self._job = job
        self._deadline = time.monotonic() + job["wall"]
        self._ended: int | None = None
        self._report, report = os.pipe()
        self._output, output = os.pipe()
        self._status, status = os.pipe()
        ready, ready_writing = os.pipe()
        go, go_writing = os.pipe()
        pipes = Pipes(report, output, status, ready_writing, go)
        self.pid = os.fork()
        if self.pid == 0:
            os.close(go_writing)
            try:
                become_program(job, folder, pipes)
            except BaseException as error:
                tell(pipes.report, error)
            finally:
                os._exit(125)
        pipes.close()
        for fd in (self._report, self._output, self._status):
            os.set_blocking(fd, False)
        if job["isolation"] == "namespaces" and os.read(ready, 1):
            map_ids(self.pid)
            os.write(go_writing, b"g")
        os.close(ready)
        os.close(go_writing)

    def watch(self) -> str:
        """Wait for the end of the program; the limit it met, or nothing."""
        caller, look = sys.stdin.fileno(), select.poll()
        for fd in (self._output, self._status, caller):
            look.register(fd, select.POLLIN | select.POLLHUP)
        written, pause, next_check = 0, 0.001, time.monotonic() + CHECK_EVERY
        while not self._has_ended():
            now = time.monotonic()
            if now >= self._deadline:
                return "timeout"
            if now >= next_check:
                next_check = now + CHECK_EVERY
                if resident(descendants()) > 2 * self._job["memory"]:
                    return "memory"
            for fd, _ in look.poll(1000 * pause):
                if fd == caller:
                    self.end()
                    os._exit(1)
                data = _drain(fd) if fd == self._output else b""
                written += len(data)
                if not data:
                    look.unregister(fd)
            pause = min(2 * pause, 0.02)
            if written > self._job["output"]:
                return "output-limit"
        return "output-limit" if written + len(_drain(self._output)) > self._job["output"] else ""

    def end(self) -> int | None:
        """End every process that is left and return the program's wait status, if it ended by itself."""
        self._has_ended()
        end_all(self.pid)
        if self._job["isolation"] != "namespaces":
            return self._ended
        text = _drain(self._status)
        return int(text) if text else None

    def records(self) -> list[Answer]:
        """What the runner reported, up to the first thing in its pipe that it did not write."""
        data, found = _drain(self._report), []
        try:
            while data:
                kind, detail, token = marshal.loads(data)  # ignores what follows
                found.append(Answer(str(kind), str(detail), str(token)))
                data = data[len(marshal.dumps((kind, detail, token))) :]
        except (EOFError, ValueError, TypeError):
            pass
        return found

    def _has_ended(self) -> bool:
        if self._ended is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self._ended = status if pid else None
        return self._ended is not None


def _make_folder(job: Job) -> str:
    """A new folder for the program; for root, of a user that nothing else runs as."""
    folder = os.path.join(job["temporary"], f"cel-lens-{os.getpid()}-{job['token'][:8]}")
    os.mkdir(folder, 0o700)
    job["uid"] = 2_000_000_000 + os.getpid()
    if os.geteuid() == 0:
        try:
            os.chown(folder, job["uid"], NOBODY)
        except OSError:  # a container knows fewer users
            job["uid"] = NOBODY
            os.chown(folder, NOBODY, NOBODY)
    return folder


def _drain(fd: int) -> bytes:
    """What lies in a pipe now, at most 2 MiB of it."""
    found = b""
    try:
        while len(found) < 1 << 21 and (data := os.read(fd, 1 << 16)):
            found += data
    except BlockingIOError:
        pass
    return found
