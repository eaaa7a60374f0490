"""How much sooner the sweep engine gives the same answers: ratios measured side by side in one process.

Two loops that a competent user writes are the comparison: TransformerLens with hooks and a key/value
cache (our reference engine), and plain transformers with a pre-hook on the output projection,
``generate`` and fused attention. A loop is timed on a few conditions, since every condition costs it the
same; the sweep is timed on all heads of layers that are spread evenly, half-way up on average.

    python benchmarks/sweep.py --data FOLDER --write          # every row, on a quiet machine
    python benchmarks/sweep.py --data FOLDER --only four-shot # the rows with this in their name
    python benchmarks/sweep.py --quick                        # fewer conditions in more turns, for a noisy machine

FOLDER holds ``boolq.jsonl`` and ``hellaswag.jsonl`` in their published columns; without it only
arithmetic is measured.
"""

from __future__ import annotations

import argparse
import platform
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from plain_loop import PlainLoop

from cel_lens.evaluation import Evaluator
from cel_lens.evaluation.reference import ReferenceEngine
from cel_lens.evaluation.sweep import SweepEngine
from cel_lens.heads import INTACT, HeadSet, all_heads
from cel_lens.models import LensModel, lens_of
from cel_lens.models.embedded import read_embedded
from cel_lens.models.loading import load_model
from cel_lens.results import Outcomes, SearchConfig
from cel_lens.runtime import MemoryJournal, SerialExecutor, SilentProgress
from cel_lens.search.joint import subsets_of
from cel_lens.search.ranking import rank_key
from cel_lens.search.run import SearchRun
from cel_lens.search.screening import screen
from cel_lens.stats import paired_counts
from cel_lens.tasks import Choose, Example, Panels, Task, get_task, make_panels


class Sizes(NamedTuple):
    """How much is measured.

    Attributes:
        layers: Layers whose heads are removed, on arithmetic and on the longer tasks.
        examples: Of arithmetic, BoolQ without and with solved examples, and HellaSwag.
        pool: Heads of the joint stage.
        kept: Heads that elimination looks for.
        turns: Conditions on which a loop is timed; the sweep is cut into as many parts.
    """

    layers: tuple[int, int]
    examples: tuple[int, int, int, int]
    pool: int
    kept: int
    turns: int


WHOLE = Sizes(layers=(10, 4), examples=(64, 12, 24, 8), pool=8, kept=4, turns=2)
QUICK = Sizes(layers=(6, 4), examples=(32, 4, 8, 4), pool=6, kept=3, turns=4)
SMALL = Sizes(layers=(2, 2), examples=(6, 3, 3, 2), pool=3, kept=3, turns=1)


@dataclass(frozen=True)
class WithShots:
    """A choice task with solved examples in front of every context."""

    task: Task
    shots: tuple[Example, ...]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.task, name)

    def request(self, example: Example) -> Choose:
        request = self.task.request(example)
        assert isinstance(request, Choose)
        return replace(request, context="".join(map(self._solved, self.shots)) + request.context)

    def _solved(self, shot: Example) -> str:
        request = self.task.request(shot)
        assert isinstance(request, Choose)
        right = next(choice for choice in request.choices if choice.strip() == shot.target)
        return f"{request.context}{right}\n\n"


@dataclass(frozen=True)
class Job:
    """One row to measure."""

    name: str
    task: Task
    panels: Panels
    head_sets: tuple[HeadSet, ...]

    @property
    def panel(self) -> tuple[Example, ...]:
        """The examples that are run."""
        return self.panels.discovery


@dataclass(frozen=True)
class Line:
    """One row of the table: seconds for the whole job by each way of doing it.

    ``same`` says that the verdicts, or the pool found by elimination, are the same; ``efficiency`` is the
    share of the machine's rate of matrix products.
    """

    name: str
    conditions: int
    examples: int
    sweep: float
    hooks: float
    plain: float
    same: bool
    efficiency: float | None

    def cells(self) -> str:
        share = "" if self.efficiency is None else f"{self.efficiency:.0%}"
        return (
            f"| {self.name} | {self.conditions} x {self.examples} | {self.hooks / self.sweep:.1f} | "
            f"{self.plain / self.sweep:.1f} | {share} | {'yes' if self.same else 'NO'} |"
        )


