"""Removing a head means one thing, whichever way it is done, and leaves no trace behind."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import combinations
from typing import Any

import pytest
import torch

from cel_lens.errors import InvalidInput, UnsupportedModel
from cel_lens.heads import Head, HeadSet, all_heads
from cel_lens.models import zero_ablation
from tests.models.oracle import greedy, sliced
from tests.models.tiny import build_hf, prompt, tiny_hf, tiny_model

FAMILIES = ("llama", "qwen2", "gpt2", "gpt_neox")
SINGLE = tuple(str(head) for head in all_heads(3, 4))
JOINT = ("L0H0+L0H1", "L1H0+L1H1+L1H2+L1H3", "L0H3+L2H0", "L0H1+L1H2+L2H3", "L0H0+L0H2+L2H1+L2H2")
TOKENS = prompt(11, batch=3, seed=5)


@contextmanager
def without_rows(model: Any, heads: HeadSet) -> Iterator[None]:
    """Zero the heads' rows of ``W_O`` and put them back."""
    kept = {head: model.blocks[head.layer].attn.W_O[head.index].clone() for head in heads}
    with torch.no_grad():
        for head in heads:
            model.blocks[head.layer].attn.W_O[head.index] = 0
    try:
        yield
    finally:
        with torch.no_grad():
            for head, rows in kept.items():
                model.blocks[head.layer].attn.W_O[head.index] = rows


def logits_of(model: Any, tokens: torch.Tensor = TOKENS) -> torch.Tensor:
    with torch.inference_mode():
        return model(tokens, prepend_bos=False)


def count_hooks(model: Any) -> int:
    kinds = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    return sum(len(getattr(module, kind)) for module in model.modules() for kind in kinds)


@pytest.fixture
def model() -> Iterator[Any]:
    shared = tiny_model("qwen2")
    assert count_hooks(shared) == 0
    yield shared
    left = count_hooks(shared)
    for module in shared.modules():
        module._forward_hooks.clear()
    shared.reset_hooks(including_permanent=True)
    assert left == 0, "a test left hooks on the shared model"


@pytest.mark.parametrize("family", FAMILIES)
def test_every_bias_of_the_tested_models_is_non_zero(family: str) -> None:
    attention = tiny_model(family).blocks[1].attn
    if family != "llama":
        assert bool((attention.b_V != 0).all())
    assert bool(attention.b_O.any()) == (family in ("gpt2", "gpt_neox"))


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("names", SINGLE + JOINT)
def test_three_ways_of_removing_heads_agree(family: str, names: str) -> None:
    heads, model, hf = HeadSet.of(names), tiny_model(family), tiny_hf(family)
    with zero_ablation(model, names):
        hooked = logits_of(model)
    with without_rows(model, heads):
        rows = logits_of(model)
    with sliced(family, hf, heads), torch.inference_mode():
        reference = hf(TOKENS).logits
    assert (hooked - reference).abs().max() < 1e-5
    assert (hooked - rows).abs().max() < 1e-5
    assert (hooked - logits_of(model)).abs().max() > 1e-3, "the heads do nothing, so the test proves nothing"


@pytest.mark.parametrize("family", FAMILIES)
def test_every_pair_of_heads_of_a_layer_agrees_with_transformers(family: str) -> None:
    model, hf = tiny_model(family), tiny_hf(family)
    for pair in combinations(range(4), 2):
        heads = HeadSet.of([(1, index) for index in pair])
        with zero_ablation(model, heads), sliced(family, hf, heads), torch.inference_mode():
            assert (logits_of(model) - hf(TOKENS).logits).abs().max() < 1e-5


@pytest.mark.parametrize("family", FAMILIES)
def test_a_layer_without_heads_still_adds_its_output_bias(family: str) -> None:
    model = tiny_model(family)
    with zero_ablation(model, "L1H0+L1H1+L1H2+L1H3"), torch.inference_mode():
        _, cache = model.run_with_cache(TOKENS, prepend_bos=False)
    written = cache["blocks.1.hook_attn_out"]
    assert torch.equal(written, model.blocks[1].attn.b_O.expand_as(written))


