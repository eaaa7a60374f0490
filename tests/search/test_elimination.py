"""Elimination finds the exhaustive pool from fewer evaluations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cel_lens.heads import INTACT, Head, HeadSet, all_heads
from cel_lens.results import BeneficialHeads, Detail, Outcomes, SearchConfig
from cel_lens.runtime import MemoryJournal, SerialExecutor, SilentProgress
from cel_lens.search import find_beneficial_heads
from cel_lens.search.joint import JointSearch, search_subsets, subsets_of
from cel_lens.search.run import SearchRun
from cel_lens.search.screening import Screening, screen
from cel_lens.tasks import Example, Panels
from tests.evaluation.toy_tasks import Writing
from tests.models.tiny import tiny_model


class TableEngine:
    """Answers from a table of verdicts, and counts what it is asked."""

    def __init__(self, table: dict[HeadSet, np.ndarray]) -> None:
        self.table, self.asked = table, 0

    def evaluate(
        self, head_sets: Sequence[HeadSet], places: Sequence[int] | None = None
    ) -> Iterator[Outcomes]:
        for heads in head_sets:
            row = self.table[heads]
            chosen = range(len(row)) if places is None else sorted(places)
            self.asked += len(chosen)
            yield Outcomes(
                heads=heads,
                task="table",
                protocol="table",
                metric="table",
                example_ids=tuple(f"e{place}" for place in chosen),
                correct=tuple(bool(row[place]) for place in chosen),
                details=tuple(Detail(answer="", target="") for _ in chosen),
            )


def running(table: dict[HeadSet, np.ndarray]) -> tuple[SearchRun, TableEngine]:
    n = len(table[INTACT])
    examples = tuple(Example(id=f"e{place}", prompt="", target="") for place in range(n))
    panels = Panels(discovery=examples, heldout=(Example(id="h", prompt="", target=""),))
    engine = TableEngine(table)
    evaluator: Any = SimpleNamespace(
        engine=lambda _: engine,
        margins=lambda examples, _: [7.0 - place % 5 for place in range(len(examples))],
    )
    return SearchRun(evaluator, panels, MemoryJournal(), SerialExecutor(), SilentProgress()), engine


def screened(table: dict[HeadSet, np.ndarray], how: Any, pool_size: int) -> tuple[Screening, TableEngine]:
    run, engine = running(table)
    heads = tuple(one.heads[0] for one in table if len(one) == 1)
    config = SearchConfig(screening=how, pool_size=pool_size, max_heads=1)
    return screen(run, heads, config), engine


@given(
    seed=st.integers(0, 10**6),
    n=st.integers(1, 40),
    n_heads=st.integers(1, 30),
    share=st.floats(0, 1),
    changes=st.floats(0, 0.6),
    pool=st.integers(1, 30),
)
@settings(max_examples=150, deadline=None)
def test_the_pool_is_the_exhaustive_one_in_the_same_order(
    seed: int, n: int, n_heads: int, share: float, changes: float, pool: int
) -> None:
    draw = np.random.default_rng(seed)
    intact = draw.random(n) < share
    table = {INTACT: intact}
    for index in range(n_heads):
        table[HeadSet((Head(0, index),))] = intact ^ (draw.random(n) < changes * draw.random())
    pool = min(pool, n_heads)
    whole, every = screened(table, "exhaustive", pool)
    some, fewer = screened(table, "eliminate", pool)
    assert some.gains[:pool] == whole.gains[:pool]
    assert fewer.asked <= every.asked
    gains = {one.head: one.gain for one in whole.gains}
    assert {one.head for one in some.gains} | {one.head for one in some.bounds} == set(gains)
    assert all(gains[one.head] <= one.at_most for one in some.bounds)
    assert all(gains[one.head] == one.gain for one in some.gains)
    assert all(one.measured < n for one in some.bounds)


@given(
    seed=st.integers(0, 10**6),
    n=st.integers(1, 40),
    share=st.floats(0, 1),
    changes=st.floats(0, 0.6),
    pool=st.integers(1, 6),
    size=st.integers(1, 3),
    finalists=st.integers(1, 12),
)
@settings(max_examples=100, deadline=None)
def test_the_finalists_are_the_exhaustive_ones_in_the_same_order(
    seed: int, n: int, share: float, changes: float, pool: int, size: int, finalists: int
) -> None:
    draw = np.random.default_rng(seed)
    intact = draw.random(n) < share
    table = {INTACT: intact}
    for heads in subsets_of([Head(0, index) for index in range(8)], 3):
        table[heads] = intact ^ (draw.random(n) < changes * draw.random())
    found: dict[str, JointSearch] = {}
    asked = {}
    for how in ("exhaustive", "eliminate"):
        run, engine = running(table)
        config = SearchConfig(
            screening=how,  # type: ignore[arg-type]
            pool_size=pool,
            max_heads=min(size, pool),
            n_finalists=finalists,
        )
        single = tuple(Head(0, index) for index in range(8))
        found[how] = search_subsets(run, screen(run, single, config).gains, config)
        asked[how] = engine.asked
    whole, some = found["exhaustive"], found["eliminate"]
    assert some.gains[:finalists] == whole.gains[:finalists]
    assert asked["eliminate"] <= asked["exhaustive"]
    gains = {one.heads: one.gain for one in whole.gains}
    assert {one.heads for one in some.gains} | {one.heads for one in some.bounds} == set(gains)
    assert all(gains[one.heads] <= one.at_most for one in some.bounds)
    assert all(gains[one.heads] == one.gain for one in some.gains)
    assert all(one.measured < n for one in some.bounds)


def test_close_decisions_are_tried_first() -> None:
    """The first head is finished; all others but the last damage the two closest examples and are stopped there."""
    intact = np.arange(24) < 16
    table = {INTACT: intact}
    for index in range(9):
        row = intact.copy()
        if index < 8:
            row[[4, 9]] = False  # margin 3, the least there is
        table[HeadSet((Head(0, index),))] = row
    found, _ = screened(table, "eliminate", 1)
    assert [str(one.head) for one in found.gains] == ["L0H8", "L0H0"]
    assert {(one.measured, one.damaged) for one in found.bounds} == {(8 + 2, 2)}


def test_hopeless_heads_are_not_run_on_what_the_intact_model_gets_right() -> None:
    intact = np.arange(40) < 20
    table = {INTACT: intact}
    for index in range(20):
        row = intact.copy()
        row[20 : 20 + (9 if index < 2 else 0)] = True
        table[HeadSet((Head(0, index),))] = row
    found, engine = screened(table, "eliminate", 2)
    assert [str(one.head) for one in found.gains] == ["L0H0", "L0H1"]
    assert (
        engine.asked == 2 * 40 + 20 * 20 + 2 * 20
    )  # intact twice, all heads on the wrong half, two on the rest


@pytest.mark.parametrize("engine", ["sweep", "reference"])
def test_a_search_with_elimination_chooses_the_same_heads(engine: Any, tmp_path: Any) -> None:
    task = Writing(tuple(f"the {one} and {one * 7 % 31} is" for one in range(24)), max_new_tokens=4)
    results = {}
    for how in ("exhaustive", "eliminate"):
        config = SearchConfig(
            n_discovery=16,
            n_heldout=8,
            pool_size=5,
            max_heads=2,
            n_finalists=1,
            screening=how,
            engine=engine,  # type: ignore[arg-type]
        )
        results[how] = find_beneficial_heads(
            tiny_model("llama"), task, config, progress="silent", run_dir=tmp_path / how
        )
    whole, some = results["exhaustive"], results["eliminate"]
    assert some.subsets[0] == whole.subsets[0]
    assert some.n_subsets == whole.n_subsets == 15
    assert some.eliminated_subsets, "no subset was stopped, so the shortcut was not tried"
    assert (some.heads, some.heldout, some.discovery) == (whole.heads, whole.heldout, whole.discovery)
    assert some.eliminated, "nothing was stopped, so the shortcut was not tried"
    some.save(tmp_path / "saved")
    assert BeneficialHeads.load(tmp_path / "saved") == some
    again = find_beneficial_heads(
        tiny_model("llama"), task, some.config, progress="silent", run_dir=tmp_path / "eliminate"
    )
    assert (again.screening, again.eliminated) == (some.screening, some.eliminated)
    assert (again.subsets, again.eliminated_subsets) == (some.subsets, some.eliminated_subsets)
    frame = some.to_frame()
    assert len(frame) == len(all_heads(3, 4))
    assert frame["gain_points"].isna().sum() == len(some.eliminated)
