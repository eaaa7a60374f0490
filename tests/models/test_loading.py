"""Every way of loading gives the checkpoint's own numbers, or one plain sentence."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from cel_lens.errors import ModelLoadError
from cel_lens.models import load_model, model_facts, weights_digest
from cel_lens.models.checks import parity_error
from cel_lens.models.quiet import quiet
from tests.models.tiny import (
    CHAT_TEMPLATE,
    FAMILIES,
    LLAMA3_ROPE,
    edit_config,
    prompt,
    tiny_folder,
    tiny_gguf,
    tiny_hf,
    tiny_model,
)

ROOT = Path(__file__).parents[2]


# --- folders of every family ----------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_has_the_logits_of_transformers(family):
    # The whole context, far beyond the prompt that load_model compares itself.
    assert parity_error(tiny_model(family), tiny_hf(family), family, n_tokens=256) < 1e-4


@pytest.mark.parametrize(
    ("family", "changes"),
    [
        ("llama", {"rope_parameters": LLAMA3_ROPE}),
        ("llama", {"tie_word_embeddings": True}),
        ("llama", {"num_key_value_heads": 4}),
        ("mistral", {"sliding_window": 8}),
        ("gpt_neox", {"use_parallel_residual": False}),
    ],
)
def test_variants_have_the_logits_of_transformers(family, changes):
    model, hf_model = tiny_model(family, **changes), tiny_hf(family, **changes)
    assert parity_error(model, hf_model, family, n_tokens=256) < 1e-4


@pytest.mark.parametrize("family", ["qwen2", "gpt2", "gpt_neox"])
def test_value_biases_stay_where_the_checkpoint_has_them(family):
    # Folded, they would survive the removal of their head inside the output bias.
    model = tiny_model(family)
    assert all(bool(block.attn.b_V.all()) for block in model.blocks)
    if family == "qwen2":
        value = tiny_hf(family).model.layers[1].self_attn.v_proj.bias
        assert torch.equal(model.blocks[1].attn._b_V.flatten(), value)
        assert not any(bool(block.attn.b_O.any()) for block in model.blocks)


def test_weights_are_not_processed_in_any_other_way():
    model, hf_model = tiny_model("llama"), tiny_hf("llama")
    assert torch.equal(model.W_U, hf_model.lm_head.weight.T)
    assert torch.equal(model.blocks[2].ln1.w, hf_model.model.layers[2].input_layernorm.weight)
    projection = hf_model.model.layers[1].self_attn.o_proj.weight
    assert torch.equal(model.blocks[1].attn.W_O.flatten(0, 1), projection.T)


@pytest.mark.parametrize("dtype", ["bfloat16", torch.float16])
def test_half_precision(tmp_path, dtype):
    folder = tiny_folder("qwen2", tmp_path / "m")
    model = load_model(str(folder), dtype=dtype, device="cpu")
    name = str(dtype).removeprefix("torch.")
    assert model_facts(model).dtype == name
    assert {p.dtype for p in model.parameters()} == {getattr(torch, name)}
    assert model.cfg.dtype == getattr(torch, name)


def test_paths_that_name_another_architecture_change_nothing(tmp_path):
    folder = tiny_folder("gpt2", tmp_path / "llama-gemma-2-9b")
    model = load_model(folder, device="cpu")
    assert parity_error(model, tiny_hf("gpt2"), "gpt2") < 1e-4
    assert model.cfg.original_architecture == "GPT2LMHeadModel"


@pytest.mark.parametrize("declared", [..., ["LlamaModel"]])
def test_architecture_is_found_by_model_type(tmp_path, declared):
    folder = tiny_folder("llama", tmp_path / "m")
    edit_config(folder, architectures=declared)
    assert load_model(folder, device="cpu").cfg.original_architecture == "LlamaForCausalLM"


def test_sliding_window_that_would_be_ignored_limits_the_context(tmp_path):
    changes = {"use_sliding_window": True, "sliding_window": 40, "max_window_layers": 1}
    folder = tiny_folder("qwen2", tmp_path / "m", **changes)
    model = load_model(folder, device="cpu")
    assert model.cfg.n_ctx == 40
    assert parity_error(model, tiny_hf("qwen2", **changes), "qwen2", n_tokens=40) < 1e-4


def test_context_is_the_checkpoints_own():
    # TransformerLens caps it at 2048 for this family.
    assert tiny_model("mistral", max_position_embeddings=5000).cfg.n_ctx == 5000


def test_the_given_object_comes_back():
    model = tiny_model("llama")
    assert load_model(model) is model
    assert model_facts(model).source == "folder"


# --- tokenizer ------------------------------------------------------------------------------------


@pytest.mark.parametrize("add_bos", [True, False])
def test_bos_is_what_the_checkpoint_does(add_bos):
    model = tiny_model("llama", add_bos=add_bos)
    text = "12 + 3 ="
    own = model.tokenizer(text)["input_ids"]
    assert (own[0] == model.tokenizer.bos_token_id) is add_bos
    assert model.to_tokens(text)[0].tolist() == own
    assert model_facts(model).prepends_bos is add_bos
    # Both settings can still be asked for, and give one BOS at most.
    bare = model.tokenizer(text, add_special_tokens=False)["input_ids"]
    assert model.to_tokens(text, prepend_bos=False)[0].tolist() == bare
    assert model.to_tokens(text, prepend_bos=True)[0].tolist() == [0, *bare]


def test_padding_token_is_the_eos_token_only_where_there_is_none():
    assert tiny_model("llama").tokenizer.pad_token == tiny_model("llama").tokenizer.eos_token
    assert tiny_model("llama", pad=True).tokenizer.pad_token == "<|spare0|>"
    # Qwen's tokenizer class brings a padding token of its own, beyond this checkpoint's embedding.
    assert tiny_model("qwen2").tokenizer.pad_token_id < tiny_model("qwen2").cfg.d_vocab


@pytest.mark.parametrize(
    ("generation", "config", "expected"),
    [([5, 1, 5], 1, (5, 1)), (7, 1, (7,)), (None, [4, 3], (4, 3)), (None, None, (1,)), (0, 1, (0,))],
)
def test_end_of_text_ids_come_from_the_checkpoint(tmp_path, generation, config, expected):
    folder = tiny_folder("gpt_neox", tmp_path / "m")
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": generation}))
    edit_config(folder, eos_token_id=config)
    assert model_facts(load_model(folder, device="cpu")).eos_token_ids == expected


def test_end_of_text_id_of_a_foreign_object_is_its_tokenizers():
    with quiet():
        from transformer_lens import HookedTransformer

        own = tiny_model("llama")
        model = HookedTransformer(own.cfg, None)
    assert model_facts(model).eos_token_ids == ()
    assert model_facts(model).template is None
    assert not model_facts(model).prepends_bos
    model.tokenizer = own.tokenizer
    facts = model_facts(model)
    assert (facts.source, facts.eos_token_ids, facts.prepends_bos) == ("object", (1,), True)


# --- facts ----------------------------------------------------------------------------------------


def test_facts():
    facts = model_facts(tiny_model("qwen3"))
    assert (facts.n_layers, facts.n_heads, facts.n_key_value_heads) == (3, 4, 2)
    assert (facts.d_head, facts.d_model, facts.n_ctx) == (12, 32, 256)
    assert (facts.dtype, facts.device, facts.backend, facts.source) == ("float32", "cpu", "hooked", "folder")
    assert model_facts(tiny_model("gpt2")).n_key_value_heads == 4
    assert tiny_model("llama").tokenizer.chat_template == CHAT_TEMPLATE
    assert len(facts.template) == 64


def test_digest_tells_weights_apart_and_is_stable(tmp_path):
    folder = tiny_folder("gpt2", tmp_path / "a")
    model = load_model(folder, device="cpu")
    digest = weights_digest(model)
    assert digest == model_facts(tiny_model("gpt2")).weights_digest
    assert digest != weights_digest(tiny_model("gpt2", seed=1))
    assert digest != weights_digest(load_model(folder, dtype="bfloat16", device="cpu"))
    with torch.no_grad():
        model.blocks[2].attn.W_O[3] = 0
    assert weights_digest(model) != digest
    assert model_facts(model).weights_digest == weights_digest(model)


# --- GGUF -----------------------------------------------------------------------------------------


def test_gguf_file(tmp_path):
    model = load_model(tiny_gguf(tmp_path / "model.gguf"), device="cpu")
    assert parity_error(model, tiny_hf("llama"), "gguf", n_tokens=100) < 1e-4
    facts = model_facts(model)
    assert (facts.source, facts.eos_token_ids, facts.prepends_bos) == ("gguf", (1,), False)
    assert model.tokenizer.chat_template == CHAT_TEMPLATE


@pytest.mark.parametrize(("pre", "n_tokens"), [("smollm", 2), ("gpt-2", 1)])
def test_gguf_digit_rule(tmp_path, pre, n_tokens):
    # The file has a merge "12", which the rule of the "smollm" pre-tokenizer must keep from acting.
    model = load_model(tiny_gguf(tmp_path / "model.gguf", pre=pre), device="cpu")
    assert model.to_tokens("12").shape == (1, n_tokens)


# --- manners --------------------------------------------------------------------------------------


def test_loading_is_silent_and_leaves_no_trace(tmp_path, capfd):
    folder = tiny_folder("gpt2", tmp_path / "m")
    capfd.readouterr()
    root = logging.getLogger()
    before = (list(root.handlers), root.level, logging.root.manager.disable)
    load_model(folder, device="cpu")
    with pytest.raises(ModelLoadError):
        load_model("gpt3")
    assert (list(root.handlers), root.level, logging.root.manager.disable) == before
    assert capfd.readouterr() == ("", "")


def test_warnings_as_errors_in_a_fresh_process(tmp_path):
    folder = tiny_folder("llama", tmp_path / "m")
    code = (
        "import sys; from cel_lens.models import load_model; assert 'torch' not in sys.modules;"
        f"model = load_model({str(folder)!r}, device='cpu'); print(model.cfg.n_heads)"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "4\n", "")


def test_an_interrupt_passes_through(tmp_path, monkeypatch):
    def interrupt(*args, **kwargs):
        raise KeyboardInterrupt

    folder = tiny_folder("llama", tmp_path / "m")
    monkeypatch.setattr("transformers.AutoModelForCausalLM.from_pretrained", interrupt)
    with pytest.raises(KeyboardInterrupt):
        load_model(folder, device="cpu")


def test_generation_works_on_a_loaded_model():
    tokens = prompt(5)
    out = tiny_model("llama").generate(tokens, max_new_tokens=4, do_sample=False, verbose=False)
    assert out.shape[1] <= 9
    assert torch.equal(out[:, :5], tokens)