class Measured(NamedTuple):
    """A row, and what each head set answered."""

    line: Line
    outcomes: dict[HeadSet, Outcomes]


def measure(lens: LensModel, plain: PlainLoop, job: Job, turns: int) -> Measured:
    """Time one job by the sweep and by both loops on a spread of its conditions, in turns."""
    head_sets = job.head_sets
    bounds = [place * len(head_sets) // turns for place in range(turns + 1)]
    reference = ReferenceEngine(lens, job.task, job.panel, 32)
    engine = SweepEngine(lens, job.task, job.panel)
    found: dict[HeadSet, Outcomes] = {}
    hooks = others = seconds = 0.0
    same, rate = True, matrix_rate()
    for first, last in pairwise(bounds):
        part = [*([INTACT] if first == 0 else []), *head_sets[first:last]]
        took, outcomes = timed(lambda part=part: list(engine.evaluate(part)))
        seconds += took
        found |= {one.heads: one for one in outcomes}
        heads = head_sets[(first + last) // 2]
        took, slow = timed(lambda heads=heads: next(reference.evaluate([heads])))
        hooks += took
        took, verdicts = timed(lambda heads=heads: plain.verdicts(job.task, job.panel, heads))
        others += took
        same = same and slow.correct == found[heads].correct == verdicts
        rate = max(rate, matrix_rate())
    work = (
        2 * engine.counter.layer_tokens * layer_weights(lens)
        + 2 * engine.counter.unembedded * lens.model.W_U.numel()
    )
    scale = (len(head_sets) + 1) / turns
    line = Line(
        job.name,
        len(head_sets),
        len(job.panel),
        seconds,
        hooks * scale,
        others * scale,
        same,
        work / seconds / rate,
    )
    return Measured(line, found)


def measure_elimination(lens: LensModel, job: Job, exhaustive: Measured, kept: int) -> Line:
    """Time a screening that eliminates, all that it asks of the model included, and compare its pool."""
    evaluator = Evaluator(lens.model, job.task)
    run = SearchRun(evaluator, job.panels, MemoryJournal(), SerialExecutor(), SilentProgress())
    heads = tuple(one.heads[0] for one in job.head_sets)
    config = SearchConfig(screening="eliminate", pool_size=kept, max_heads=1)
    seconds, found = timed(lambda: screen(run, heads, config))
    verdicts = {one: np.array(outcomes.correct) for one, outcomes in exhaustive.outcomes.items()}

    def key(one: HeadSet) -> Any:
        return rank_key(one, *paired_counts(verdicts[INTACT], verdicts[one]))

    best = [one.heads[0] for one in sorted(job.head_sets, key=key)[:kept]]
    return replace(
        exhaustive.line,
        name=f"{job.name}, best {kept} by elimination",
        sweep=seconds,
        same=[one.head for one in found.gains[:kept]] == best,
        efficiency=None,
    )


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds and result."""
    began = time.perf_counter()
    result = work()
    return time.perf_counter() - began, result


def matrix_rate() -> float:
    """This machine's float32 matrix-product rate at the moment, floating-point operations per second."""
    left, right = torch.randn(2048, 1536), torch.randn(1536, 1536)
    best = min(timed(lambda: left @ right)[0] for _ in range(5))
    return 2 * 2048 * 1536 * 1536 / best


def layer_weights(lens: LensModel) -> int:
    """Weights of one layer's matrices, as the model stores them."""
    cfg = lens.model.cfg
    attention = cfg.d_model * cfg.d_head * (2 * lens.n_heads + 2 * lens.n_key_value_heads)
    return int(attention + (3 if cfg.gated_mlp else 2) * cfg.d_model * cfg.d_mlp)


def jobs(lens: LensModel, data: Path | None, sizes: Sizes) -> Iterator[Job]:
    """The tasks, panels and conditions to measure."""
    arithmetic = get_task("arithmetic")
    few, many = (spread_heads(lens, count) for count in sorted(sizes.layers))
    panels = _panels(arithmetic, sizes.examples[0])
    yield Job("arithmetic, six-shot", arithmetic, panels, many)
    heads = all_heads(lens.n_layers, lens.n_heads)
    pool = heads[13 :: len(heads) // 10][: sizes.pool]
    joint = tuple(one for one in subsets_of(pool, 3) if len(one) > 1)
    yield Job("arithmetic, joint stage", arithmetic, panels, joint)
    if data is None:
        return
    boolq = get_task("boolq", data=data / "boolq.jsonl")
    shots = tuple(sorted(boolq.examples(), key=lambda one: len(one.prompt))[:4])
    shown: Any = WithShots(boolq, shots)
    hellaswag = get_task("hellaswag", data=data / "hellaswag.jsonl")
    yield Job("BoolQ, zero-shot", boolq, _panels(boolq, sizes.examples[1], shots), few)
    yield Job("BoolQ, four-shot", shown, _panels(boolq, sizes.examples[2], shots), few)
    yield Job("HellaSwag, zero-shot", hellaswag, _panels(hellaswag, sizes.examples[3]), few)


def spread_heads(lens: LensModel, count: int) -> tuple[HeadSet, ...]:
    """Each head of layers that are spread evenly over the model."""
    layers = tuple((2 * place + 1) * lens.n_layers // (2 * count) for place in range(count))
    return tuple(HeadSet((head,)) for head in all_heads(lens.n_layers, lens.n_heads, layers))


def _panels(task: Task, n: int, leave_out: tuple[Example, ...] = ()) -> Panels:
    ids = {one.id for one in leave_out}
    examples = [one for one in task.examples() if one.id not in ids]
    return make_panels(examples, n_discovery=n, n_heldout=1)


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path)
    parser.add_argument("--only", default="", metavar="NAME", help="only rows with this in their name")
    parser.add_argument("--quick", action="store_true", help="fewer conditions, in more turns with the loops")
    parser.add_argument("--small", action="store_true", help="very little, to see that it runs")
    parser.add_argument("--write", action="store_true", help="write results.md beside this file")
    given = parser.parse_args()
    sizes = SMALL if given.small else QUICK if given.quick else WHOLE
    lens = lens_of(load_model("smollm2-135m-instruct"))
    chosen = [job for job in jobs(lens, given.data, sizes) if given.only.lower() in job.name.lower()]
    if not chosen:
        parser.error(f"no row has {given.only!r} in its name (without --data there is only arithmetic)")
    plain = PlainLoop(read_embedded(torch.float32).hf_model, lens)
    lines = []
    for job in chosen:
        measured = measure(lens, plain, job, sizes.turns)
        lines.append(measured.line)
        print(lines[-1].cells(), flush=True)
        if job.name == "arithmetic, six-shot":
            lines.append(measure_elimination(lens, job, measured, sizes.kept))
            print(lines[-1].cells(), flush=True)
    if given.write:
        write(lines)


def write(lines: Sequence[Line]) -> None:
    """Write the table as Markdown."""
    head = (
        "# The sweep engine against two loops\n\n"
        "SmolLM2-135M-Instruct in float32, every head of layers spread evenly over the model, removed alone (for the "
        "joint stage every pair and triple of a pool), "
        f"{torch.get_num_threads()} threads, {platform.machine()}, torch {torch.__version__}. Each ratio is the time "
        "of the loop for the whole job, extrapolated from a few conditions, divided by the time of the sweep, in one "
        "process, in turns. Efficiency is the sweep's counted floating-point rate against the machine's own rate for a "
        "matrix product in the same run. Elimination is compared with the loops' whole screening, and `same` says that "
        "the best heads are those of the exhaustive sweep; elsewhere that all three ways give the same verdicts.\n\n"
        "| job | conditions x examples | against TransformerLens hooks | against plain transformers | efficiency | "
        "same |\n|---|---|---|---|---|---|\n"
    )
    text = head + "\n".join(line.cells() for line in lines) + "\n"
    Path(__file__).with_name("results.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
