"""What cannot be used is refused with one plain sentence, never with another library's exception."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pytest
import torch

from cel_lens.errors import CelLensError, InvalidInput, ModelLoadError, UnsupportedModel
from cel_lens.models import load_model, model_facts
from cel_lens.models.backends import has_hooked
from cel_lens.models.checks import parity_error
from tests.models.tiny import build_hf, edit_config, needs_hooked, tiny_folder, tiny_gguf, tiny_hf, tiny_model


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A Hugging Face cache of our own; the returned function puts a folder for a repository into it."""
    cache = tmp_path / "hub"
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(cache))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)

    def add(repo):
        root = cache / f"models--{repo.replace('/', '--')}"
        (root / "refs").mkdir(parents=True)
        (root / "refs" / "main").write_text("a" * 40)
        snapshot = root / "snapshots" / ("a" * 40)
        snapshot.mkdir(parents=True)
        return snapshot

    return add


def refused(source, error=ModelLoadError, **options):
    with pytest.raises(error) as caught:
        load_model(source, device="cpu", **options)
    message = str(caught.value)
    assert "\n" not in message
    return message


# --- names, paths, folders ------------------------------------------------------------------------


def test_unknown_name_offers_the_nearest():
    message = refused("gpt3")
    assert "'gpt3'" in message
    assert "gpt2" in message
    assert "smollm2-135m-instruct" in message
    assert "nearest names are smollm2-135m-instruct" in refused("SmolLM2")


@pytest.mark.parametrize("source", ["/nowhere/model", "./nowhere", "a/b/c", "model.gguf", Path("nowhere")])
def test_missing_path(source):
    assert f"'{source}'" in refused(source)


@pytest.mark.parametrize("source", ["", "  ", "a\0b", "a" * 5000, None, 7, b"gpt2", str(Path(__file__))])
def test_no_name_at_all(source):
    refused(source, InvalidInput)


@pytest.mark.parametrize(
    "option",
    [{"dtype": "int8"}, {"dtype": torch.int64}, {"device": "cuda:99"}, {"device": "gpu"}, {"device": "meta"}],
)
def test_options_without_meaning(option):
    with pytest.raises(InvalidInput, match=r"dtype|device"):
        load_model("smollm2-135m-instruct", **option)


def test_incomplete_folders(tmp_path):
    folder = tiny_folder("llama", tmp_path / "m")
    weights = (folder / "model.safetensors").rename(tmp_path / "kept")
    assert "no .safetensors" in refused(folder)
    (folder / "pytorch_model.bin").write_bytes(b"")
    assert "convert" in refused(folder)
    weights.rename(folder / "model.safetensors")
    (folder / "tokenizer.json").unlink()
    assert "tokenizer" in refused(folder)
    (folder / "config.json").unlink()
    assert "no config.json" in refused(folder)


@pytest.mark.parametrize("text", ["", "{", "[]", "\udcff"])
def test_damaged_config(tmp_path, text):
    folder = tiny_folder("llama", tmp_path / "m")
    (folder / "config.json").write_bytes(text.encode("utf-8", "surrogateescape"))
    assert "config.json" in refused(folder)


@pytest.mark.parametrize("keep", [0, 4, 2000, -1000])
def test_damaged_weights(tmp_path, keep):
    folder = tiny_folder("llama", tmp_path / "m")
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:keep])
    assert "damaged" in refused(folder)


def test_damaged_generation_config(tmp_path):
    # Passed over, it would take the end-of-text tokens with it.
    folder = tiny_folder("llama", tmp_path / "m")
    (folder / "generation_config.json").write_text("{")
    assert "generation_config.json" in refused(folder)


@pytest.mark.parametrize("entries", [{"vocab_size": "many"}, {"num_attention_heads": 5}])
def test_config_that_makes_no_sense(tmp_path, entries):
    folder = tiny_folder("llama", tmp_path / "m")
    edit_config(folder, **entries)
    assert "config.json" in refused(folder)


