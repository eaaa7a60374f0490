"""Finding and ending every process below this one."""

from __future__ import annotations

import os
import time


def descendants() -> list[int]:
    """Processes below this one, as far as the system tells."""
    found, waiting = [], [os.getpid()]
    while waiting:
        children = _children(waiting.pop())
        found += children
        waiting += children
    return found


def resident(pids: list[int]) -> int:
    """Bytes of memory that processes hold, shared pages counted for each."""
    pages = 0
    for pid in pids:
        try:
            with open(f"/proc/{pid}/statm", encoding="ascii") as stream:
                pages += int(stream.read().split()[1])
        except (OSError, IndexError):
            continue
    return pages * os.sysconf("SC_PAGE_SIZE")


def end_all(leader: int) -> None:
    """Stop, then end every descendant; stopped ones cannot fork, so this comes to an end.

    Args:
        leader: The child that was forked; its process group is ended where descendants are not told.
    """
    for _ in range(500):
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        _signal_all(descendants() or [leader, -leader])
        time.sleep(0.0005)
    raise OSError("processes of the program could not be ended")


def _signal_all(pids: list[int]) -> None:
    import signal  # slow to import, and most programs leave nothing behind

    for number in (signal.SIGSTOP, signal.SIGKILL):
        for pid in pids:
            try:
                os.kill(pid, number)
            except (ProcessLookupError, PermissionError):
                continue


def _children(pid: int) -> list[int]:
    try:
        found = []
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/children", encoding="ascii") as stream:
                found += [int(one) for one in stream.read().split()]
        return found
    except OSError:
        return []  # gone meanwhile, or a system without this list
