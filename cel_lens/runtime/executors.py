"""How pieces of work are carried out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol, TypeVar

__all__ = ["Executor", "SerialExecutor"]

Job = TypeVar("Job")
Outcome = TypeVar("Outcome")


class Executor(Protocol):
    """Carries out pieces of work; knows nothing of what they are."""

    def run(
        self, work: Callable[[tuple[Job, ...]], Iterable[Outcome]], jobs: tuple[Job, ...]
    ) -> Iterator[Outcome]:
        """Do all jobs.

        Args:
            work: Does a group of jobs and yields one outcome for each, as soon as it is known.
            jobs: May be cut into groups in any way.

        Returns:
            The outcomes, in any order.
        """


class SerialExecutor:
    """Does everything in this process, one after the other."""

    def run(
        self, work: Callable[[tuple[Job, ...]], Iterable[Outcome]], jobs: tuple[Job, ...]
    ) -> Iterator[Outcome]:
        """Do all jobs as one group."""
        yield from work(jobs)
