"""An exported checkpoint is the original without the heads, and nothing else about it is different."""

from __future__ import annotations

import errno
import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open

from cel_lens import export_ablated, zero_ablation
from cel_lens.errors import InvalidInput, ModelLoadError, UnsupportedModel
from cel_lens.export import checkpoint
from cel_lens.heads import HeadSet
from cel_lens.models import load_model, model_facts, weights_digest
from cel_lens.models.projections import PROJECTIONS
from cel_lens.models.quiet import quiet
from cel_lens.results import BeneficialHeads
from tests.builders import build_result
from tests.models.oracle import PROJECTIONS as MODULES
from tests.models.oracle import sliced
from tests.models.tiny import FAMILIES, build_hf, edit_config, prompt, tiny_folder, tiny_gguf, tiny_tokenizer

HEADS = "L0H1+L1H0+L1H3+L2H2"


def hf_model(folder: Path) -> Any:
    """What plain transformers loads, which complains of nothing."""
    from transformers import AutoModelForCausalLM

    with quiet():
        loaded, info = AutoModelForCausalLM.from_pretrained(
            folder, attn_implementation="eager", output_loading_info=True
        )
    assert not any(info.values()), info
    return loaded.eval()


def logits(model: Any, tokens: torch.Tensor) -> torch.Tensor:
    with torch.inference_mode():
        return model(tokens, use_cache=False).logits.float()


def tensors(folder: Path) -> dict[str, dict[str, torch.Tensor]]:
    """All tensors of all weight files, by file."""
    found: dict[str, dict[str, torch.Tensor]] = {}
    for file in sorted(folder.glob("*.safetensors")):
        with safe_open(file, framework="pt") as opened:
            found[file.name] = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
    return found


def header(file: Path) -> bytes:
    data = file.read_bytes()
    return data[: 8 + int.from_bytes(data[:8], "little")]


def only_heads_differ(family: str, before: Path, after: Path, heads: str) -> None:
    """Every byte outside the heads' slices is that of the original, and each slice is zero."""
    transposed = family == "gpt2"
    config = json.loads((before / "config.json").read_text())
    n_heads = config.get("num_attention_heads") or config["n_head"]
    old, new = tensors(before), tensors(after)
    assert {file: list(part) for file, part in old.items()} == {
        file: list(part) for file, part in new.items()
    }
    changed = set()
    for file, part in old.items():
        assert header(before / file) == header(after / file)
        for name, tensor in part.items():
            other = new[file][name]
            if torch.equal(tensor, other):
                continue
            layer = int(re.findall(r"\.(\d+)\.", name)[0])
            changed.add(layer)
            rows = (tensor.T if transposed else tensor).clone()
            width = rows.shape[1] // n_heads
            for head in HeadSet.of(heads):
                if head.layer == layer:
                    rows[:, head.index * width : (head.index + 1) * width] = 0
            expected = rows.T if transposed else rows
            as_bytes = [one.contiguous().view(torch.uint8) for one in (expected, other)]
            assert torch.equal(*as_bytes), name
    assert changed == set(HeadSet.of(heads).by_layer())
    names = {path.name for path in before.iterdir()}
    assert {path.name for path in after.iterdir()} == names | {"README.md"}
    for name in names:
        if not name.endswith(".safetensors"):
            assert (before / name).read_bytes() == (after / name).read_bytes(), name


# --- families -------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_gives_the_logits_of_the_hooked_ablation(family: str, tmp_path: Path) -> None:
    source = tiny_folder(family, tmp_path / "source")
    model, tokens = load_model(source, device="cpu"), prompt(40, batch=2)
    digest = weights_digest(model)
    target = export_ablated(model, HEADS, tmp_path / "target")
    with zero_ablation(model, HEADS), torch.inference_mode():
        expected = model(tokens, prepend_bos=False)
    found = hf_model(target)
    assert found.config.architectures == hf_model(source).config.architectures
    torch.testing.assert_close(logits(found, tokens), expected, rtol=0, atol=1e-4)
    assert (logits(hf_model(source), tokens) - expected).abs().max() > 0.05, "the heads matter"
    only_heads_differ(family, source, target, HEADS)
    assert weights_digest(model) == digest, "the caller's model stays as it is"
    with torch.inference_mode():  # and the export is an ordinary model here
        again = load_model(target, device="cpu")(tokens, prepend_bos=False)
    torch.testing.assert_close(again, expected, rtol=0, atol=1e-4)


