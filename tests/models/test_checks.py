"""Models that cannot be ablated exactly are refused, and only those."""

from __future__ import annotations

import copy

import pytest
import torch

from cel_lens.errors import InvalidInput, ModelLoadError, UnsupportedModel
from cel_lens.models import load_model
from cel_lens.models.checks import check_model, check_parity, parity_error
from cel_lens.models.quiet import quiet
from tests.models.tiny import FAMILIES, build_hf, prompt, tiny_hf, tiny_model


def folded(family):
    model = copy.deepcopy(tiny_model(family))
    weights = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with quiet():
        model.load_and_process_state_dict(
            weights, fold_ln=False, center_writing_weights=False, center_unembed=False, fold_value_biases=True
        )
    return model


@pytest.mark.parametrize("family", FAMILIES)
def test_raw_models_pass(family):
    check_model(tiny_model(family), family)


@pytest.mark.parametrize("family", ["qwen2", "gpt2", "gpt_neox"])
def test_folded_value_biases_are_refused_although_the_logits_are_equal(family):
    model = folded(family)
    assert parity_error(model, tiny_hf(family), family) < 1e-4
    with pytest.raises(UnsupportedModel, match="from_pretrained_no_processing"):
        load_model(model)


def test_why_folded_value_biases_are_refused():
    # Without one head the folded model still has the bias of that head in its output bias.
    raw, model, tokens = tiny_model("qwen2"), folded("qwen2"), prompt(8)

    def without_head(z, hook):
        z[:, :, 1] = 0
        return z

    hooks = [("blocks.1.attn.hook_z", without_head)]
    with torch.no_grad():
        assert torch.allclose(raw(tokens), model(tokens), atol=1e-4)
        difference = raw.run_with_hooks(tokens, fwd_hooks=hooks) - model.run_with_hooks(
            tokens, fwd_hooks=hooks
        )
    assert difference.abs().max() > 1e-2


@pytest.mark.parametrize("family", ["llama", "qwen3", "mistral", "phi3"])
def test_folding_without_a_value_bias_changes_nothing_and_passes(family):
    assert load_model(folded(family))


def test_an_output_bias_without_a_value_bias_is_no_sign_of_folding():
    # As in GPT-Neo.
    model = copy.deepcopy(tiny_model("gpt2"))
    model.cfg.original_architecture = "GPTNeoForCausalLM"
    with torch.no_grad():
        for block in model.blocks:
            block.attn.b_V.zero_()
    assert load_model(model) is model


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_weights_that_are_not_finite_are_named(value):
    model = copy.deepcopy(tiny_model("llama"))
    with torch.no_grad():
        model.blocks[1].attn.W_Q[2, 3, 4] = value
    with pytest.raises(ModelLoadError, match=r"blocks\.1\.attn\.W_Q"):
        load_model(model)


def test_float16_overflow_offers_another_precision():
    model = copy.deepcopy(tiny_model("llama"))
    with torch.no_grad():
        model.W_E[3, 4] = 1e6
    with quiet():
        model.to(torch.float16)
    with pytest.raises(ModelLoadError, match="bfloat16"):
        load_model(model)


def test_weights_that_are_not_in_memory():
    model = copy.deepcopy(tiny_model("llama"))
    model.blocks[2].mlp.W_in = torch.nn.Parameter(model.blocks[2].mlp.W_in.to("meta"))
    with pytest.raises(UnsupportedModel, match=r"blocks\.2\.mlp\.W_in"):
        load_model(model)


def test_other_classes():
    with pytest.raises(UnsupportedModel, match="LlamaForCausalLM"):
        load_model(tiny_hf("llama"))
    with pytest.raises(InvalidInput, match="list"):
        load_model([tiny_model("llama")])


def test_encoder_of_transformerlens():
    with quiet():
        from transformer_lens import HookedEncoder, HookedTransformerConfig

        config = {
            "d_model": 8,
            "d_head": 4,
            "n_heads": 2,
            "n_layers": 1,
            "n_ctx": 8,
            "d_vocab": 10,
            "act_fn": "relu",
        }
        encoder = HookedEncoder(HookedTransformerConfig(**config, device="cpu"))
    with pytest.raises(UnsupportedModel, match="HookedEncoder"):
        load_model(encoder)


def test_attention_in_both_directions():
    model = copy.deepcopy(tiny_model("llama"))
    model.cfg.attention_dir = "bidirectional"
    with pytest.raises(UnsupportedModel, match="causal"):
        load_model(model)


def test_block_without_hook_z():
    model = copy.deepcopy(tiny_model("llama"))
    del model.blocks[2].attn.hook_z
    with pytest.raises(UnsupportedModel, match="layer 2"):
        load_model(model)


def test_parity_names_both_versions_when_it_fails():
    with pytest.raises(UnsupportedModel, match=r"TransformerLens 3\..*transformers 5\."):
        check_parity(tiny_model("llama"), build_hf("llama", seed=1), "x")


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_parity_in_half_precision_still_tells_models_apart(dtype):
    model, other = copy.deepcopy(tiny_model("llama")), build_hf("llama", seed=1).to(dtype)
    with quiet():
        model.to(dtype)
    check_parity(model, build_hf("llama").to(dtype), "x")
    with pytest.raises(UnsupportedModel):
        check_parity(model, other, "x")


def test_parity_of_a_checkpoint_whose_logits_overflow():
    hf_model = build_hf("llama")
    with torch.no_grad():
        hf_model.model.norm.weight.fill_(3e38)
    with pytest.raises(ModelLoadError, match="not finite"):
        check_parity(tiny_model("llama"), hf_model, "x")


def test_parity_checks_the_shape_of_hook_z(monkeypatch):
    model = copy.deepcopy(tiny_model("llama"))
    attention = model.blocks[1].attn
    calculate = attention.calculate_z_scores
    monkeypatch.setattr(
        attention, "calculate_z_scores", lambda *args: attention.hook_z(calculate(*args).flatten(2))
    )
    with pytest.raises(UnsupportedModel, match=r"blocks\.1\.attn\.hook_z .* shape"):
        parity_error(model, tiny_hf("llama"), "x")


def test_checking_leaves_the_users_hooks_alone():
    model, calls = copy.deepcopy(tiny_model("llama")), []
    model.add_hook("blocks.0.attn.hook_z", lambda z, hook: calls.append(hook.name))
    load_model(model)
    assert calls == []
    model(prompt(2))
    assert calls == ["blocks.0.attn.hook_z"]
