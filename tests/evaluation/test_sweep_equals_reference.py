"""The sweep engine gives the reference engine's answers, example by example."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cel_lens.evaluation.reference import ReferenceEngine
from cel_lens.evaluation.sweep import SweepEngine
from cel_lens.evaluation.sweep.memory import Budget
from cel_lens.heads import INTACT, HeadSet, all_heads
from cel_lens.models import lens_of
from cel_lens.results import Outcomes
from tests.evaluation.toy_tasks import Choosing, Writing
from tests.models.tiny import tiny_model

FAMILIES = ("llama", "qwen2", "qwen3", "gpt2", "gpt_neox")
EASY = settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))

texts = st.text(alphabet="the and is 0123456789+-?=", min_size=1, max_size=24).filter(
    lambda text: text.strip()
)
heads_of_three_layers = st.sets(st.sampled_from(all_heads(3, 4)), min_size=0, max_size=3)
head_sets = st.sets(
    heads_of_three_layers.map(lambda heads: HeadSet(tuple(sorted(heads)))), min_size=1, max_size=8
)
memories = st.sampled_from(
    [None, Budget(slice_tokens=10**6, chunk_tokens=90), Budget(slice_tokens=30, chunk_tokens=40)]
)


def both(
    model: Any, task: Any, conditions: list[HeadSet], memory: Budget | None
) -> tuple[dict, dict, SweepEngine]:
    lens = lens_of(model)
    examples = tuple(task.examples())
    sweep = SweepEngine(lens, task, examples, memory=memory)
    fast = {one.heads: one for one in sweep.evaluate(conditions)}
    slow = {one.heads: one for one in ReferenceEngine(lens, task, examples, 3).evaluate(conditions)}
    return fast, slow, sweep


def assert_same(fast: dict[HeadSet, Outcomes], slow: dict[HeadSet, Outcomes]) -> None:
    assert set(fast) == set(slow)
    for heads, expected in slow.items():
        found = fast[heads]
        for ours, theirs in zip(found.details, expected.details, strict=True):
            assert ours.log_likelihoods == pytest.approx(theirs.log_likelihoods, abs=1e-4)
            assert replace(ours, log_likelihoods=()) == replace(theirs, log_likelihoods=())
        assert replace(found, details=expected.details) == expected


@pytest.mark.parametrize("family", FAMILIES)
@given(data=st.data())
@EASY
def test_generated_tokens_are_the_same(family: str, data: st.DataObject) -> None:
    shared = data.draw(st.sampled_from(["", "the answer is ", "12 and 34 is the other "]))
    prompts = tuple(shared + text for text in data.draw(st.lists(texts, min_size=1, max_size=7)))
    stop = data.draw(st.sampled_from([(), ("1",), ("e", "\n")]))
    task = Writing(prompts, max_new_tokens=data.draw(st.integers(1, 7)), stop=stop)
    fast, slow, _ = both(tiny_model(family), task, list(data.draw(head_sets)), data.draw(memories))
    assert_same(fast, slow)


@pytest.mark.parametrize("family", FAMILIES)
@given(data=st.data())
@EASY
def test_choice_scores_are_the_same(family: str, data: st.DataObject) -> None:
    shared = data.draw(st.sampled_from(["", "the answer is ", "12 and 34 is the other "]))
    endings = st.lists(texts.map(lambda text: " " + text), min_size=1, max_size=4).map(tuple)
    rows = data.draw(
        st.lists(st.tuples(texts.map(lambda text: shared + text), endings), min_size=1, max_size=6)
    )
    single = data.draw(st.booleans())
    if single:
        rows = [(context, (" a", " t")) for context, _ in rows]
    fast, slow, _ = both(
        tiny_model(family), Choosing(tuple(rows)), list(data.draw(head_sets)), data.draw(memories)
    )
    assert_same(fast, slow)


def test_every_single_head_and_the_intact_model_agree_where_answers_differ() -> None:
    task = Writing(tuple(f"the {one} and {one + 3} is" for one in range(9)), max_new_tokens=6)
    conditions = [INTACT, *(HeadSet((head,)) for head in all_heads(3, 4))]
    fast, slow, _ = both(tiny_model("llama"), task, conditions, None)
    assert_same(fast, slow)
    answers = {heads: tuple(one.text for one in outcomes.details) for heads, outcomes in slow.items()}
    assert len(set(answers.values())) > 3, "the ablations change nothing, so equality would mean nothing"
