"""What a long run says while it works: a bar on a terminal, plain lines elsewhere, or nothing."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Any, Literal, Protocol, TypeAlias

from cel_lens.errors import InvalidInput

__all__ = ["BarProgress", "LineProgress", "Progress", "ProgressChoice", "SilentProgress", "choose_progress"]

ProgressChoice: TypeAlias = "Progress | Literal['auto', 'bar', 'lines', 'silent']"


class Progress(Protocol):
    """Told about stages and steps; used as a context manager around the whole run."""

    def __enter__(self) -> Progress:
        """Begin."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End, also after an error."""

    def stage(self, name: str, total: int) -> None:
        """A new stage with so many steps begins."""

    def advance(self, label: str, note: str = "") -> None:
        """One step of the stage is done.

        Args:
            label: What was done, for example a head.
            note: The state of affairs, for example the best gain so far.
        """


class SilentProgress:
    """Says nothing."""

    def __enter__(self) -> SilentProgress:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def stage(self, name: str, total: int) -> None:
        """Ignored."""

    def advance(self, label: str, note: str = "") -> None:
        """Ignored."""


class LineProgress:
    """Writes a line to standard error when a stage begins and ends and now and then between.

    Args:
        every_seconds: Least time between two lines of one stage.
    """

    def __init__(self, *, every_seconds: float = 20.0) -> None:
        self._every = every_seconds
        self._stage, self._total, self._done = "", 0, 0
        self._began = self._said = 0.0

    def __enter__(self) -> LineProgress:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def stage(self, name: str, total: int) -> None:
        """Write that a stage begins."""
        self._stage, self._total, self._done = name, total, 0
        self._began = self._said = time.monotonic()
        self._say(f"{name}: 0/{total}")

    def advance(self, label: str, note: str = "") -> None:
        """Write how far the stage is, unless a line came a moment ago."""
        self._done += 1
        now = time.monotonic()
        if self._done < self._total and now - self._said < self._every:
            return
        self._said = now
        spent = now - self._began
        left = spent / self._done * (self._total - self._done)
        time_text = f"about {_clock(left)} left" if self._done < self._total else f"took {_clock(spent)}"
        self._say(
            ", ".join(filter(None, (f"{self._stage}: {self._done}/{self._total} ({label})", note, time_text)))
        )

    @staticmethod
    def _say(text: str) -> None:
        sys.stderr.write(text + "\n")
        sys.stderr.flush()


class BarProgress:
    """A bar of the rich library with stage, head, best gain so far and time left."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as RichProgress

        self._bar = RichProgress(
            TextColumn("[bold]{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[label]}"),
            TextColumn("{task.fields[note]}"),
            TimeRemainingColumn(),
            console=Console(stderr=True),
        )
        self._task: Any = None

    def __enter__(self) -> BarProgress:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def stage(self, name: str, total: int) -> None:
        """Begin a bar of its own for the stage."""
        self._task = self._bar.add_task(name, total=total, label="", note="")

    def advance(self, label: str, note: str = "") -> None:
        """Move the bar."""
        self._bar.update(self._task, advance=1, label=label, note=note)


def choose_progress(choice: ProgressChoice) -> Progress:
    """The progress display for a choice.

    Args:
        choice: ``"auto"``: a bar if standard error is a terminal, else lines; or one by name; or an
            object of yours.

    Raises:
        InvalidInput: If the name is unknown.
    """
    if not isinstance(choice, str):
        return choice
    if choice == "auto":
        return BarProgress() if sys.stderr.isatty() else LineProgress()
    known: dict[str, type[Progress]] = {"bar": BarProgress, "lines": LineProgress, "silent": SilentProgress}
    if choice not in known:
        raise InvalidInput(f"progress is 'auto', {', '.join(map(repr, known))} or an object, not {choice!r}")
    return known[choice]()


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"
