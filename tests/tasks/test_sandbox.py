"""Hostile programs: none passes, none survives, none harms."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cel_lens.errors import InvalidInput
from cel_lens.tasks.sandbox import Limits, Program, ProgramResult, Sandbox, open_sandbox, sandbox

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the sandbox's levels are Linux facilities")

QUICK = Limits(wall=2.0)
CHECKS = "assert answer() == 42"
RIGHT = "def answer(): return 42\n"


def readable_python() -> str:
    """An interpreter that any user may start: a private one cannot be used without namespaces."""
    own = sandbox._python()
    open_to_all = all(parent.stat().st_mode & 0o001 for parent in Path(own).parents)
    system = "/usr/bin/python3"
    return own if open_to_all or os.geteuid() != 0 or not Path(system).exists() else os.path.realpath(system)


@pytest.fixture(
    scope="module",
    params=["namespaces", *(pytest.param(one, marks=pytest.mark.slow) for one in ("bubblewrap", "limits"))],
)
def box(request):
    """A sandbox of every level that this machine has."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "limits":
            python = readable_python()
            patch.setattr(sandbox, "_python", lambda: python)
        try:
            yield open_sandbox(QUICK, request.param)
        except InvalidInput as error:
            pytest.skip(f"this machine does not offer it: {error}")
    sandbox._problem.cache_clear()


def end_of(box: Sandbox, code: str, checks: str = CHECKS, *, wall: float = 10.0) -> ProgramResult:
    """Run one program, patiently unless it has to be cut off: the machine may be busy."""
    patient = Sandbox(isolation=box.isolation, limits=Limits(wall=wall))
    return patient.run([Program(code=code, checks=checks)])[0]


def strangers(mark: str) -> list[str]:
    """Command lines of processes that hold a mark."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            text = (folder / "cmdline").read_text(errors="replace")
        except OSError:
            continue
        if mark in text and int(folder.name) != os.getpid():
            found.append(text)
    return found


ENDS = {
    "a right program": (RIGHT, "passed"),
    "a main block": ("if __name__ == '__main__':\n    def answer(): return 42\n", "passed"),
    "a wrong answer": ("def answer(): return 41", "assertion"),
    "nothing": ("", "exception: NameError"),
    "an unknown name": ("def answer(): return nothing", "exception: NameError"),
    "a fence": (f"```python\n{RIGHT}```\n", "syntax: SyntaxError"),
    "cut in the middle": ("def answer():\n    return (", "syntax: SyntaxError"),
    "a NUL": ("x = '\0'\n" + RIGHT, "syntax: "),
    "half a surrogate pair": ("x = '\ud800'\n" + RIGHT, "syntax: UnicodeEncodeError"),
    "CR LF": (RIGHT.replace("\n", "\r\n"), "passed"),
    "200 kB": (f"x = '''{'a' * 200_000}'''\n{RIGHT}", "passed"),
    "deep recursion": ("def f(n): return f(n + 1)\nf(0)", "exception: RecursionError"),
    "input": ("x = input()\n" + RIGHT, "exception: EOFError"),
    "an endless loop": ("while True: pass", "timeout"),
    "sleep": ("import time; time.sleep(60)", "timeout"),
    "sys.exit(0)": ("import sys; sys.exit(0)", "early-exit: SystemExit"),
    "exit()": ("exit()", "early-exit: SystemExit"),
    "raise SystemExit": ("raise SystemExit", "early-exit: SystemExit"),
    "os._exit(0)": ("import os; os._exit(0)", "early-exit: exit status 0"),
    "os._exit(0) in a test": ("import os\ndef answer(): os._exit(0)", "early-exit: exit status 0"),
    "10 GB": ("x = bytearray(10 * 1024**3)", "memory"),
    "a memory hog": ("x = []\nwhile True: x.append(bytearray(2**20))", "memory"),
    "endless output": ("while True: print('x' * 1000)", "output-limit"),
    "a huge file": ("open('big', 'wb').write(bytes(2 * 2**20))", "output-limit: OSError"),
    "a crash": ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "crash: SIGSEGV"),
    "suicide": ("import os; os.kill(os.getpid(), 9)", "crash: SIGKILL"),
}


@pytest.mark.parametrize("name", ENDS)
def test_every_end_has_its_class(box, name):
    code, expected = ENDS[name]
    found = str(end_of(box, code, wall=2.0 if expected == "timeout" else 10.0))
    assert found.startswith(expected) if expected.endswith(": ") else found == expected


FORGERIES = {
    "a printed success": "print('passed'); print({'kind': 'passed'}); import os; os._exit(0)",
    "a success on every descriptor": """
