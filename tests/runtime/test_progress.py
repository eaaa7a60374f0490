"""What a long run says, and what it does not."""

from __future__ import annotations

import io
import sys
from typing import Any

import pytest

from cel_lens.errors import InvalidInput
from cel_lens.runtime import BarProgress, LineProgress, SerialExecutor, SilentProgress, choose_progress
from cel_lens.runtime import progress as module


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(module, "time", found)
    return found


def test_lines_say_stage_count_best_and_time_left(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    with LineProgress(every_seconds=20) as progress:
        progress.stage("screening", 4)
        for seconds, head in ((15, "L0H0"), (15, "L0H1"), (1, "L0H2"), (69, "L0H3")):
            clock.now += seconds
            progress.advance(head, "best so far +1.0 points (L0H0)")
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == [
        "screening: 0/4",
        "screening: 2/4 (L0H1), best so far +1.0 points (L0H0), about 30 s left",
        "screening: 4/4 (L0H3), best so far +1.0 points (L0H0), took 1 min 40 s",
    ]


def test_lines_begin_anew_with_each_stage(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    progress = LineProgress(every_seconds=20)
    progress.stage("screening", 1)
    progress.advance("intact")
    clock.now += 100
    progress.stage("held-out", 2)
    clock.now += 19
    progress.advance("intact")
    clock.now += 2
    progress.advance("L0H0")
    assert capsys.readouterr().err.splitlines() == [
        "screening: 0/1",
        "screening: 1/1 (intact), took 0 s",
        "held-out: 0/2",
        "held-out: 2/2 (L0H0), took 21 s",
    ]


def test_silence_is_silent(capsys: pytest.CaptureFixture[str]) -> None:
    with SilentProgress() as progress:
        progress.stage("screening", 1)
        progress.advance("L0H0", "best")
    assert capsys.readouterr() == ("", "")


def test_a_bar_shows_stage_count_head_and_note(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("COLUMNS", "120")
    with BarProgress() as progress:
        progress.stage("screening", 2)
        progress.advance("intact")
        progress.advance("L0H7", "best so far +3.1 points (L0H7)")
    shown = stream.getvalue()
    for part in ("screening", "2/2", "L0H7", "best so far +3.1 points (L0H7)"):
        assert part in shown


def test_a_bar_ends_also_after_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    bar = BarProgress()
    bar.stage("screening", 2)
    with pytest.raises(KeyboardInterrupt), bar:
        raise KeyboardInterrupt
    assert not bar._bar.live.is_started


@pytest.mark.parametrize(
    ("choice", "kind"), [("bar", BarProgress), ("lines", LineProgress), ("silent", SilentProgress)]
)
def test_progress_is_chosen_by_name(choice: Any, kind: type) -> None:
    assert type(choose_progress(choice)) is kind


@pytest.mark.parametrize(("terminal", "kind"), [(True, BarProgress), (False, LineProgress)])
def test_automatic_progress_is_a_bar_only_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, terminal: bool, kind: type
) -> None:
    class Stream(io.StringIO):
        def isatty(self) -> bool:
            return terminal

    monkeypatch.setattr(sys, "stderr", Stream())
    assert type(choose_progress("auto")) is kind


def test_an_object_is_taken_as_it_is_and_another_name_refused() -> None:
    own = SilentProgress()
    assert choose_progress(own) is own
    with pytest.raises(
        InvalidInput, match="progress is 'auto', 'bar', 'lines', 'silent' or an object, not 'loud'"
    ):
        choose_progress("loud")  # type: ignore[arg-type]


def test_the_serial_executor_hands_over_each_outcome_as_soon_as_it_is_known() -> None:
    events: list[str] = []

    def work(jobs: tuple[int, ...]) -> Any:
        for job in jobs:
            events.append(f"did {job}")
            yield job * job

    for outcome in SerialExecutor().run(work, (1, 2, 3)):
        events.append(f"got {outcome}")
    assert events == ["did 1", "got 1", "did 2", "got 4", "did 3", "got 9"]
    assert list(SerialExecutor().run(work, ())) == []