@pytest.mark.parametrize(
    ("family", "changes"), [("llama", {"attention_bias": True}), ("gpt2", {}), ("gpt_neox", {})]
)
def test_an_output_bias_is_not_touched(family: str, changes: dict[str, Any], tmp_path: Path) -> None:
    source = tiny_folder(family, tmp_path / "source", **changes)
    bias = MODULES[family](build_hf(family, **changes), 0).bias
    target = export_ablated(source, "L0H0+L0H1+L0H2+L0H3", tmp_path / "target")
    module = MODULES[family](hf_model(target), 0)
    assert not module.weight.any(), "all heads of the layer are gone"
    assert bias.any()
    assert torch.equal(module.bias, bias)


SMALL = {
    "vocab_size": 128,
    "hidden_size": 32,
    "intermediate_size": 48,
    "moe_intermediate_size": 16,
    "shared_expert_intermediate_size": 16,
    "ffn_dim": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 12,
    "num_experts": 2,
    "num_local_experts": 2,
    "num_experts_per_tok": 1,
    "max_position_embeddings": 64,
    "word_embed_proj_dim": 32,
    "rotary_dim": 4,
    "window_size": 16,
    "pad_token_id": None,
    "bos_token_id": 0,
    "eos_token_id": 1,
}
OWN_NAMES = {
    "bloom": {"n_layer": 2, "n_head": 4},
    "codegen": {"n_embd": 32, "n_layer": 1, "n_head": 4, "n_positions": 64},
    "gpt2": {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64},
    "gptj": {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64},
    "gpt_neo": {"num_layers": 2, "num_heads": 4, "attention_types": [[["global", "local"], 1]]},
}
OTHER_MODULES = {
    "bloom": lambda hf, layer: hf.transformer.h[layer].self_attention.dense,
    "gpt_neo": lambda hf, layer: hf.transformer.h[layer].attn.attention.out_proj,
    "gptj": lambda hf, layer: hf.transformer.h[layer].attn.out_proj,
    "opt": lambda hf, layer: hf.model.decoder.layers[layer].self_attn.out_proj,
    "phi": lambda hf, layer: hf.model.layers[layer].self_attn.dense,
}


def any_family(kind: str, folder: Path) -> Path:
    """A tiny random checkpoint of any kind that transformers knows."""
    from transformers import AutoConfig, AutoModelForCausalLM

    with quiet():
        known = AutoConfig.for_model(kind).to_dict()
        entries = {key: value for key, value in SMALL.items() if key in known} | OWN_NAMES.get(kind, {})
        config = AutoConfig.for_model(kind, **entries)
        torch.manual_seed(0)
        hf = AutoModelForCausalLM.from_config(config, attn_implementation="eager")
        with torch.no_grad():
            for parameter in hf.parameters():
                parameter.add_(0.1 * torch.randn_like(parameter))
        hf.save_pretrained(folder)
        tiny_tokenizer().save_pretrained(folder)
    return folder