import os
for fd in range(1, 64):
    try: os.write(fd, b'passed')
    except OSError: pass
os._exit(0)
""",
    "a record with another token": """
import marshal, os
for fd in range(3, 64):
    try: os.write(fd, marshal.dumps(('passed', '', '0' * 32)))
    except OSError: pass
os._exit(0)
""",
    "another AssertionError": "import builtins\nbuiltins.AssertionError = type('E', (BaseException,), {})",
    "an exception hook that leaves": "import sys, os\nsys.excepthook = lambda *a: os._exit(0)",
    "an exit handler that leaves": "import atexit, os\natexit.register(lambda: os._exit(0))",
    "a patched compile and exec": """
import builtins
builtins.compile = lambda *a, **k: None
builtins.exec = lambda *a, **k: None
""",
    "a tracer that jumps over the tests": """
import sys
def tracer(frame, event, argument):
    if event == 'line' and frame.f_code.co_filename == 'checks.py':
        try: frame.f_lineno = 9
        except ValueError: pass
    return tracer
sys.settrace(tracer)
sys._getframe().f_trace = tracer
""",
    "a forked copy that ends well": """
import os
if os.fork():
    raise ValueError
def answer(): return 42
""",
    "closed descriptors": "import os\nos.closerange(3, 64)\n" + RIGHT,
}


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forged_success_does_not_pass(box, name):
    assert end_of(box, FORGERIES[name], CHECKS + "\n" * 9).kind not in ("passed", "sandbox-error")


def test_a_fork_bomb_ends_and_leaves_nothing(box):
    mark = f"bomb-{box.isolation}-{os.getpid()}"
    code = f"""
import os, sys
mark = {mark!r}
while True:
    try: os.fork()
    except OSError: pass
"""
    assert end_of(box, code, wall=2.0).kind in ("timeout", "memory", "crash")
    assert not strangers(f"mark = {mark!r}")


def test_processes_are_limited(box):
    code = """
import os
made = 0
try:
    while made < 100:
        if os.fork() == 0:
            import time; time.sleep(30)
        made += 1
except OSError: pass
def answer(): return 42 if 10 < made < 40 else made
"""
    assert str(end_of(box, code)) == "passed"


DAEMON = """
import os, subprocess, sys, signal, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        os.execv(sys.executable or '/usr/bin/python3', ['python', '-S', '-c', 'import time; time.sleep(300) #{mark}'])
    os._exit(0)
time.sleep(0.3)
def answer(): return 42
"""


def test_a_daemon_does_not_outlive_its_program_nor_hold_it_up(box):
    mark = f"daemon-{box.isolation}-{os.getpid()}"
    began = time.monotonic()
    assert str(end_of(box, DAEMON.replace("{mark}", mark))) == "passed"
    assert time.monotonic() - began < 8.0, "it held the pipe open, and that did not matter"
    assert not strangers(mark)


def test_ignoring_signals_does_not_help(box):
    code = """
import signal
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGXCPU):
    signal.signal(number, signal.SIG_IGN)
while True: pass
"""
    assert end_of(box, code, wall=2.0).kind == "timeout"


def test_killing_the_parent_and_everybody_else_harms_nobody(box):
    if box.isolation == "limits" and os.geteuid() != 0:
        pytest.skip("without another user or namespaces a program may end what its user may")
    bystander = subprocess.Popen(["sleep", "60"])
    try:
        for victim in ("os.getppid()", "-1", "0", str(os.getpid()), str(bystander.pid), "1"):
            code = f"import os\ntry: os.kill({victim}, 9)\nexcept OSError: pass\n{RIGHT}"
            assert end_of(box, code).kind in ("passed", "crash"), victim
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


def test_nothing_of_the_environment_or_the_caller_is_seen(box, monkeypatch):
    monkeypatch.setenv("SECRET_TOKEN", "hush")
    code = """
import os, sys
seen = sorted(set(os.environ) - {'PATH', 'LANG', 'TZ', 'PYTHONHASHSEED', 'HOME', 'TMPDIR', 'LC_CTYPE', 'PWD'})
open_ones = []
for fd in range(3, 64):
    try: os.fstat(fd); open_ones.append(fd)
    except OSError: pass