def test_mates_of_a_key_value_group_keep_keys_values_and_outputs(model: Any) -> None:
    names = [f"blocks.1.attn.hook_{part}" for part in ("k", "v", "z", "pattern")]
    with torch.inference_mode():
        _, before = model.run_with_cache(TOKENS, prepend_bos=False, names_filter=names)
        with zero_ablation(model, "L1H2"):
            _, after = model.run_with_cache(TOKENS, prepend_bos=False, names_filter=names)
    assert before["blocks.1.attn.hook_v"].shape[2] == 2, "two key/value heads for four query heads"
    for name in (names[0], names[1], names[3]):
        assert torch.equal(before[name], after[name])
    expected = before[names[2]].clone()
    expected[:, :, 2] = 0
    assert torch.equal(after[names[2]], expected)


def test_an_ablated_head_gets_no_gradient_and_the_others_do() -> None:
    model = copy.deepcopy(tiny_model("gpt2")).requires_grad_(True)
    with zero_ablation(model, "L1H2"):
        model(TOKENS, return_type="loss", prepend_bos=False).backward()
    strength = model.blocks[1].attn.W_O.grad.abs().amax(dim=(1, 2))
    assert [bool(one > 0) for one in strength] == [True, True, False, True]


def test_half_precision_is_zeroed_exactly() -> None:
    model = copy.deepcopy(tiny_model("qwen2")).to(torch.bfloat16, print_details=False)
    with zero_ablation(model, "L0H1+L2H3"):
        hooked = logits_of(model)
    with without_rows(model, HeadSet.of("L0H1+L2H3")):
        assert torch.equal(logits_of(model), hooked)


def test_the_empty_set_changes_nothing(model: Any) -> None:
    before = logits_of(model)
    with zero_ablation(model, "") as ablation:
        assert count_hooks(model) == 0
        assert torch.equal(logits_of(model), before)
    assert ablation.heads == ablation.inactive == HeadSet()


def test_heads_may_be_given_in_every_form(model: Any) -> None:
    with zero_ablation(model, "L0H1+L2H3"):
        expected = logits_of(model)
    for form in (HeadSet.of("L2H3+L0H1"), [(2, 3), (0, 1)], [Head(0, 1), "l2h3"]):
        with zero_ablation(model, form):
            assert torch.equal(logits_of(model), expected)


def test_hooks_are_gone_after_the_block(model: Any) -> None:
    before = logits_of(model)
    with zero_ablation(model, "L0H1+L2H3"):
        assert count_hooks(model) == 2
        assert not torch.equal(logits_of(model), before)
    assert count_hooks(model) == 0
    assert torch.equal(logits_of(model), before)


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit, GeneratorExit])
def test_hooks_are_gone_after_an_exception_in_the_block(model: Any, error: type[BaseException]) -> None:
    before = logits_of(model)
    with pytest.raises(error), zero_ablation(model, "L0H1"):
        raise error
    assert count_hooks(model) == 0
    assert torch.equal(logits_of(model), before)


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
@pytest.mark.parametrize("layer", [0, 1, 2])
def test_hooks_are_gone_after_an_interrupt_inside_a_forward_pass(
    model: Any, error: type[BaseException], layer: int
) -> None:
    def interrupt(module: Any, inputs: Any, output: Any) -> None:
        raise error

    before = logits_of(model)
    handle = model.blocks[layer].attn.hook_z.register_forward_hook(interrupt)
    try:
        with pytest.raises(error), zero_ablation(model, "L0H1+L1H0+L2H3"):
            logits_of(model)
        assert count_hooks(model) == 1, "only the caller's own hook is left"
    finally:
        handle.remove()
    assert torch.equal(logits_of(model), before)


def test_a_wrong_head_leaves_no_hook_of_the_right_ones(model: Any) -> None:
    with pytest.raises(InvalidInput), zero_ablation(model, "L0H1+L9H0"):
        pass
    assert count_hooks(model) == 0


