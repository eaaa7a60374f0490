"""What a checkpoint needs is known before its weights are read, and a model that does not fit is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from cel_lens.errors import ModelLoadError, UnsupportedModel
from cel_lens.models import load_model, size
from cel_lens.models.backends import has_hooked
from cel_lens.models.checks import check_in_memory
from cel_lens.models.loading import _parse_dtype
from cel_lens.models.quiet import quiet
from cel_lens.models.size import MemoryNeed, free_memory, memory_need
from tests.models.tiny import build_hf, needs_hooked, tiny_folder, tiny_gguf, tiny_model, tiny_tokenizer

# Large enough that biases which only HookedTransformer has do not count.
WIDE: dict[str, Any] = {"hidden_size": 256, "intermediate_size": 512, "max_position_embeddings": 4096}


def bytes_of(model: Any) -> int:
    return sum(one.numel() * one.element_size() for one in (*model.parameters(), *model.buffers()))


def need_of(path: Path, dtype: str = "float32", *, hooked: bool = True) -> MemoryNeed:
    found = memory_need(path, getattr(torch, dtype), hooked=hooked)
    assert found is not None
    return found


@needs_hooked
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(
    ("family", "changes"),
    [
        ("llama", WIDE),
        ("llama", {**WIDE, "tie_word_embeddings": True, "vocab_size": 3000}),
        ("qwen3", {**WIDE, "head_dim": 32}),
        ("gpt_neox", WIDE),
        ("gpt2", {"n_embd": 256, "n_positions": 512}),
    ],
)
def test_the_estimate_is_the_size_of_the_loaded_model(
    family: str, changes: dict[str, Any], dtype: str, tmp_path: Path
) -> None:
    folder = tiny_folder(family, tmp_path / "m", **changes)
    for backend in ("hooked", "bridge"):
        model = load_model(folder, device="cpu", dtype=dtype, backend=backend)
        need = need_of(folder, dtype, hooked=backend == "hooked")
        assert need.loaded == pytest.approx(bytes_of(model), rel=0.02)
        file = (folder / "model.safetensors").stat().st_size // 4
        copy = file * (4 if dtype == "float32" else 2) if backend == "hooked" else 0
        assert need.loading == pytest.approx(need.loaded + copy, rel=0.02)


@needs_hooked
def test_a_gguf_file(tmp_path: Path) -> None:
    file = tiny_gguf(tmp_path / "m.gguf")
    need, model = need_of(file), load_model(file, device="cpu")
    assert need.loaded == pytest.approx(bytes_of(model), rel=0.05)
    assert need_of(file, "bfloat16").loaded == need.loaded / 2


def test_shards_are_added_up_and_other_copies_are_not(tmp_path: Path) -> None:
    whole = tiny_folder("llama", tmp_path / "whole")
    sharded = tmp_path / "sharded"
    with quiet():
        build_hf("llama").save_pretrained(sharded, max_shard_size="40KB")
        tiny_tokenizer().save_pretrained(sharded)
    assert len(list(sharded.glob("*.safetensors"))) > 1
    assert need_of(sharded) == need_of(whole)
    for folder in (whole, sharded):
        (folder / "consolidated.safetensors").write_bytes((whole / "model.safetensors").read_bytes())
        assert need_of(folder) == need_of(whole)


def test_what_cannot_be_read_is_left_to_the_loading(tmp_path: Path) -> None:
    folder = tiny_folder("llama", tmp_path / "m")
    (folder / "model.safetensors").write_bytes(b"damaged")
    assert memory_need(folder, torch.float32, hooked=True) is None
    assert memory_need(tmp_path / "absent", torch.float32, hooked=True) is None
    (tmp_path / "x.gguf").write_bytes(b"damaged")
    assert memory_need(tmp_path / "x.gguf", torch.float32, hooked=True) is None
    with pytest.raises(ModelLoadError, match="damaged or cut short"):
        load_model(folder, device="cpu")


def only(monkeypatch: pytest.MonkeyPatch, free: int) -> None:
    monkeypatch.setattr(size, "free_memory", lambda device: free)


def test_a_model_that_does_not_fit_is_refused_before_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tiny_folder("qwen2", tmp_path / "m", hidden_size=1024, intermediate_size=3000)
    need = need_of(folder, hooked=has_hooked())
    only(monkeypatch, 3_100_000)
    monkeypatch.setattr("transformers.AutoModelForCausalLM.from_pretrained", None)  # would be a TypeError
    size_text = f"{need.loaded / 1e9:.1f} GB"
    with pytest.raises(
        ModelLoadError,
        match=rf"needs about {size_text} in float32 on cpu; 3\.1 MB free: use dtype bfloat16, another device",
    ):
        load_model(folder, device="cpu")
    with pytest.raises(ModelLoadError, match=r"in bfloat16 on cpu; 3\.1 MB free: use another device"):
        load_model(folder, device="cpu", dtype="bfloat16")


@needs_hooked
def test_a_model_that_fits_only_once_loaded_is_warned_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tiny_folder("qwen2", tmp_path / "m")
    need = need_of(folder)
    only(monkeypatch, need.loaded + 10)
    with pytest.warns(
        UserWarning, match=rf"needs about {need.loading / 1e6:.1f} MB in float32 while it is loaded; "
    ):
        load_model(folder, device="cpu")
    load_model(folder, device="cpu", backend="bridge")  # a warning would be an error here
    only(monkeypatch, need.loading)
    load_model(folder, device="cpu")


def test_the_embedded_model_is_estimated_too(monkeypatch: pytest.MonkeyPatch) -> None:
    load_model("smollm2-135m-instruct", device="cpu", backend="bridge")
    only(monkeypatch, 100_000_000)
    with pytest.raises(ModelLoadError, match=r"needs about 0\.\d GB in float32 on cpu; 0\.1 GB free"):
        load_model("smollm2-135m-instruct", device="cpu", backend="bridge")


def test_free_memory_is_the_machines() -> None:
    import psutil

    assert 0 < free_memory(torch.device("cpu")) <= psutil.virtual_memory().total


def test_free_memory_of_a_cuda_device_is_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (7, 9))
    assert free_memory(torch.device("cuda:1")) == 7


# --- precision and place --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("device", "able", "expected"),
    [
        ("cpu", True, "float32"),
        ("cuda", True, "bfloat16"),
        ("cuda", False, "float32"),
        ("mps", True, "float32"),
    ],
)
def test_the_precision_that_auto_takes(
    device: str, able: bool, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda: able)
    assert _parse_dtype("auto", torch.device(device)) is getattr(torch, expected)
    assert _parse_dtype("float16", torch.device(device)) is torch.float16


def test_a_model_that_accelerate_has_offloaded_is_refused(tmp_path: Path) -> None:
    import accelerate

    model = load_model(tiny_folder("llama", tmp_path / "m"), device="cpu", backend="bridge")
    with quiet():
        accelerate.disk_offload(model.original_model, tmp_path / "offload", execution_device="cpu")
    with pytest.raises(UnsupportedModel, match="is not in memory"):
        load_model(model)


def test_a_model_on_several_devices_is_refused() -> None:
    class There:
        device = torch.device("cuda:1")

    weights: Any = [("a", torch.zeros(1)), ("b", torch.zeros(1)), ("c", There())]
    with pytest.raises(
        UnsupportedModel,
        match=r"the weights of 'x' lie on several devices \('a' on cpu, 'c' on cuda:1\): .* without device_map",
    ):
        check_in_memory(weights, "x")
    check_in_memory(weights[:2], "x")
    check_in_memory(tiny_model("llama").named_parameters(), "x")
