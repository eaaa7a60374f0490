from __future__ import annotations

import resource
import sys

import pytest

from cel_lens.errors import EvaluationError, InvalidInput
from cel_lens.tasks.sandbox import Limits, Program, ProgramResult, Sandbox, open_sandbox, sandbox

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the sandbox's levels are Linux facilities")

QUICK = Limits(wall=2.0)


def test_a_timeout_is_tried_again_alone_and_known_results_are_kept(monkeypatch):
    calls = []

    def attempt(self, program):
        calls.append(program.code)
        kind = "timeout" if program.code == "slow" and calls.count("slow") == 1 else "passed"
        return ProgramResult(kind=kind)

    monkeypatch.setattr(Sandbox, "_attempt", attempt)
    monkeypatch.setattr(sandbox, "_RESULTS", {})
    box = Sandbox(isolation="namespaces", limits=QUICK)
    programs = [Program(code=one, checks="") for one in ("slow", "quick", "slow")]
    assert [one.kind for one in box.run(programs)] == ["passed"] * 3
    assert sorted(calls) == ["quick", "slow", "slow"]
    box.run(programs)
    assert len(calls) == 3
    Sandbox(isolation="namespaces", limits=Limits(wall=1)).run(programs)
    assert len(calls) > 3, "other limits, other results"


def test_a_broken_sandbox_is_an_error_and_never_a_verdict(monkeypatch):
    monkeypatch.setattr(sandbox, "_RESULTS", {})
    monkeypatch.setattr(sandbox, "_visible", lambda: ())
    box = Sandbox(isolation="namespaces", limits=QUICK)
    with pytest.raises(EvaluationError, match="the sandbox for generated programs failed"):
        box.run([Program(code="def answer(): return 42", checks="assert answer() == 42")])
    assert sandbox._RESULTS == {}


def test_where_nothing_works_the_reasons_are_given(monkeypatch):
    monkeypatch.setattr(sandbox, "_visible", lambda: ())
    sandbox._problem.cache_clear()
    with pytest.raises(
        InvalidInput, match="cannot be run safely here \\(namespaces: a right program ended with"
    ):
        open_sandbox(QUICK, "namespaces")
    sandbox._problem.cache_clear()


@pytest.mark.parametrize("value", [0, -1, True, "3"])
def test_limits_are_positive_numbers(value):
    with pytest.raises(InvalidInput, match="the limit wall is a positive number"):
        Limits(wall=value)


def test_a_trivial_program_costs_little_enough_for_twenty_a_second_on_two_processors():
    box = open_sandbox(QUICK)
    programs = [
        Program(code=f"def answer(): return {n}", checks=f"assert answer() == {n}") for n in range(20)
    ]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert {one.kind for one in box.run(programs)} == {"passed"}
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    # processor time and not the clock: the machine may be busy with something else
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    assert used / len(programs) <= 2 / 20
