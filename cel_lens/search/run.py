"""The running search: measures head sets on a panel, each once, remembered in the journal."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Literal, NamedTuple

from cel_lens.errors import EvaluationError, RunFolderError
from cel_lens.evaluation import Engine, Evaluator
from cel_lens.heads import INTACT, Head, HeadSet
from cel_lens.results import HeadPrediction, OutcomeMatrix, Outcomes
from cel_lens.runtime import Executor, Journal, Progress
from cel_lens.search.records import ConditionRecord
from cel_lens.stats import paired_counts
from cel_lens.tasks import Panels

__all__ = ["PartCounts", "Predictions", "SearchRun", "Side"]

Side = Literal["discovery", "heldout"]


class PartCounts(NamedTuple):
    """Counts of a condition over the examples it has been measured on.

    Attributes:
        n: Examples measured.
        rescued: Wrong when intact and right when ablated.
        damaged: Right when intact and wrong when ablated.
    """

    n: int
    rescued: int
    damaged: int


class Predictions(NamedTuple):
    """What attribution predicts.

    Attributes:
        heads: Every head of the model, the best prediction first.
        n_without_margin: Discovery examples for which nothing is predicted.
    """

    heads: tuple[HeadPrediction, ...]
    n_without_margin: int


class SearchRun:
    """Knows what has been measured and measures the rest.

    Args:
        evaluator: Model and task.
        panels: Both panels.
        journal: Remembers finished conditions.
        executor: Carries the work out.
        progress: Shows it.

    Attributes:
        panels: Both panels.
        journal: The journal.
        seconds: Wall time of each finished stage.
    """

    def __init__(
        self, evaluator: Evaluator, panels: Panels, journal: Journal, executor: Executor, progress: Progress
    ) -> None:
        self.panels = panels
        self.journal = journal
        self.seconds: dict[str, float] = {}
        self._evaluator = evaluator
        self._executor = executor
        self._progress = progress
        self._engines: dict[Side, Engine] = {}
        self._known: dict[tuple[Side, HeadSet], ConditionRecord] = {}
        self._parts: dict[HeadSet, list[tuple[tuple[int, ...], ConditionRecord]]] = {}

        self._again: Outcomes | None = None
        """What the intact model answered the second time, if it was discovery and in this process."""

    def measure(self, side: Side, head_sets: Sequence[HeadSet], stage: str) -> None:
        """Make sure that the intact model and every head set are measured on a panel.

        Args:
            side: The panel.
            head_sets: Conditions, the intact model included or not.
            stage: Name shown and timed.
        """
        began = time.monotonic()
        wanted = tuple(dict.fromkeys((INTACT, *head_sets)))
        missing = tuple(heads for heads in wanted if not self._recall(side, heads))
        self._progress.stage(stage, len(wanted))
        for heads in wanted:
            if heads not in missing:
                self._progress.advance(heads.label, "from the journal")
        best: tuple[float, HeadSet] | None = None
        for outcomes in self._executor.run(self._work(side), missing):
            record = ConditionRecord.of(outcomes)
            self.journal.put(_key(side, record.heads), record.to_json())
            self._known[side, record.heads] = record
            best = self._better(side, record, best)
            self._progress.advance(record.heads.label, _best_text(best))
        self._spent(stage, began)

    def measure_part(
        self, head_sets: Sequence[HeadSet], places: tuple[int, ...], *, stage: str, part: str
    ) -> None:
        """Measure head sets on some discovery examples; :meth:`assemble` puts the parts together.

        Args:
            head_sets: Conditions, all without this part so far.
            places: Positions of the examples in the panel.
            stage: Name shown and timed.
            part: Name of the part; the same name always means the same places.
        """
        if not head_sets:
            return
        began = time.monotonic()
        self._progress.stage(f"{stage}, {part}", len(head_sets))
        missing = []
        for heads in head_sets:
            found = self.journal.get(_key("discovery", heads, part))
            if found is None:
                missing.append(heads)
            else:
                self._add_part(places, ConditionRecord.from_json(found, heads, len(places)))
                self._progress.advance(heads.label, "from the journal")
        for outcomes in self._executor.run(self._work("discovery", places), tuple(missing)):
            record = ConditionRecord.of(outcomes)
            self.journal.put(_key("discovery", record.heads, part), record.to_json())
            self._add_part(places, record)
            self._progress.advance(record.heads.label)
        self._spent(stage, began)

    def closest_first(self) -> tuple[int, ...]:
        """Positions of the discovery examples, those that the intact model decides by the least margin first.

        The order is remembered in the journal: parts of the panel are named by it.

        Raises:
            RunFolderError: If the journal holds no order of this panel.
        """
        found = self.journal.get("elimination order")
        if found is None:
            margins = self._evaluator.margins(self.panels.discovery, self._intact_answers())
            found = {"places": sorted(range(len(margins)), key=lambda place: (margins[place], place))}
            self.journal.put("elimination order", found)
        places = found.get("places")
        if not isinstance(places, list) or sorted(places) != list(range(len(self.panels.discovery))):
            raise RunFolderError("the journal's order of the examples is damaged: start in a new folder")
        return tuple(places)

    def predictions(self) -> Predictions:
        """What removing each head would do on discovery, to first order; remembered in the journal.

        Raises:
            RunFolderError: If the journal's predictions are damaged.
        """
        began = time.monotonic()
        self._progress.stage("attribution", 1)
        found = self.journal.get("attribution")
        if found is None:
            attribution = self._evaluator.attribution(self.panels.discovery, self._intact_answers())
            found = {
                "without margin": attribution.n_without_margin,
                "heads": [[str(head), *counts] for head, *counts in attribution.ranking()],
            }
            self.journal.put("attribution", found)
        n = len(self.panels.discovery)
        try:
            heads = tuple(
                HeadPrediction(head=Head.parse(name), n=n, rescued=int(rescued), damaged=int(damaged))
                for name, rescued, damaged in found["heads"]
            )
            without = int(found["without margin"])
        except (KeyError, TypeError, ValueError) as error:
            raise RunFolderError("the journal's attribution is damaged: start in a new folder") from error
        self._progress.advance("all heads")
        self._spent("attribution", began)
        return Predictions(heads, without)

    def is_known(self, side: Side, heads: HeadSet) -> bool:
        """Whether a condition is measured on the whole panel."""
        return (side, heads) in self._known

    def part_counts(self, heads: HeadSet) -> PartCounts:
        """What is known of a condition so far, of which only parts may be measured."""
        if self.is_known("discovery", heads):
            return PartCounts(len(self.panels.discovery), *self.counts("discovery", heads))
        intact = self.record("discovery", INTACT).correct
        seen = {
            place: right
            for places, one in self._parts.get(heads, ())
            for place, right in zip(places, one.correct, strict=True)
        }
        rescued = sum(right and not intact[place] for place, right in seen.items())
        damaged = sum(not right and intact[place] for place, right in seen.items())
        return PartCounts(len(seen), rescued, damaged)

    def assemble(self, heads: HeadSet) -> None:
        """Make one record of a condition whose parts cover the discovery panel, unless there is one."""
        if not self.is_known("discovery", heads):
            self._known["discovery", heads] = ConditionRecord.assemble(self._parts[heads])

    def repeat_intact(self, side: Side) -> None:
        """Run the intact model a second time; the answers must be the same.

        Raises:
            EvaluationError: If an answer or a token differs.
        """
        first = self.record(side, INTACT)
        key = f"{_key(side, INTACT)} repeated"
        found = self.journal.get(key)
        if found is None:
            fresh = self._evaluator.engine(self.panels.side(side))
            again = next(iter(fresh.evaluate([INTACT])))
            self._again = again if side == "discovery" else None
            found = ConditionRecord.of(again).to_json()
            self.journal.put(key, found)
        if ConditionRecord.from_json(found, INTACT, len(first.correct)).digest != first.digest:
            raise EvaluationError(
                f"the intact model answered the {side} examples differently a second time, so no gain can be "
                "measured (a non-deterministic device or library?)"
            )

    def record(self, side: Side, heads: HeadSet) -> ConditionRecord:
        """What was measured of one condition."""
        return self._known[side, heads]

    def counts(self, side: Side, heads: HeadSet) -> tuple[int, int]:
        """Rescued and damaged examples of one condition."""
        return paired_counts(self.record(side, INTACT).verdicts, self.record(side, heads).verdicts)

    def matrix(self, side: Side) -> OutcomeMatrix:
        """All verdicts on a panel, intact first, then by size and coordinates."""
        import numpy as np

        conditions = sorted(
            (heads for known_side, heads in self._known if known_side == side),
            key=lambda heads: (len(heads), heads),
        )
        return OutcomeMatrix(
            conditions=tuple(conditions),
            example_ids=tuple(one.id for one in self.panels.side(side)),
            correct=np.array([self.record(side, heads).correct for heads in conditions], dtype=np.bool_),
        )

    def _recall(self, side: Side, heads: HeadSet) -> bool:
        if (side, heads) in self._known:
            return True
        found = self.journal.get(_key(side, heads))
        if found is None:
            return False
        n_examples = len(self.panels.side(side))
        self._known[side, heads] = ConditionRecord.from_json(found, heads, n_examples)
        return True

    def _intact_answers(self) -> Outcomes:
        return self._again or next(iter(self._engine("discovery").evaluate([INTACT])))

    def _engine(self, side: Side) -> Engine:
        if side not in self._engines:
            self._engines[side] = self._evaluator.engine(self.panels.side(side))
        return self._engines[side]

    def _work(
        self, side: Side, places: tuple[int, ...] | None = None
    ) -> Callable[[tuple[HeadSet, ...]], Iterator[Outcomes]]:
        def evaluate(head_sets: tuple[HeadSet, ...]) -> Iterator[Outcomes]:
            if head_sets:
                yield from self._engine(side).evaluate(head_sets, places)

        return evaluate

    def _add_part(self, places: tuple[int, ...], record: ConditionRecord) -> None:
        self._parts.setdefault(record.heads, []).append((places, record))

    def _spent(self, stage: str, began: float) -> None:
        self.seconds[stage] = round(self.seconds.get(stage, 0.0) + time.monotonic() - began, 3)

    def _better(
        self, side: Side, record: ConditionRecord, best: tuple[float, HeadSet] | None
    ) -> tuple[float, HeadSet] | None:
        if record.heads == INTACT or (side, INTACT) not in self._known:
            return best
        rescued, damaged = self.counts(side, record.heads)
        gain = (rescued - damaged) / len(record.correct)
        return (gain, record.heads) if best is None or gain > best[0] else best


def _key(side: Side, heads: HeadSet, part: str = "") -> str:
    return f"{side}/{heads.label}" + (f"/{part}" if part else "")


def _best_text(best: tuple[float, HeadSet] | None) -> str:
    return "" if best is None else f"best so far {100 * best[0]:+.1f} points ({best[1]})"