def test_code_of_the_checkpoint_is_not_run(tmp_path):
    folder = tiny_folder("llama", tmp_path / "m")
    code = "raise SystemExit('it ran')"
    (folder / "code.py").write_text(code)
    edit_config(
        folder,
        model_type="own",
        architectures=["OwnForCausalLM"],
        auto_map={"AutoConfig": "code.OwnConfig", "AutoModelForCausalLM": "code.OwnForCausalLM"},
    )
    assert "code of its own" in refused(folder, UnsupportedModel)


def test_missing_shard(tmp_path):
    folder = tiny_folder("llama", tmp_path / "m")
    (folder / "model.safetensors").unlink()
    build_hf("llama").save_pretrained(folder, max_shard_size="20KB")
    load_model(folder, device="cpu")
    (folder / "model-00002-of-00007.safetensors").unlink()
    assert "model-00002-of-00007.safetensors" in refused(folder)


def test_damaged_tokenizer(tmp_path):
    folder = tiny_folder("llama", tmp_path / "m")
    (folder / "tokenizer.json").write_text("{")
    assert "tokenizer" in refused(folder)


def test_missing_weight_is_not_made_up(tmp_path):
    from safetensors.torch import load_file, save_file

    folder = tiny_folder("llama", tmp_path / "m")
    file = folder / "model.safetensors"
    tensors = load_file(file)
    del tensors["model.layers.1.self_attn.v_proj.weight"]
    save_file(tensors, file, metadata={"format": "pt"})
    assert "model.layers.1.self_attn.v_proj.weight" in refused(folder)


def test_weights_of_another_shape(tmp_path):
    folder = tiny_folder("llama", tmp_path / "m")
    edit_config(folder, intermediate_size=64)
    refused(folder)


@pytest.mark.parametrize(("value", "word"), [(float("nan"), "NaN"), (float("-inf"), "infinite")])
def test_weights_that_are_not_finite(tmp_path, value, word):
    from safetensors.torch import load_file, save_file

    folder = tiny_folder("gpt2", tmp_path / "m")
    file = folder / "model.safetensors"
    tensors = load_file(file)
    name = next(key for key in tensors if key.endswith("h.1.mlp.c_fc.weight"))
    tensors[name][3, 5] = value
    save_file(tensors, file, metadata={"format": "pt"})
    message = refused(folder)
    assert "h.1.mlp.c_fc.weight" in message
    assert word in message


@pytest.mark.parametrize("method", ["gptq", "awq", "bitsandbytes", "fp8"])
def test_packed_weights(tmp_path, method):
    folder = tiny_folder("llama", tmp_path / "m")
    edit_config(folder, quantization_config={"quant_method": method})
    message = refused(folder, UnsupportedModel)
    assert method in message
    assert ".gguf" in message


@pytest.mark.parametrize(
    "entries",
    [
        {"model_type": "t5", "architectures": ["T5ForConditionalGeneration"], "is_encoder_decoder": True},
        {"model_type": "bert", "architectures": ["BertForMaskedLM"]},
        {"model_type": "no-such-type", "architectures": ["NoSuchForCausalLM"]},
        {"model_type": "mamba", "architectures": ["MambaForCausalLM"]},
        {"head_dim": 12},  # other than the weights
    ],
)
def test_what_transformerlens_cannot_express(tmp_path, entries):
    folder = tiny_folder("llama", tmp_path / "m")
    edit_config(folder, **entries)
    with pytest.raises(CelLensError) as caught:
        load_model(folder, device="cpu")
    assert "\n" not in str(caught.value)