@pytest.mark.parametrize("is_permanent", [False, True])
def test_hooks_added_before_fire_inside_and_after(model: Any, is_permanent: bool) -> None:
    seen: list[str] = []
    model.add_hook(
        "blocks.0.attn.hook_z", lambda z, hook: seen.append("lens"), "fwd", is_permanent=is_permanent
    )
    plain = model.blocks[0].attn.hook_z.register_forward_hook(lambda *_: seen.append("plain"))
    try:
        with zero_ablation(model, "L0H1"):
            logits_of(model)
            assert seen == ["lens", "plain"]
        logits_of(model)
        assert seen == ["lens", "plain"] * 2
    finally:
        plain.remove()
        model.reset_hooks(including_permanent=True)


def test_hooks_added_inside_survive_the_block(model: Any) -> None:
    seen: list[float] = []
    with zero_ablation(model, "L0H1"):
        model.add_hook("blocks.0.attn.hook_z", lambda z, hook: seen.append(float(z[:, :, 1].abs().sum())))
        logits_of(model)
    logits_of(model)
    model.reset_hooks()
    assert seen[0] == 0, "a later hook sees the removed head as zero"
    assert seen[1] > 0, "and its output again after the block"


def test_run_with_hooks_works_inside_the_block(model: Any) -> None:
    def double(z: torch.Tensor, hook: Any) -> torch.Tensor:
        return 2 * z

    hooks = [("blocks.1.attn.hook_z", double)]
    with torch.inference_mode(), zero_ablation(model, "L1H2"):
        mixed = model.run_with_hooks(TOKENS, fwd_hooks=hooks, prepend_bos=False)
        again = logits_of(model)
    with torch.inference_mode(), without_rows(model, HeadSet.of("L1H2")):
        assert (mixed - model.run_with_hooks(TOKENS, fwd_hooks=hooks, prepend_bos=False)).abs().max() < 1e-5
        assert (again - logits_of(model)).abs().max() < 1e-5


def test_reset_hooks_inside_the_block_removes_only_the_callers_hooks(model: Any) -> None:
    seen: list[int] = []
    with without_rows(model, HeadSet.of("L1H2")):
        expected = logits_of(model)
    with zero_ablation(model, "L1H2"):
        model.add_hook("blocks.1.attn.hook_z", lambda z, hook: seen.append(1))
        model.reset_hooks(including_permanent=True)
        assert (logits_of(model) - expected).abs().max() < 1e-5
    assert seen == []
    assert count_hooks(model) == 0


def test_nested_blocks_add_up_and_end_one_by_one(model: Any) -> None:
    sets = {}
    for names in ("L0H1", "L0H1+L2H3"):
        with zero_ablation(model, names):
            sets[names] = logits_of(model)
    with zero_ablation(model, "L0H1"):
        with zero_ablation(model, "L2H3"):
            assert torch.equal(logits_of(model), sets["L0H1+L2H3"])
        assert torch.equal(logits_of(model), sets["L0H1"])
        with zero_ablation(model, "L0H1"):
            assert torch.equal(logits_of(model), sets["L0H1"])
        assert torch.equal(logits_of(model), sets["L0H1"]), "an inner block does not end the outer one"


def test_blocks_may_end_in_another_order(model: Any) -> None:
    first, second = zero_ablation(model, "L0H1"), zero_ablation(model, "L0H2")
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    with torch.inference_mode():
        _, cache = model.run_with_cache(TOKENS, prepend_bos=False, names_filter="blocks.0.attn.hook_z")
    second.__exit__(None, None, None)
    assert [bool(one) for one in cache["blocks.0.attn.hook_z"].any(3).any(1).any(0)] == [
        True,
        True,
        False,
        True,
    ]


def test_run_with_cache_sees_the_removed_head_as_zero(model: Any) -> None:
    with zero_ablation(model, "L2H0"), torch.inference_mode():
        logits, cache = model.run_with_cache(TOKENS, prepend_bos=False)
        assert torch.equal(logits, logits_of(model))
    assert not cache["blocks.2.attn.hook_z"][:, :, 0].any()
    assert cache["blocks.2.attn.hook_z"][:, :, 1:].any(dim=3).all()


