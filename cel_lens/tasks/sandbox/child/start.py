"""What a forked child does until it becomes the program."""

from __future__ import annotations

import marshal
import os
import sys

from .confine import (
    NOBODY,
    PR_SET_DUMPABLE,
    PR_SET_NO_NEW_PRIVS,
    PR_SET_PDEATHSIG,
    SIGKILL,
    WORK,
    become,
    bubblewrap,
    build_root,
    prctl,
    unshare,
)

TYPE_CHECKING = False  # the typing module takes longer to import than a small program takes to run
if TYPE_CHECKING:
    from typing import Any, TypeAlias

    Job: TypeAlias = dict[str, Any]

ENVIRONMENT = {
    "PATH": "/usr/bin:/bin",
    "LANG": "C.UTF-8",
    "TZ": "UTC",
    "PYTHONHASHSEED": "0",  # isolated mode would ignore it: -s, -P and an empty environment do its work
}


class Pipes:
    """The child's ends of the pipes to the supervisor.

    Attributes:
        report: What the runner says.
        output: Standard output and standard error.
        status: The program's wait status, from the first process of its namespace.
        ready: The child has entered its namespaces.
        go: The supervisor has mapped the users of its namespace.
    """

    def __init__(self, report: int, output: int, status: int, ready: int, go: int) -> None:
        self.report, self.output, self.status, self.ready, self.go = report, output, status, ready, go

    def close(self) -> None:
        """Close all of them."""
        for fd in (self.report, self.output, self.status, self.ready, self.go):
            os.close(fd)


def become_program(job: Job, folder: str | None, pipes: Pipes) -> None:
    """Shut the process in and start the interpreter; returns only by an exception."""
    if sys.platform == "linux":
        prctl(PR_SET_PDEATHSIG, SIGKILL)
    if job["isolation"] == "namespaces":
        _in_namespaces(job, pipes)
    elif job["isolation"] == "bubblewrap":
        _execute(job, pipes, WORK, bubblewrap(job["bubblewrap"], job["visible"], job["folder"]))
    else:
        assert folder is not None
        os.chdir(folder)
        if os.geteuid() == 0:
            become(job["uid"])
        job["limits"] = [_above_present_use(limit) for limit in job["limits"]]
        _execute(job, pipes, folder, [])


def tell(report: int, error: BaseException) -> None:
    """Report that the sandbox itself failed."""
    os.write(report, marshal.dumps(("sandbox-error", f"{type(error).__name__}: {error}", "")))


def _in_namespaces(job: Job, pipes: Pipes) -> None:
    was_root = os.geteuid() == 0
    unshare()
    os.write(pipes.ready, b"r")
    if not os.read(pipes.go, 1):
        raise OSError("the users of the namespace were not mapped")
    first = os.fork()
    if first:
        for fd in (pipes.report, pipes.output, pipes.status):
            os.close(fd)
        os.waitpid(first, 0)
        os._exit(0)
    prctl(PR_SET_PDEATHSIG, SIGKILL)
    build_root(job["visible"], job["folder"])
    if was_root:
        become(NOBODY)
        prctl(PR_SET_PDEATHSIG, SIGKILL)
    program = os.fork()
    if program == 0:
        os.close(pipes.status)
        _execute(job, pipes, WORK, [])
    prctl(PR_SET_DUMPABLE, 0)
    os.close(pipes.report)
    os.close(pipes.output)
    while True:  # the first process of the namespace: when it leaves, the kernel ends all others
        pid, status = os.wait()
        if pid == program:
            os.write(pipes.status, str(status).encode())
            os._exit(0)


def _execute(job: Job, pipes: Pipes, home: str, prefix: list[str]) -> None:
    try:
        os.setsid()
        if sys.platform == "linux":
            prctl(PR_SET_PDEATHSIG, SIGKILL)  # a change of user took it away
            prctl(PR_SET_NO_NEW_PRIVS, 1)
        null = os.open("/dev/null", os.O_RDONLY)
        for source, target in ((null, 0), (pipes.output, 1), (pipes.output, 2)):
            os.dup2(source, target)
        load = _memory_file({name: job[name] for name in ("program", "checks", "token", "limits")})
        for fd in (load, pipes.report):
            os.set_inheritable(fd, True)
        source_text = job["runner"] + f"\n\nmain({load}, {pipes.report})\n"
        flags = ["-S", "-s", "-P", "-B", "-X", "utf8"]
        command = [*prefix, job["python"], *flags, "-c", source_text]
        os.execve(command[0], command, ENVIRONMENT | {"HOME": home, "TMPDIR": home})
    except BaseException as error:
        tell(pipes.report, error)
    os._exit(125)


def _above_present_use(limit: list[Any]) -> list[Any]:
    """Without a user of one's own, the limit on processes counts those that run already."""
    name, soft, hard = limit
    if name != "RLIMIT_NPROC":
        return limit
    used = 0
    for entry in os.listdir("/proc") if os.path.isdir("/proc/self/task") else ():
        try:
            if entry.isdigit() and os.stat(f"/proc/{entry}").st_uid == os.getuid():
                used += len(os.listdir(f"/proc/{entry}/task"))
        except OSError:
            continue
    return [name, soft + used, hard + used]


def _memory_file(values: Any) -> int:
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("job")
    else:
        import tempfile

        with tempfile.TemporaryFile() as stream:
            fd = os.dup(stream.fileno())
    data = marshal.dumps(values)
    while data:
        data = data[os.write(fd, data) :]
    os.lseek(fd, 0, os.SEEK_SET)
    return fd