ONLY_AS_A_BRIDGE = [
    # HookedTransformer's Llama branch drops attention biases: only the comparison of logits notices.
    ("llama", {"attention_bias": True}, "TransformerLens 3."),
    ("llama", {"head_dim": 12}, "other logits|cannot express"),
    ("llama", {"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0}}, "'yarn'"),
    ("llama", {"rope_parameters": {"rope_type": "linear", "rope_theta": 1e4, "factor": 4.0}}, "'linear'"),
    (
        "gpt_neox",
        {"rope_parameters": {"rope_type": "default", "rope_theta": 5e5, "partial_rotary_factor": 0.5}},
        "rotary base",
    ),
]


@needs_hooked
@pytest.mark.parametrize(("family", "changes", "reason"), ONLY_AS_A_BRIDGE)
def test_what_only_the_bridge_expresses_is_refused_as_hooked_transformer(tmp_path, family, changes, reason):
    folder = tiny_folder(family, tmp_path / "m", **changes)
    assert re.search(reason, refused(folder, UnsupportedModel, backend="hooked"))


@pytest.mark.parametrize(("family", "changes", "reason"), ONLY_AS_A_BRIDGE)
def test_what_only_the_bridge_expresses_is_loaded_as_one(family, changes, reason):
    model = tiny_model(family, **changes)
    facts = model_facts(model)
    assert facts.backend == "bridge"
    if has_hooked():
        assert re.search(reason, facts.backend_reason)
    assert parity_error(model, tiny_hf(family, **changes), family, n_tokens=256) < 1e-4


# --- hub ------------------------------------------------------------------------------------------


def test_listed_name_from_the_cache(hub):
    tiny_folder("gpt2", hub("gpt2"), n_ctx=256)
    model = load_model("gpt2-small", device="cpu")
    assert parity_error(model, tiny_hf("gpt2"), "gpt2") < 1e-4
    facts = model_facts(model)
    assert (facts.name, facts.source, facts.n_ctx) == ("gpt2-small", "hub", 256)
    assert model.cfg.default_prepend_bos is False


def test_unlisted_name_from_the_cache(hub):
    tiny_folder("qwen2", hub("someone/tiny-qwen"))
    model = load_model("someone/tiny-qwen", device="cpu", local_files_only=True)
    assert parity_error(model, tiny_hf("qwen2"), "qwen2") < 1e-4


def test_cached_config_without_weights(hub):
    snapshot = hub("someone/tiny")
    folder = tiny_folder("qwen2", snapshot)
    (folder / "model.safetensors").unlink()
    assert "connect to the network" in refused("someone/tiny")


def test_kind_is_refused_before_the_weights_are_fetched(hub):
    (hub("google-t5/t5-small") / "config.json").write_text(
        json.dumps({"model_type": "t5", "is_encoder_decoder": True})
    )
    assert "encoder-decoder" in refused("t5-small", UnsupportedModel)


@pytest.mark.parametrize("name", ["gpt2", "pythia-70m", "solu-2l", "someone/unknown"])
@pytest.mark.parametrize("local_files_only", [True, False])
def test_not_cached_and_out_of_reach(hub, name, local_files_only):
    started = time.perf_counter()
    message = refused(name, local_files_only=local_files_only)
    assert time.perf_counter() - started < 20  # transformers alone tries for longer
    assert name in message
    assert "folder" in message
    assert ".gguf" in message


def test_name_that_nobody_hosts():
    assert "does not host 'llama-7b'" in refused("llama-7b")


def test_a_run_folder_does_not_hide_a_listed_name(hub, tmp_path, monkeypatch):
    tiny_folder("gpt2", hub("gpt2"), n_ctx=256)
    (tmp_path / "gpt2").mkdir()
    monkeypatch.chdir(tmp_path)
    assert model_facts(load_model("gpt2", device="cpu")).source == "hub"


def test_damaged_gguf(tmp_path):
    file = tiny_gguf(tmp_path / "model.gguf")
    whole = file.read_bytes()
    for damaged in (b"", b"not a gguf file", whole[:5000], whole[:-2000]):
        file.write_bytes(damaged)
        assert "model.gguf" in refused(file)