@pytest.mark.parametrize("cached", [True, False])
@pytest.mark.parametrize("family", FAMILIES)
def test_generate_keeps_the_heads_removed_in_every_step(family: str, cached: bool) -> None:
    heads, hf, model = HeadSet.of("L0H1+L2H3"), tiny_hf(family), tiny_model(family)
    start = prompt(7, seed=3)
    with zero_ablation(model, heads) as ablation:
        written = model.generate(
            start,
            max_new_tokens=8,
            do_sample=False,
            stop_at_eos=False,
            verbose=False,
            use_past_kv_cache=cached,
            prepend_bos=False,
        )
    assert ablation.calls == {0: 8, 2: 8}
    start_ids = start[0].tolist()
    expected = greedy(family, hf, heads, start_ids, n_tokens=8)
    assert tuple(written[0, 7:].tolist()) == expected
    assert expected != greedy(family, hf, "", start_ids, n_tokens=8), "the heads do nothing"


def test_calls_count_every_pass_through_each_layer(model: Any) -> None:
    with zero_ablation(model, "L0H1+L0H2+L2H3") as ablation:
        assert ablation.calls == {0: 0, 2: 0}
        logits_of(model)
        logits_of(model)
        with torch.inference_mode():
            model(TOKENS, stop_at_layer=1, prepend_bos=False)
    assert ablation.calls == {0: 3, 2: 2}


def test_a_head_without_values_is_reported_as_inactive() -> None:
    model = copy.deepcopy(tiny_model("gpt2"))
    with torch.no_grad():
        model.blocks[1].attn.W_V[2] = 0
        model.blocks[1].attn.b_V[2] = 0
    intact = logits_of(model)
    with zero_ablation(model, "L0H0+L1H2+L1H3") as ablation:
        assert ablation.inactive == HeadSet.of("L0H0+L1H2+L1H3"), "nothing has run yet"
        logits_of(model)
    assert ablation.inactive == HeadSet.of("L1H2")
    with zero_ablation(model, "L1H2"):
        assert torch.equal(logits_of(model), intact)


def test_only_real_positions_make_a_head_active(model: Any) -> None:
    def only_first(module: Any, inputs: Any, output: torch.Tensor) -> torch.Tensor:
        return output * (torch.arange(output.shape[1]) == 0)[None, :, None, None]

    handle = model.blocks[1].attn.hook_z.register_forward_hook(only_first)
    try:
        with zero_ablation(model, "L1H2") as ablation:
            ablation.real = torch.ones_like(TOKENS)
            ablation.real[:, 0] = 0
            logits_of(model)
            assert ablation.inactive == HeadSet.of("L1H2"), "its only output is at a padding position"
            ablation.real[1, 0] = 1
            logits_of(model)
            assert ablation.inactive == HeadSet()
    finally:
        handle.remove()


@pytest.mark.parametrize("names", ["L3H0", "L0H4", "L0H1+L7H9"])
def test_a_head_that_does_not_exist_is_refused_with_the_range(model: Any, names: str) -> None:
    wrong = names.rpartition("+")[2]
    with (
        pytest.raises(InvalidInput, match=rf"{wrong} does not exist .* layers 0-2 with query heads 0-3"),
        zero_ablation(model, names),
    ):
        pass


@pytest.mark.parametrize("names", ["L0", "3,7", "L0H1+L0H1", [(0, 1, 2)], "L-1H0", [(-1, 0)]])
def test_text_that_names_no_head_is_refused(model: Any, names: Any) -> None:
    with pytest.raises(InvalidInput), zero_ablation(model, names):
        pass


@pytest.mark.parametrize("shape", ["merged", "transposed"])
def test_a_hook_z_of_another_shape_is_refused(model: Any, shape: str) -> None:
    def change(module: Any, inputs: Any, output: torch.Tensor) -> torch.Tensor:
        return output.flatten(2) if shape == "merged" else output.transpose(1, 2)

    handle = model.blocks[1].attn.hook_z.register_forward_hook(change)
    try:
        with (
            pytest.raises(UnsupportedModel, match=re.escape("hook_z of shape [3, ")),
            zero_ablation(model, "L1H2"),
        ):
            logits_of(model)
    finally:
        handle.remove()


def test_other_models_are_refused() -> None:
    for other in (build_hf("gpt2"), torch.nn.Linear(2, 2), "gpt2"):
        with pytest.raises(UnsupportedModel, match="give a HookedTransformer"), zero_ablation(other, "L0H0"):
            pass
