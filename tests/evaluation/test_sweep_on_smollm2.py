"""The two engines agree on a real model and on the tasks that people run."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cel_lens.evaluation.reference import ReferenceEngine
from cel_lens.evaluation.sweep import SweepEngine
from cel_lens.heads import INTACT, HeadSet, all_heads
from cel_lens.models import LensModel, lens_of, load_model
from cel_lens.tasks import Task, get_task, make_panels

ROWS = Path(__file__).parent.parent / "data"


@pytest.fixture(scope="module")
def lens() -> LensModel:
    return lens_of(load_model("smollm2-135m-instruct"))


def conditions() -> list[HeadSet]:
    """The intact model, 14 single heads, 13 pairs and 13 triples, the same every time."""
    draw, heads = random.Random(0), all_heads(30, 9)
    sizes = [1] * 14 + [2] * 13 + [3] * 13
    return [INTACT, *(HeadSet(tuple(sorted(draw.sample(heads, size)))) for size in sizes)]


def tasks() -> dict[str, Task]:
    return {
        "arithmetic": get_task("arithmetic"),
        "arithmetic, lm-eval": get_task("arithmetic", style="lm-eval"),
        "boolq": get_task("boolq", data=ROWS / "boolq.jsonl"),
        "hellaswag": get_task("hellaswag", data=ROWS / "hellaswag.jsonl"),
    }


@pytest.mark.slow
@pytest.mark.parametrize("name", list(tasks()))
def test_forty_head_sets_get_the_same_answers(lens: LensModel, name: str) -> None:
    task: Any = tasks()[name]
    examples = make_panels(task.examples(), n_discovery=2, n_heldout=1).discovery
    fast = {one.heads: one for one in SweepEngine(lens, task, examples).evaluate(conditions())}
    slow = {one.heads: one for one in ReferenceEngine(lens, task, examples, 3).evaluate(conditions())}
    assert len(fast) == len(slow) == 41
    for heads, expected in slow.items():
        for ours, theirs in zip(fast[heads].details, expected.details, strict=True):
            assert ours.log_likelihoods == pytest.approx(theirs.log_likelihoods, abs=1e-4)
            assert replace(ours, log_likelihoods=()) == replace(theirs, log_likelihoods=())
        assert fast[heads].correct == expected.correct
    answers = {
        tuple((one.answer, one.log_likelihoods) for one in outcomes.details) for outcomes in slow.values()
    }
    assert len(answers) > 2, "the ablations change nothing, so equality would mean nothing"