def answer(): return 42 if not seen and len(open_ones) == 1 and sys.flags.hash_randomization == 0 else (seen, open_ones)
"""
    assert str(end_of(box, code, "assert answer() == 42, answer()")) == "passed"


def shut_in(box):
    if box.isolation == "limits":
        pytest.skip("this level limits resources and does not shut the program in")


def test_nothing_outside_its_folder_can_be_written(box, tmp_path):
    if box.isolation == "limits" and os.geteuid() != 0:
        pytest.skip("without another user or namespaces a program may write what its user may")
    target = tmp_path / "harm"
    tmp_path.chmod(0o755)
    code = f"""
import os
failed = 0
for path in ({str(target)!r}, '/usr/harm', '/harm', '/etc/harm', '/dev/harm', '/bin/harm'):
    try: open(path, 'w')
    except OSError: failed += 1
open('own', 'w').write('x')
def answer(): return 42 if failed == 6 else failed
"""
    assert str(end_of(box, code)) == "passed"
    assert not target.exists()


def test_the_disk_outside_system_and_interpreter_is_not_seen(box):
    shut_in(box)
    code = f"""
import os
seen = [one for one in ({str(Path(__file__))!r}, '/proc/1', '/etc/passwd', '/var', '/home') if os.path.exists(one)]
def answer(): return seen or 42
"""
    assert str(end_of(box, code)) == "passed"


def test_no_socket_leads_anywhere(box, tmp_path):
    shut_in(box)
    import socket

    with socket.socket() as server, socket.socket(socket.AF_UNIX) as local:
        server.bind(("127.0.0.1", 0))
        server.listen()
        local.bind(f"\0{tmp_path.name}")
        local.listen()
        code = f"""
import socket
failed = 0
places = ((socket.AF_INET, ('127.0.0.1', {server.getsockname()[1]})), (socket.AF_UNIX, '\\0{tmp_path.name}'))
for family, address in places:
    probe = socket.socket(family)
    probe.settimeout(1)
    try: probe.connect(address)
    except OSError: failed += 1
def answer(): return 42 if failed == 2 else failed
"""
        assert str(end_of(box, code)) == "passed"


def test_privileges_cannot_be_had(box):
    shut_in(box)
    further = "libc.unshare(0x10000000), libc.unshare(0x00020000), " if box.isolation == "namespaces" else ""
    code = f"""
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
tries = [{further}libc.mount(b'none', b'/box', b'tmpfs', 0, None)]
try: os.setuid(0); tries.append(0)
except OSError: tries.append(-1)
try: os.mknod('node', 0o600 | 0o020000, os.makedev(1, 1)); tries.append(0)
except OSError: tries.append(-1)
def answer(): return 42 if set(tries) == {{-1}} and os.getuid() != 0 else tries
"""
    assert str(end_of(box, code, "assert answer() == 42, answer()")) == "passed"


def test_its_folder_has_little_room(box):
    shut_in(box)
    code = """
try:
    for number in range(100): open(str(number), 'wb').write(bytes(2**20))
except OSError as error: reason = error.errno
import errno
def answer(): return 42 if reason == errno.ENOSPC else reason
"""
    assert str(end_of(box, code)) == "passed"


def test_memory_of_many_processes_counts_together(box):
    code = """
import os, time
for _ in range(8):
    if os.fork() == 0:
        x = bytearray(300 * 2**20)
        for place in range(0, len(x), 4096): x[place] = 1
        time.sleep(30)
time.sleep(30)
"""
    assert end_of(box, code).kind == "memory"


def test_the_order_of_sets_is_the_same_every_time(box):
    code = "words = list({'pear', 'plum', 'fig', 'date', 'kiwi', 'lime'})\n"
    order = subprocess.run(
        [sandbox._python(), "-c", code + "print(words)"],
        env={"PYTHONHASHSEED": "0"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    for space in ("", " ", "  "):
        assert str(end_of(box, code, f"assert words == {order}{space}")) == "passed"


def test_the_supervisor_ends_its_program_when_the_caller_is_gone():
    mark = f"orphan-{os.getpid()}"
    caller = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "from cel_lens.tasks.sandbox import *\n"
            "s = Sandbox(isolation='namespaces', limits=Limits(wall=30, cpu=60))\n"
            f"s._attempt(Program(code='import time; time.sleep(30) #{mark}', checks=''))",
        ],
        cwd=Path(__file__).parents[2],
    )
    time.sleep(1.5)
    running = [text for text in strangers("def main(job_fd") if text]
    caller.kill()
    caller.wait()
    time.sleep(0.5)
    assert running
    assert not strangers("def main(job_fd")
