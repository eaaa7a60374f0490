"""The bridge is the same model with the same heads: transformers is the judge, layer by layer too."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
import torch

from cel_lens.errors import InvalidInput, UnsupportedModel
from cel_lens.heads import HeadSet, all_heads
from cel_lens.models import lens_of, load_model, model_facts, weights_digest, zero_ablation
from cel_lens.models.backends import has_hooked, transformer_lens_name
from cel_lens.models.bridge import BridgeLens, raw
from cel_lens.models.bridge_layers import BridgeLayers
from cel_lens.models.checks import check_cache, parity_error
from cel_lens.models.quiet import quiet
from tests.models.oracle import greedy, sliced
from tests.models.tiny import (
    BRIDGE_ONLY,
    FAMILIES,
    LLAMA3_ROPE,
    needs_hooked,
    prompt,
    tiny_folder,
    tiny_hf,
    tiny_model,
)

EVERY_FAMILY = (*FAMILIES, *BRIDGE_ONLY)
SINGLE = tuple(str(head) for head in all_heads(3, 4))
JOINT = ("L0H0+L0H1", "L1H0+L1H1+L1H2+L1H3", "L0H3+L2H0", "L0H0+L0H2+L2H1+L2H2")
TOKENS = prompt(11, batch=3, seed=5)

VARIANTS = [
    *((family, {}) for family in EVERY_FAMILY),
    ("llama", {"rope_parameters": LLAMA3_ROPE}),
    ("llama", {"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0}}),
    ("llama", {"tie_word_embeddings": True}),
    ("llama", {"attention_bias": True, "mlp_bias": True}),
    ("llama", {"num_key_value_heads": 4}),
    ("mistral", {"sliding_window": 8}),
    ("gpt_neox", {"use_parallel_residual": False}),
    ("gpt2", {"scale_attn_by_inverse_layer_idx": True}),
]


def bridge(family: str, **changes: Any) -> Any:
    return tiny_model(family, backend="bridge", **changes)


def lens_on(family: str, **changes: Any) -> BridgeLens:
    lens = lens_of(bridge(family, **changes))
    assert isinstance(lens, BridgeLens)
    return lens


def logits_of(model: Any, tokens: torch.Tensor = TOKENS) -> torch.Tensor:
    with torch.inference_mode():
        return model(tokens)


def hooks_of(model: Any) -> list[Any]:
    kinds = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    return [hook for module in model.modules() for kind in kinds for hook in getattr(module, kind).values()]


def write_out(lens: BridgeLens, tokens: torch.Tensor) -> Iterator[torch.Tensor]:
    """The residual stream after each layer, by the layers' own steps and attention written out in full."""
    layers, n = lens.layers, tokens.shape[1]
    residual = layers.embed(tokens, 0)
    for layer in range(layers.n_layers):
        q, k, v = layers.project(layer, residual, 0)
        rule, group = layers.attention_rule(layer), lens.n_heads // lens.n_key_value_heads
        z = torch.zeros_like(q)
        for head in range(lens.n_heads):
            for query in range(n):
                first = 0 if rule.window is None else max(0, query + 1 - rule.window)
                seen = slice(first, query + 1)
                scores = (k[:, seen, head // group] @ q[:, query, head, :, None])[..., 0] / rule.divisor
                if rule.soft_cap is not None:
                    scores = rule.soft_cap * torch.tanh(scores / rule.soft_cap)
                z[:, query, head] = (scores.softmax(dim=-1)[..., None] * v[:, seen, head // group]).sum(dim=1)
        residual = layers.finish(layer, residual, z)
        yield residual.clone()


# --- the same model -------------------------------------------------------------------------------


@pytest.mark.parametrize(("family", "changes"), VARIANTS)
def test_it_has_the_logits_of_transformers_over_the_whole_context(
    family: str, changes: dict[str, Any]
) -> None:
    model, hf = bridge(family, **changes), tiny_hf(family, **changes)
    assert parity_error(model, hf, family, n_tokens=256) < 1e-4
    with torch.inference_mode():
        assert (logits_of(model) - hf(TOKENS).logits).abs().max() < 1e-4


@pytest.mark.parametrize(("family", "changes"), VARIANTS)
def test_its_layers_one_by_one_give_what_its_forward_pass_gives(family: str, changes: dict[str, Any]) -> None:
    lens, tokens = lens_on(family, **changes), prompt(23, batch=2, seed=1)
    assert lens.why_not_by_layer() is None
    with torch.no_grad():
        hidden = tiny_hf(family, **changes)(tokens, output_hidden_states=True, use_cache=False)
        stepped = list(write_out(lens, tokens))
        for found, expected in zip(stepped[:-1], hidden.hidden_states[1:-1], strict=True):
            assert (found - expected).abs().max() < 1e-4
        whole = lens.residual(tokens, torch.ones_like(tokens))
        assert (stepped[-1] - whole).abs().max() < 1e-4
        ends = stepped[-1].flatten(0, 1)
        assert (lens.layers.logits(ends) - hidden.logits.flatten(0, 1)).abs().max() < 1e-4


@pytest.mark.parametrize("family", EVERY_FAMILY)
def test_steps_start_at_any_position(family: str) -> None:
    lens, tokens = lens_on(family), prompt(9, batch=2, seed=2)
    layers, late = lens.layers, torch.tensor([6, 600 if family not in ("gpt2",) else 200])
    with torch.no_grad():
        row = [layers.embed(tokens[at : at + 1], int(late[at])) for at in range(2)]
        together = layers.embed(tokens, late)
        for layer in range(layers.n_layers):
            apart = [layers.project(layer, row[at], int(late[at])) for at in range(2)]
            for found, first, second in zip(layers.project(layer, together, late), *apart, strict=True):
                assert (found - torch.cat([first, second])).abs().max() < 1e-5


def test_layers_that_are_not_asked_for_do_not_run() -> None:
    lens = lens_on("smollm3")
    layers, ran = lens.layers, []
    with ExitStack() as stack, torch.no_grad():
        for layer, block in enumerate(lens.model.blocks):
            for part in ("q", "o"):
                handle = raw(getattr(block.attn, part)).register_forward_hook(
                    lambda *_, at=(layer, part): ran.append(at)
                )
                stack.callback(handle.remove)
        residual = torch.randn(1, 4, 32)
        q, _, _ = layers.project(2, residual, 0)
        layers.finish(2, residual, torch.zeros_like(q))
    assert ran == [(2, "q"), (2, "o")]


def test_layers_without_rotation_are_kept() -> None:
    model = bridge("smollm3")
    rotated = tiny_hf("smollm3", no_rope_layers=[1, 1, 1])
    assert parity_error(model, rotated, "smollm3") > 1e-2, "the test would not notice a wrong rotation"
    layers, residual = lens_on("smollm3").layers, torch.randn(1, 4, 32)
    with torch.no_grad():
        here, there = layers.project(1, residual, 0), layers.project(1, residual, 7)
        assert torch.equal(here.q, there.q)
        assert not torch.equal(layers.project(2, residual, 0).q, layers.project(2, residual, 7).q)


def test_the_window_and_the_cap_of_attention_are_what_the_checkpoint_says() -> None:
    rules = [lens_on("gemma2").layers.attention_rule(layer) for layer in range(3)]
    assert [rule.window for rule in rules] == [5, None, 5]
    assert {rule.soft_cap for rule in rules} == {2.0}
    assert rules[0].divisor == pytest.approx(10**0.5)
    assert [lens_on("gemma3").layers.attention_rule(layer).window for layer in range(3)] == [5, None, 5]
    assert lens_on("mistral", sliding_window=8).layers.attention_rule(1).window == 8
    assert lens_on("mistral").layers.attention_rule(1).window is None


# --- removing heads -------------------------------------------------------------------------------


@pytest.mark.parametrize("family", EVERY_FAMILY)
@pytest.mark.parametrize("names", SINGLE + JOINT)
def test_three_ways_of_removing_heads_agree(family: str, names: str) -> None:
    heads, model, hf = HeadSet.of(names), bridge(family), tiny_hf(family)
    with zero_ablation(model, names) as ablation:
        hooked = logits_of(model)
    assert not ablation.inactive
    with sliced(family, hf, heads), torch.inference_mode():
        reference = hf(TOKENS).logits
    lens, kept = lens_of(model), {}
    with torch.no_grad():
        for head in heads:
            rows = lens.output_weights(head.layer)[head.index]
            kept[head] = rows.clone()
            rows.zero_()  # a view of the model's own weights
        written = logits_of(model)
        for head, rows in kept.items():
            lens.output_weights(head.layer)[head.index].copy_(rows)
    assert (hooked - reference).abs().max() < 1e-5
    assert (hooked - written).abs().max() < 1e-5
    assert (hooked - logits_of(model)).abs().max() > 1e-3, "the heads do nothing, so the test proves nothing"


@pytest.mark.parametrize("family", EVERY_FAMILY)
def test_what_a_head_writes_is_its_output_times_its_weights(family: str) -> None:
    lens, seen, summed = lens_on(family), {}, {}
    projection = raw(lens.model.blocks[1].attn.o)
    with ExitStack() as stack, torch.no_grad():
        hooks = [
            lens.hook_z(1).register_forward_hook(lambda m, i, z: seen.update(z=z.clone())),
            projection.register_forward_hook(lambda m, i, out: summed.update(out=out.clone())),
        ]
        for hook in hooks:
            stack.callback(hook.remove)
        lens.residual(TOKENS, torch.ones_like(TOKENS))
    written = torch.einsum("bqhd,hdm->bqm", seen["z"], lens.output_weights(1)) + lens.output_bias(1)
    assert seen["z"].shape == (3, 11, 4, lens.d_head)
    assert (written - summed["out"]).abs().max() < 1e-5


@pytest.mark.parametrize("family", EVERY_FAMILY)
def test_attention_weights_pass_where_the_hook_is(family: str) -> None:
    lens, seen = lens_on(family), []
    handle = lens.hook_pattern(0).register_forward_hook(lambda m, i, weights: seen.append(weights))
    lens.residual(TOKENS, torch.ones_like(TOKENS))
    handle.remove()
    assert seen[0].shape == (3, 4, 11, 11)
    assert (seen[0].sum(dim=-1) - 1).abs().max() < 1e-5
    assert (seen[0].triu(1) == 0).all()


@pytest.mark.parametrize("end", [None, RuntimeError, KeyboardInterrupt])
def test_our_hooks_go_and_the_users_stay(end: type[BaseException] | None) -> None:
    model, calls = bridge("qwen2"), []
    logits_of(model)  # the bridge itself installs what it needs at the first pass
    before = hooks_of(model)
    model.add_hook("blocks.1.attn.hook_z", lambda z, hook: calls.append(tuple(z.shape)))
    try:
        with zero_ablation(model, "L1H2+L0H0"), zero_ablation(model, "L2H3"):
            assert len(hooks_of(model)) == len(before) + 4
            if end is not None:
                raise end
            logits_of(model)
    except (RuntimeError, KeyboardInterrupt):
        pass
    assert len(hooks_of(model)) == len(before) + 1
    calls.clear()
    logits_of(model)
    assert calls == [(3, 11, 4, 8)]
    model.reset_hooks()
    assert hooks_of(model) == before


def test_users_hooks_see_the_head_removed_as_hooked_transformers_do() -> None:
    model, seen = bridge("llama"), []
    with zero_ablation(model, "L1H2"):
        model.run_with_hooks(
            TOKENS, fwd_hooks=[("blocks.1.attn.hook_z", lambda z, hook: seen.append(z.clone()))]
        )
    assert not seen[0][:, :, 2].any()
    assert seen[0][:, :, [0, 1, 3]].all()


def test_a_head_that_does_not_exist_is_refused() -> None:
    with pytest.raises(InvalidInput, match="L3H0"), zero_ablation(bridge("llama"), "L3H0"):
        pass


# --- decoding -------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", EVERY_FAMILY)
@pytest.mark.parametrize("heads", ["", "L0H1+L2H2"])
def test_cached_decoding_behind_padding_writes_what_uncached_transformers_writes(
    family: str, heads: str
) -> None:
    lens, hf, rows = lens_on(family), tiny_hf(family), [prompt(n, seed=n)[0].tolist() for n in (3, 14, 9)]
    width = max(map(len, rows))
    tokens, mask = torch.zeros(3, width, dtype=torch.long), torch.zeros(3, width, dtype=torch.long)
    for place, row in enumerate(rows):
        tokens[place, width - len(row) :] = torch.tensor(row)
        mask[place, width - len(row) :] = 1
    cache, written = lens.new_cache(3), []
    with torch.no_grad(), zero_ablation(lens.model, heads):
        for _ in range(9):
            tokens = lens.logits(lens.residual(tokens, mask, cache)[:, -1]).argmax(dim=-1, keepdim=True)
            written.append(tokens)
            mask = torch.ones_like(tokens)
    found = torch.cat(written, dim=1).tolist()
    assert [tuple(row) for row in found] == [greedy(family, hf, heads, row, n_tokens=9) for row in rows]


def test_a_cache_that_stays_empty_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    # what happens when transformers passes the cache under a name that TransformerLens does not know
    assert check_cache(bridge("llama"), "x") < 1e-4
    attention = type(bridge("llama").blocks[0].attn)
    monkeypatch.setattr(attention, "_update_kv_cache", lambda self, k, v, **kwargs: (k, v))
    with pytest.raises(UnsupportedModel, match=r"TransformerLens \d.*transformers 5"):
        check_cache(bridge("llama"), "x")


# --- loading --------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", EVERY_FAMILY)
def test_auto_takes_the_bridge_only_where_it_must(family: str) -> None:
    facts = model_facts(tiny_model(family))
    expected = "hooked" if has_hooked() and family in FAMILIES else "bridge"
    assert facts.backend == expected
    assert (facts.backend_reason is None) == (expected == "hooked")
    if not has_hooked():
        assert facts.backend_reason == f"{transformer_lens_name()} has no HookedTransformer"
    asked = model_facts(bridge(family))
    assert (asked.backend, asked.backend_reason) == ("bridge", None)


def test_facts_are_the_checkpoints() -> None:
    facts = model_facts(bridge("gemma3"))
    assert (facts.n_layers, facts.n_heads, facts.n_key_value_heads) == (3, 4, 2)
    assert (facts.d_head, facts.d_model, facts.n_ctx, facts.dtype) == (12, 32, 256, "float32")
    assert (facts.source, facts.eos_token_ids, facts.prepends_bos) == ("folder", (1,), False)
    assert model_facts(bridge("gpt2")).n_key_value_heads == 4
    assert model_facts(bridge("llama")).prepends_bos


def test_the_tokenizer_is_the_checkpoints_own() -> None:
    for add_bos in (True, False):
        model = bridge("llama", add_bos=add_bos)
        own = model.tokenizer("12 + 3 =")["input_ids"]
        assert (own[0] == model.tokenizer.bos_token_id) is add_bos
        assert model.to_tokens("12 + 3 =")[0].tolist() == own


def test_an_edit_of_the_weights_changes_the_digest() -> None:
    model = copy.deepcopy(bridge("gpt2"))
    before = weights_digest(model)
    assert before == weights_digest(bridge("gpt2"))
    with torch.no_grad():
        lens_of(model).output_weights(2)[3] = 0
    assert weights_digest(model) != before


def test_half_precision(tmp_path: Any) -> None:
    model = load_model(tiny_folder("smollm3", tmp_path / "m"), dtype="bfloat16", device="cpu")
    lens = lens_of(model)
    assert lens.dtype == torch.bfloat16
    assert lens.why_not_by_layer() is None
    assert lens.logits(lens.residual(TOKENS, torch.ones_like(TOKENS))).dtype == torch.float32


def test_only_known_backends() -> None:
    with pytest.raises(InvalidInput, match="auto, hooked or bridge"):
        load_model("smollm2-135m-instruct", backend="hoked")  # type: ignore[arg-type]


@needs_hooked
def test_a_model_that_neither_can_run_is_refused_with_both_reasons(tmp_path: Any) -> None:
    # transformers does not apply this cap in Gemma-3, the bridge does
    folder = tiny_folder("gemma3", tmp_path / "m", attn_logit_softcapping=1.5)
    with pytest.raises(
        UnsupportedModel, match=r"HookedTransformer cannot express.*as a bridge.*other logits"
    ):
        load_model(folder, device="cpu")
    with pytest.raises(UnsupportedModel, match=r"^HookedTransformer cannot express((?!as a bridge).)*$"):
        load_model(folder, device="cpu", backend="hooked")


def test_an_own_bridge_is_checked_and_comes_back() -> None:
    model = bridge("gemma2")
    assert load_model(model) is model


@pytest.mark.parametrize(("family", "refused"), [("gpt2", True), ("qwen2", True), ("llama", False)])
def test_a_bridge_with_folded_value_biases_is_refused(tmp_path: Any, family: str, refused: bool) -> None:
    def own() -> Any:
        return load_model(tiny_folder(family, tmp_path / "m"), device="cpu", backend="bridge")

    plain, folded = own(), own()
    with quiet():
        plain.enable_compatibility_mode(no_processing=True)
        folded.enable_compatibility_mode()
    assert load_model(plain) is plain
    if refused:
        with pytest.raises(UnsupportedModel, match="no_processing=True"):
            load_model(folded)
    else:
        assert load_model(folded) is folded


# --- what cannot be run layer by layer ------------------------------------------------------------


def test_a_users_hook_makes_the_whole_forward_pass_run() -> None:
    lens = lens_on("qwen3")
    handle = lens.hook_z(1).register_forward_hook(lambda m, i, z: None)
    assert lens.why_not_by_layer() == "it carries hooks of its own"
    with pytest.raises(UnsupportedModel, match="hooks of its own"):
        _ = lens.layers
    handle.remove()
    assert lens.why_not_by_layer() is None


def test_steps_that_differ_from_the_forward_pass_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    lens = lens_of(copy.deepcopy(bridge("llama")))
    monkeypatch.setattr(BridgeLayers, "finish", lambda self, layer, residual, z: residual)
    assert "one by one differ" in str(lens.why_not_by_layer())


def test_length_dependent_rotation_is_left_to_the_forward_pass() -> None:
    rope = {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}
    assert lens_on("llama", rope_parameters=rope).why_not_by_layer() == "it has length-dependent rotation"
