"""How much sooner the sweep engine gives the same answers: ratios measured side by side in one process.

Two loops that a competent user writes are the comparison: TransformerLens with hooks and a key/value
cache (our reference engine), and plain transformers with a pre-hook on the output projection,
``generate`` and fused attention. A loop is timed on heads spread evenly over the layers, since every
condition costs it the same; the sweep is timed whole.

    python benchmarks/sweep.py --data FOLDER --write

FOLDER holds ``boolq.jsonl`` and ``hellaswag.jsonl`` in their published columns; without it only
arithmetic is measured.
"""

from __future__ import annotations

import argparse
import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from plain_loop import PlainLoop

from cel_lens.evaluation.reference import ReferenceEngine
from cel_lens.evaluation.sweep import SweepEngine
from cel_lens.heads import INTACT, HeadSet, all_heads
from cel_lens.models import LensModel, lens_of
from cel_lens.models.embedded import read_embedded
from cel_lens.models.loading import load_model
from cel_lens.results import Outcomes
from cel_lens.search.joint import subsets_of
from cel_lens.tasks import Choose, Example, Task, get_task, make_panels


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
class Line:
    """One row of the table: seconds for the whole job by each way of doing it."""

    name: str
    conditions: int
    examples: int
    sweep: float
    hooks: float
    plain: float
    same: bool
    efficiency: float

    def cells(self) -> str:
        return (
            f"| {self.name} | {self.conditions} x {self.examples} | {self.hooks / self.sweep:.1f} | "
            f"{self.plain / self.sweep:.1f} | {self.efficiency:.0%} | {'yes' if self.same else 'NO'} |"
        )


def measure(
    name: str,
    lens: LensModel,
    plain: PlainLoop,
    task: Task,
    panel: Sequence[Example],
    head_sets: list[HeadSet],
) -> Line:
    """Time one job by the sweep and by both loops on a spread of its conditions."""
    sample = head_sets[:: max(1, len(head_sets) // 5)][:5]
    reference = ReferenceEngine(lens, task, panel, 32)
    engine = SweepEngine(lens, task, panel)
    found: dict[HeadSet, Outcomes] = {}
    hooks = others = 0.0
    seconds = 0.0
    same = True
    rate = matrix_rate()
    for number, heads in enumerate(sample):
        # interleaved: a part of the sweep, then one condition of each loop
        first, last = (place * len(head_sets) // len(sample) for place in (number, number + 1))
        part = head_sets[first:last]
        began = time.perf_counter()
        found |= {one.heads: one for one in engine.evaluate([INTACT, *part] if number == 0 else part)}
        seconds += time.perf_counter() - began
        took, slow = timed(lambda heads=heads: next(reference.evaluate([heads])))
        hooks += took
        took, verdicts = timed(lambda heads=heads: plain.verdicts(task, panel, heads))
        others += took
        same = same and slow.correct == found[heads].correct == verdicts
        rate = max(rate, matrix_rate())
    work = (
        2 * engine.counter.layer_tokens * layer_weights(lens)
        + 2 * engine.counter.unembedded * lens.model.W_U.numel()
    )
    scale = (len(head_sets) + 1) / len(sample)
    return Line(
        name,
        len(head_sets),
        len(panel),
        seconds,
        hooks * scale,
        others * scale,
        same,
        work / seconds / rate,
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


def jobs(data: Path | None, small: bool) -> list[tuple[str, Task, tuple[Example, ...]]]:
    """The tasks and panels to measure."""
    arithmetic = get_task("arithmetic")
    n_long, n_short = (4, 8) if small else (24, 64)
    found = [("arithmetic, six-shot", arithmetic, _panel(arithmetic, n_short))]
    if data is not None:
        boolq = get_task("boolq", data=data / "boolq.jsonl")
        shots = tuple(sorted(boolq.examples(), key=lambda one: len(one.prompt))[:4])
        rest = _panel(boolq, n_long, leave_out=shots)
        hellaswag = get_task("hellaswag", data=data / "hellaswag.jsonl")
        found += [
            ("BoolQ, zero-shot", boolq, rest),
            ("BoolQ, four-shot", WithShots(boolq, shots), rest),  # type: ignore[list-item]
            ("HellaSwag, zero-shot", hellaswag, _panel(hellaswag, n_long)),
        ]
    return found


def _panel(task: Task, n: int, leave_out: tuple[Example, ...] = ()) -> tuple[Example, ...]:
    ids = {one.id for one in leave_out}
    examples = [one for one in task.examples() if one.id not in ids]
    return make_panels(examples, n_discovery=n, n_heldout=1).discovery


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path)
    parser.add_argument("--small", action="store_true", help="few heads and examples, to see that it runs")
    parser.add_argument("--write", action="store_true", help="write results.md beside this file")
    given = parser.parse_args()
    lens = lens_of(load_model("smollm2-135m-instruct"))
    plain = PlainLoop(read_embedded(torch.float32).hf_model, lens)
    heads = all_heads(lens.n_layers, lens.n_heads)
    singles = [HeadSet((head,)) for head in (heads[::27] if given.small else heads)]
    lines = []
    for name, task, panel in jobs(given.data, given.small):
        lines.append(measure(name, lens, plain, task, panel, singles))
        print(lines[-1].cells(), flush=True)
        if name.startswith("arithmetic"):
            pool = heads[13::27][: 4 if given.small else 10]
            joint = [one for one in subsets_of(pool, 3) if len(one) > 1]
            lines.append(measure("arithmetic, joint stage", lens, plain, task, panel, joint))
            print(lines[-1].cells(), flush=True)
    if given.write:
        write(lines)


def write(lines: Sequence[Line]) -> None:
    """Write the table as Markdown."""
    head = (
        "# The sweep engine against two loops\n\n"
        "SmolLM2-135M-Instruct in float32, every single head (or every pair and triple of ten heads for the joint "
        f"stage), {torch.get_num_threads()} threads, {platform.machine()}, torch {torch.__version__}. Each ratio "
        "is the time of the loop for the whole job, extrapolated from five conditions spread over the layers, "
        "divided by the time of the sweep, in one process, interleaved. Efficiency is the sweep's counted "
        "floating-point rate against the machine's own rate for a matrix product in the same run.\n\n"
        "| job | conditions x examples | against TransformerLens hooks | against plain transformers | efficiency | "
        "same verdicts |\n|---|---|---|---|---|---|\n"
    )
    text = head + "\n".join(line.cells() for line in lines) + "\n"
    Path(__file__).with_name("results.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
