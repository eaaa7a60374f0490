"""Runs inside the child interpreter: limits itself, runs a program and its checks, and reports the end.

The supervisor passes this file's text to ``python -c``; it imports nothing but the standard library. The
report of success holds a random token, so a program that leaves early or prints something that looks like
success does not pass by accident. A program written to search this module's memory for the token could
still forge it: the record is no defence against a deliberate forger.
"""

from __future__ import annotations


def main(job_fd: int, report_fd: int) -> None:
    """Run the job that lies in one file descriptor and report to another."""
    import errno
    import marshal
    import os
    import resource
    import site
    import sys
    import types

    with os.fdopen(job_fd, "rb") as stream:
        job = marshal.load(stream)
    for name, soft, hard in job["limits"]:
        resource.setrlimit(getattr(resource, name), (soft, hard))
    # names of one's own, so that a program that replaces them in their modules replaces nothing here
    write, encode, get_pid, leave = os.write, marshal.dumps, os.getpid, os._exit
    run, stop_tracing, stop_profiling = exec, sys.settrace, sys.setprofile
    own_pid = get_pid()

    def report(kind: str, detail: str = "", token: str = "") -> None:
        if get_pid() != own_pid:  # a forked copy of the program came this far: not its verdict
            leave(0)
        write(report_fd, encode((kind, detail, token)))

    report("started")
    site.setquit()  # without site-packages, but with the builtins exit and quit
    module = types.ModuleType("__main__")
    module.__dict__["__builtins__"] = __builtins__
    sys.modules["__main__"] = module
    sys.argv = ["program.py"]
    try:
        parts = [
            compile(job[name], f"{name}.py", "exec", dont_inherit=True) for name in ("program", "checks")
        ]
    except (SyntaxError, ValueError, OverflowError, RecursionError, MemoryError) as error:
        report("syntax", type(error).__name__)
        leave(1)
    try:
        for part in parts:
            stop_tracing(None)
            stop_profiling(None)
            run(part, module.__dict__)
    except SystemExit:
        report("early-exit", "SystemExit")
    except AssertionError:
        report("assertion")
    except MemoryError:
        report("memory")
    except OSError as error:
        too_large = error.errno == errno.EFBIG
        report("output-limit" if too_large else "exception", type(error).__name__)
    except BaseException as error:
        report("exception", type(error).__name__)
    else:
        report("passed", token=job["token"])
        return
    leave(1)