@pytest.mark.parametrize("kind", sorted(PROJECTIONS))
def test_every_listed_kind_is_exported_rightly(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, heads, tokens = any_family(kind, tmp_path / "source"), "L0H1+L1H0+L1H3", prompt(20)
    target = export_ablated(source, heads, tmp_path / "target")
    hf = hf_model(source)
    module = OTHER_MODULES.get(kind, MODULES.get(kind, MODULES["llama"]))
    monkeypatch.setitem(MODULES, kind, module)
    intact = logits(hf, tokens)
    with sliced(kind, hf, heads):
        expected = logits(hf, tokens)
    torch.testing.assert_close(logits(hf_model(target), tokens), expected, rtol=0, atol=1e-5)
    assert (intact - expected).abs().max() > 1e-3
    try:
        model = load_model(source, device="cpu")
    except UnsupportedModel:
        return  # TransformerLens does not have this kind; the heads' order is that of the module's input
    with zero_ablation(model, heads), torch.inference_mode():
        hooked = model(tokens, prepend_bos=False)
    torch.testing.assert_close(hooked, expected, rtol=0, atol=1e-4)


def test_an_unknown_kind_is_refused_by_name(tmp_path: Path) -> None:
    folder = any_family("codegen", tmp_path / "source")
    with pytest.raises(
        UnsupportedModel, match=r"source' is of the kind codegen, .* only that of bloom, gemma,"
    ):
        export_ablated(folder, "L0H0", tmp_path / "target")
    assert [path.name for path in tmp_path.iterdir()] == ["source"]


# --- files ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", ["llama", "qwen2"])
def test_shards_precision_and_tied_weights_are_kept(family: str, tmp_path: Path) -> None:
    hf = build_hf(family, tie_word_embeddings=True).to(torch.bfloat16)
    source = tmp_path / "source"
    with quiet():
        hf.save_pretrained(source, max_shard_size="20KB")
        tiny_tokenizer().save_pretrained(source)
    target = export_ablated(source, HEADS, tmp_path / "target")
    assert len(list(target.glob("*.safetensors"))) > 2
    assert not any("lm_head" in name for part in tensors(target).values() for name in part)
    assert {one.dtype for part in tensors(target).values() for one in part.values()} == {torch.bfloat16}
    only_heads_differ(family, source, target, HEADS)
    found = hf_model(target)
    assert found.lm_head.weight.data_ptr() == found.model.embed_tokens.weight.data_ptr()
    assert found.dtype == torch.bfloat16


def test_a_checkpoint_of_the_bare_body_has_other_names(tmp_path: Path) -> None:
    source, hf = tmp_path / "source", build_hf("gpt2")
    with quiet():
        hf.transformer.save_pretrained(source)
        tiny_tokenizer().save_pretrained(source)
    edit_config(source, architectures=["GPT2LMHeadModel"])
    target = export_ablated(source, HEADS, tmp_path / "target")
    only_heads_differ("gpt2", source, target, HEADS)
    assert "h.0.attn.c_proj.weight" in (target / "README.md").read_text()


def test_other_formats_and_other_results_stay_behind(tmp_path: Path) -> None:
    source = tiny_folder("llama", tmp_path / "source")
    kept = {"LICENSE": "terms", "NOTICE.txt": "note", "additional_chat_templates/tool.jinja": "x"}
    left = {
        "pytorch_model.bin": "p",
        "pytorch_model.bin.index.json": "{}",
        "README.md": "old",
        "run_results.json": "{}",
    }
    for name, text in (kept | left).items():
        (source / name).parent.mkdir(exist_ok=True)
        (source / name).write_text(text)
    (source / "model.safetensors.index.json").write_text(
        "{}"
    )  # of shards that are gone; the whole file counts
    target = export_ablated(source, "L0H0", tmp_path / "target")
    for name, text in kept.items():
        assert (target / name).read_text() == text
    names = {path.name for path in target.iterdir()}
    assert not names & {*left, "model.safetensors.index.json"} - {"README.md"}
    assert (target / "README.md").read_text() != "old"


def test_a_gguf_file_is_unpacked(tmp_path: Path) -> None:
    file = tiny_gguf(tmp_path / "tiny.gguf")
    model, tokens = load_model(file, device="cpu"), prompt(20)
    target = export_ablated(model, HEADS, tmp_path / "out" / "target")
    with zero_ablation(model, HEADS), torch.inference_mode():
        expected = model(tokens, prepend_bos=False)
    torch.testing.assert_close(logits(hf_model(target), tokens), expected, rtol=0, atol=1e-4)
    assert [path.name for path in target.parent.iterdir()] == ["target"], "nothing of the work is left"
    assert (target / "tokenizer.json").exists()


def test_an_empty_folder_is_filled_and_a_link_to_one_too(tmp_path: Path) -> None:
    source = tiny_folder("llama", tmp_path / "source")
    (tmp_path / "empty").mkdir()
    (tmp_path / "link").symlink_to("empty", target_is_directory=True)
    assert export_ablated(source, "L0H0", tmp_path / "link") == tmp_path / "link"
    assert (tmp_path / "empty" / "config.json").exists()
    assert (tmp_path / "link").is_symlink()


def test_a_folder_that_holds_something_is_refused(tmp_path: Path) -> None:
    source = tiny_folder("llama", tmp_path / "source")
    before = {path.name: path.read_bytes() for path in source.iterdir()}
    for occupied in (source, source / "config.json"):
        with pytest.raises(InvalidInput, match="is not empty: an export needs a folder that is new or empty"):
            export_ablated(source, "L0H0", occupied)
    assert {path.name: path.read_bytes() for path in source.iterdir()} == before


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(errno.ENOSPC, "No space left on device")])
@pytest.mark.parametrize("step", ["shutil.copyfile", "checkpoint.write_zeros", "checkpoint.model_card"])
def test_an_interruption_leaves_nothing(
    step: str, error: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, calls = tiny_folder("llama", tmp_path / "source"), []
    owner = shutil if step.startswith("shutil") else checkpoint
    name = step.partition(".")[2]
    original = getattr(owner, name)

    def fails_later(*arguments: Any) -> Any:
        calls.append(arguments)
        if len(calls) > 1 or name == "model_card":
            raise error
        return original(*arguments)

    monkeypatch.setattr(owner, name, fails_later)
    expected = KeyboardInterrupt if isinstance(error, KeyboardInterrupt) else InvalidInput
    with pytest.raises(
        expected, match=None if expected is KeyboardInterrupt else r"target cannot be written \(No space"
    ):
        export_ablated(source, "L0H0+L1H1", tmp_path / "deep" / "er" / "target")
    assert [path.name for path in tmp_path.iterdir()] == ["source"]
    monkeypatch.undo()
    assert export_ablated(source, "L0H0", tmp_path / "deep" / "er" / "target").is_dir()


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    source = tiny_folder("llama", tmp_path / "source")
    (tmp_path / "file").write_text("x")
    for target in ("/proc/nowhere", tmp_path / "file" / "target"):
        with pytest.raises(InvalidInput, match=r"(nowhere|target) cannot be (written|read) \("):
            export_ablated(source, "L0H0", target)


# --- what is refused ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_folder("llama", tmp_path_factory.mktemp("model") / "source")


@pytest.mark.parametrize(
    ("heads", "words"),
    [
        ("", "no head is named, and the intact model needs no export"),
        ("L3H0", "L3H0 does not exist in this model: it has layers 0-2 with query heads 0-3"),
        ("L0H4", "L0H4 does not exist in this model"),
        ("L0", "'L0' is not a head"),
        ("L0H0+L0H0", "a head is named twice"),
    ],
)
def test_heads_that_cannot_be_removed(heads: str, words: str, source: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=re.escape(words)):
        export_ablated(source, heads, tmp_path / "target")
    assert not any(tmp_path.iterdir())


def test_an_edited_model_is_refused_even_for_one_number(source: Path, tmp_path: Path) -> None:
    model = load_model(source, device="cpu")
    with torch.no_grad():
        model.blocks[1].mlp.W_in[3, 5] += 1
    with pytest.raises(
        InvalidInput, match=r"weight blocks\.1\.mlp\.W_in of the model in memory is not that of"
    ):
        export_ablated(model, "L0H0", tmp_path / "target")
    with torch.no_grad():
        model.blocks[1].mlp.W_in[3, 5].copy_(load_model(source, device="cpu").blocks[1].mlp.W_in[3, 5])
    assert export_ablated(model, "L0H0", tmp_path / "target").is_dir()


def test_a_model_in_another_precision_is_still_its_checkpoint(source: Path, tmp_path: Path) -> None:
    model = load_model(source, dtype="bfloat16", device="cpu")
    target = export_ablated(model, HEADS, tmp_path / "target")
    only_heads_differ("llama", source, target, HEADS)  # float32, as the checkpoint


def test_a_model_of_unknown_origin_is_refused(source: Path, tmp_path: Path) -> None:
    import copy

    other = copy.deepcopy(load_model(source, device="cpu"))
    for model, words in (
        (other, "the checkpoint of this HookedTransformer is not known"),
        (7, "a model is a name, a folder, a .gguf file or an object from load_model, not int"),
    ):
        with pytest.raises(InvalidInput, match=words):
            export_ablated(model, "L0H0", tmp_path / "target")


def test_damaged_and_unfit_checkpoints_are_refused(source: Path, tmp_path: Path) -> None:
    def broken(name: str) -> Path:
        return Path(shutil.copytree(source, tmp_path / name))

    (broken("cut") / "model.safetensors").write_bytes((source / "model.safetensors").read_bytes()[:-9])
    (broken("noise") / "model.safetensors").write_bytes(b"noise")
    (broken("pickled") / "model.safetensors").rename(tmp_path / "pickled" / "pytorch_model.bin")
    (broken("adapted") / "adapter_config.json").write_text("{}")
    edit_config(broken("headed"), num_attention_heads=16)
    edit_config(broken("senseless"), num_attention_heads=5)
    (broken("sharded") / "model.safetensors").rename(tmp_path / "sharded" / "model-1.safetensors")
    (tmp_path / "sharded" / "model.safetensors.index.json").write_text(
        '{"weight_map": {"x": "model-2.safetensors"}}'
    )
    edit_config(broken("taller"), num_hidden_layers=4)
    for name, words in {
        "cut": "model.safetensors of .* is no whole safetensors file: it ends before its last tensor",
        "noise": "is no whole safetensors file: its header is longer than the file",
        "pickled": "has no model.safetensors and no model.safetensors.index.json: convert its weights",
        "adapted": "holds an adapter beside its weights: merge it",
        "headed": "which does not fit 16 heads of width 8",
        "senseless": "config.json of .* cannot be used: .* not a multiple",
        "sharded": "is incomplete: its file model-2.safetensors is missing",
        "taller": r"has no weights named 'layers\.3\.self_attn\.o_proj\.weight' where one is needed",
    }.items():
        with pytest.raises((ModelLoadError, UnsupportedModel), match=words):
            export_ablated(tmp_path / name, "L3H0" if name == "taller" else "L0H0", tmp_path / "target")
        assert not (tmp_path / "target").exists()


# --- evidence -------------------------------------------------------------------------------------


def result_for(source: Path, **options: Any) -> BeneficialHeads:
    """A finished search that chose heads of this very checkpoint."""
    facts = model_facts(load_model(source, device="cpu"))
    return build_result(
        n_layers=3, n_heads=4, model=str(source), weights_digest=facts.weights_digest, **options
    )


def test_the_card_says_what_was_measured(source: Path, tmp_path: Path) -> None:
    result = result_for(source)
    assert str(result.heads) == "L0H1"
    card = (
        export_ablated(source, result.heads, tmp_path / "target", evidence=result) / "README.md"
    ).read_text()
    held = result.heldout
    for text in (
        "library_name: transformers\n",
        result.headline,
        "| held-out examples | 40, seed 0 |",
        f"| intact | {held.intact_correct}/40 = 50.0 % |",
        "| without the heads | 24/40 = 60.0 % |",
        "**+10.0 percentage points**",
        f"| 95 % interval | {100 * held.ci_low:+.1f} to {100 * held.ci_high:+.1f} points |",
        f"| exact McNemar p | {held.p_value:.2g} |",
        "6 wrong answers became right, 2 right ones wrong",
        "selected on these examples; optimistic",
        "`arithmetic`",
        "`completion-6shot`",
        "`integer-match`",
        "The interval contains 0: chance explains the difference.",
        "| L0H1 | `model.layers.0.self_attn.o_proj.weight[:, 8:16]` |",
        "--seed 0",
        "cel-lens export run --to FOLDER",
    ):
        assert text in card, text
    strong = result_for(source, heldout=(14, 1))
    card = (export_ablated(source, "L0H1", tmp_path / "strong", evidence=strong) / "README.md").read_text()
    assert "chance explains" not in card


def test_a_card_without_evidence_claims_nothing(source: Path, tmp_path: Path) -> None:
    card = (export_ablated(source, "L0H1+L2H3", tmp_path / "target") / "README.md").read_text()
    assert "no search stands behind them" in card
    assert "points" not in card
    assert f"cel-lens export --model {source} --heads L0H1+L2H3 --to FOLDER" in card
    assert "General abilities were not measured" in card


def test_evidence_of_other_heads_or_weights_is_refused(source: Path, tmp_path: Path) -> None:
    result = result_for(source)
    with pytest.raises(InvalidInput, match="the evidence is about L0H1, not about L0H2"):
        export_ablated(source, "L0H2", tmp_path / "target", evidence=result)
    other = replace(result, provenance=replace(result.provenance, weights_digest="e" * 64))
    with pytest.raises(InvalidInput, match="the evidence was measured on other weights than those of"):
        export_ablated(source, "L0H1", tmp_path / "target", evidence=other)
    assert not any(tmp_path.iterdir())
