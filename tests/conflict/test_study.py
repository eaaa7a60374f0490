"""A study counts what it measured, pairs the two tasks, and repeats itself."""

from __future__ import annotations

import math

import numpy as np
import pytest

from cel_lens.conflict import (
    ConflictSetting,
    ConflictStudy,
    ConflictTask,
    study_conflict,
    train_conflict_model,
)
from cel_lens.conflict.results import share_of
from cel_lens.errors import InvalidInput
from cel_lens.evaluation import evaluate_heads
from cel_lens.heads import HeadSet
from cel_lens.results import SearchConfig
from cel_lens.stats import estimate_gain

SETTING = ConflictSetting(steps=150, n_random=4, max_heads=2)
SEEDS = (0, 7)


@pytest.fixture(scope="module")
def lines() -> list[str]:
    return []


@pytest.fixture(scope="module")
def study(lines: list[str]) -> ConflictStudy:
    return study_conflict(SETTING, seeds=SEEDS, progress=lines.append)


def test_there_is_one_row_and_one_line_for_each_seed(study: ConflictStudy, lines: list[str]) -> None:
    assert [row.seed for row in study.rows] == list(SEEDS)
    assert [line.split(":")[0] for line in lines] == ["model 1 of 2 (seed 0)", "model 2 of 2 (seed 7)"]


def test_counts_add_up(study: ConflictStudy) -> None:
    for row in study.rows:
        removals = (row.chosen, *row.random)
        for one in removals:
            assert one.a.n == one.b.n == SETTING.n_heldout
            assert one.a.intact_correct == row.chosen.a.intact_correct
            assert one.b.intact_correct == row.chosen.b.intact_correct
            for estimate in (one.a, one.b):
                assert estimate.gain == (estimate.rescued - estimate.damaged) / estimate.n
                assert estimate.ci_low <= estimate.gain <= estimate.ci_high
            # The same prompts and the same answers: each answer that changed changed in both tasks.
            assert one.a.rescued + one.a.damaged == one.b.rescued + one.b.damaged
        assert len({one.heads for one in removals}) == 1 + len(row.random)
        assert {len(one.heads) for one in removals} == {len(row.chosen.heads)}


def test_the_change_on_task_b_is_that_of_an_evaluation_from_outside(study: ConflictStudy) -> None:
    row = study.rows[0]
    model = train_conflict_model(SETTING, row.seed)
    config = SearchConfig(n_discovery=SETTING.n_discovery, n_heldout=SETTING.n_heldout, seed=row.seed)
    for which, expected in (("A", row.chosen.a), ("B", row.chosen.b)):
        task = ConflictTask(which, row.seed, SETTING)  # type: ignore[arg-type]
        intact, ablated = (
            np.array(evaluate_heads(model, task, heads, panel="heldout", config=config).correct)
            for heads in (HeadSet(), row.chosen.heads)
        )
        assert estimate_gain(intact, ablated, split="heldout") == expected


def test_the_same_seed_gives_the_same_row(study: ConflictStudy) -> None:
    assert study_conflict(SETTING, seeds=SEEDS[1:]).rows == study.rows[1:]


def test_table_and_shares_agree(study: ConflictStudy) -> None:
    frame = study.to_frame()
    assert study.share_helps_a_hurts_b.times == int(frame.helps_a_hurts_b.sum())
    assert study.share_helps_a_hurts_b.times <= study.share_helps_a.times <= study.share_found.times
    assert study.share_found.times == int((frame.heads != "").sum())
    random = study.share_random_helps_a_hurts_b
    assert (random.times, random.n) == (int(frame.random_helps_a_hurts_b.sum()), int(frame.n_random.sum()))
    for row, line in zip(study.rows, frame.to_dict("records"), strict=True):
        assert line["gain_a"] == 100 * row.chosen.a.gain
        assert line["random_b"] == pytest.approx(100 * np.mean([one.b.gain for one in row.random]))
    assert f"{study.share_found.times} of 2" in study.summary


def test_a_share_has_its_exact_interval() -> None:
    none, everything, nothing = share_of([False] * 10), share_of([True] * 10), share_of([])
    assert none.high == pytest.approx(1 - 0.025 ** (1 / 10))
    assert everything.low == pytest.approx(0.025 ** (1 / 10))
    assert (none.low, everything.high) == (0, 1)
    assert (nothing.low, nothing.high) == (0, 1)
    assert math.isnan(nothing.share)
    assert share_of([True, False, True, True]).share == 0.75


@pytest.mark.parametrize("seeds", [(), (1, 1)])
def test_seeds_that_make_no_study_are_refused(seeds: tuple[int, ...]) -> None:
    with pytest.raises(InvalidInput, match="seeds"):
        study_conflict(SETTING, seeds=seeds)


@pytest.mark.slow
def test_chosen_heads_are_conflict_heads_more_often_than_random_ones() -> None:
    study = study_conflict(seeds=range(10))
    # At the measured rate of about 8 in 10, fewer than 5 of 10 happen once in 150 studies.
    assert study.share_helps_a_hurts_b.times >= 5
    assert study.share_helps_a_hurts_b.share > 2 * study.share_random_helps_a_hurts_b.share
    for row in study.rows:
        assert row.compromise > 0.95
        if row.chosen.helps_a_hurts_b:
            assert row.removed[0] == max(row.removed)
