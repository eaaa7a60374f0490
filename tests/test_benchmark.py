"""The benchmark script runs, and all ways of doing the work give the same verdicts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parent.parent / "benchmarks" / "sweep.py"


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, env=os.environ)


@pytest.mark.slow
def test_a_small_run_finds_the_same_verdicts_by_all_ways() -> None:
    done = run("--small")
    assert done.returncode == 0, done.stderr
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in done.stdout.splitlines()]
    names, sizes, hooks, plain, _, same = zip(*rows, strict=True)
    assert names == (
        "arithmetic, six-shot",
        "arithmetic, six-shot, best 3 by elimination",
        "arithmetic, joint stage",
    )
    assert sizes == ("18 x 6", "18 x 6", "4 x 6")
    assert all(float(one) > 0 for one in (*hooks, *plain))
    assert set(same) == {"yes"}


@pytest.mark.slow
def test_an_unknown_row_is_refused_before_anything_is_measured() -> None:
    done = run("--small", "--only", "no such row")
    assert done.returncode == 2
    assert "no row has 'no such row' in its name" in done.stderr
