"""What the sweep saves, in counted layer-tokens: tokens times layers they are run through."""

from __future__ import annotations

from typing import Any

from cel_lens.evaluation.batches import Item, generation_prompt, make_items
from cel_lens.evaluation.sweep import SweepEngine
from cel_lens.heads import INTACT, HeadSet, all_heads
from cel_lens.models import lens_of
from tests.evaluation.toy_tasks import Choosing, Writing
from tests.models.tiny import tiny_model

SHOTS = "the 1 is 2 and the 3 is 4 and the 5 is 6 and the 7 is 8 and "


def spent(task: Any, head_sets: list[HeadSet]) -> tuple[int, SweepEngine]:
    """Layer-tokens of these conditions, the intact model's own answers left out."""
    engine = SweepEngine(lens_of(tiny_model("llama")), task, tuple(task.examples()))
    list(engine.evaluate([INTACT]))
    before = engine.counter.layer_tokens
    list(engine.evaluate(head_sets))
    return engine.counter.layer_tokens - before, engine


def items(task: Any) -> tuple[Item, ...]:
    return make_items(lens_of(tiny_model("llama")), task, tuple(task.examples()))


def test_a_head_of_the_top_layer_costs_its_layer_and_not_those_below() -> None:
    task = Choosing(tuple((f"the {one} is", (" a", " t")) for one in range(12)))
    tops = [HeadSet((head,)) for head in all_heads(3, 4, (2,))]
    tokens = 12 * max(item.length - 1 for item in items(task))  # padding counts
    found, _ = spent(task, tops)
    # two layers of the intact model once, then the top layer for each head; the prefix is shared besides
    assert found <= 2 * tokens + len(tops) * tokens
    assert found <= len(tops) * 3 * tokens / 2


def test_a_common_prefix_is_run_once_for_each_condition_and_not_for_each_example() -> None:
    bare = tuple(f"{one} {one + 2} is" for one in range(10, 26))
    heads = [HeadSet((head,)) for head in all_heads(3, 4, (0,))]
    alone, _ = spent(Writing(bare, max_new_tokens=1), heads)
    shared, _ = spent(Writing(tuple(SHOTS + one for one in bare), max_new_tokens=1), heads)
    prefix = len(generation_prompt(items(Writing((SHOTS,)))[0]).token_ids)
    assert shared - alone <= 1.1 * 3 * prefix * len(heads)
    assert 3 * prefix * len(heads) * len(bare) > 10 * (shared - alone)


def test_endings_share_their_context() -> None:
    context = "the 1 and the 2 are in the 3 or the 4 and then the 5"
    endings = (" is 1 2", " is 3 4", " is 5 6", " is 7 8")
    heads = [HeadSet((head,)) for head in all_heads(3, 4, (0,))]
    four, _ = spent(Choosing(((context, endings),)), heads)
    one = [spent(Choosing(((context, (ending,)),)), heads)[0] for ending in endings]
    assert four < 0.6 * sum(one)


def test_an_answer_that_stays_the_same_is_checked_and_not_written_again() -> None:
    task = Writing(("the 1 and 2 is", "then 5 and 7 is"), max_new_tokens=6)
    lens = lens_of(tiny_model("llama"))
    engine = SweepEngine(lens, task, tuple(task.examples()))
    intact = next(engine.evaluate([INTACT]))
    for head in all_heads(3, 4):
        before = engine.counter.layer_tokens
        outcomes = next(engine.evaluate([HeadSet((head,))]))
        cost = engine.counter.layer_tokens - before
        longest = max(item.length for item in items(task)) + 5
        if [one.token_ids for one in outcomes.details] == [one.token_ids for one in intact.details]:
            assert cost <= 3 * 2 * longest  # one pass over prompts and answers, in all layers


def test_sets_that_start_alike_share_what_they_have_in_common() -> None:
    task = Choosing(tuple((f"the {one} is", (" a", " t")) for one in range(12)))
    low = all_heads(3, 4, (0,))[0]
    pairs = [HeadSet((low, head)) for head in all_heads(3, 4, (2,))]
    together, _ = spent(task, pairs)
    apart = sum(spent(task, [pair])[0] for pair in pairs)
    assert together < 0.6 * apart
