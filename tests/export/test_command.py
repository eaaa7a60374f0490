"""``cel-lens export``: the heads of a finished search, or heads named by hand."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from cel_lens import cli, zero_ablation
from cel_lens.models import load_model, model_facts
from tests.builders import build_result
from tests.models.tiny import prompt, tiny_folder


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_folder("qwen2", tmp_path_factory.mktemp("model") / "qwen2")


@pytest.fixture(scope="module")
def finished(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished search that chose L0H1 in this model."""
    digest = model_facts(load_model(model, device="cpu")).weights_digest
    result = build_result(n_layers=3, n_heads=4, model=str(model), weights_digest=digest)
    return result.save(tmp_path_factory.mktemp("run"))


def run(monkeypatch: pytest.MonkeyPatch, *words: object) -> object:
    monkeypatch.setattr(sys, "argv", ["cel-lens", "export", *map(str, words)])
    try:
        cli.main()
    except SystemExit as end:
        return end.code or 0
    return 0


def same(folder: Path, model: Path, heads: str) -> bool:
    """Whether an export equals the ablation of a model."""
    exported, original, tokens = load_model(folder, device="cpu"), load_model(model, device="cpu"), prompt(12)
    with zero_ablation(original, heads), torch.inference_mode():
        return torch.allclose(exported(tokens), original(tokens), atol=1e-4)


def test_the_heads_of_a_search(model, finished, tmp_path, monkeypatch, capsys):
    target = tmp_path / "target"
    assert run(monkeypatch, finished, "--to", target) == 0
    out = capsys.readouterr().out
    assert f"Checkpoint without L0H1: {target}\n" in out
    assert "Removing L0H1" in out
    assert same(target, model, "L0H1")
    assert not same(target, model, "L0H2")
    assert "+10.0 percentage points" in (target / "README.md").read_text()


def test_other_heads_get_no_evidence(model, finished, tmp_path, monkeypatch, capsys):
    for number, words in enumerate(
        ((finished, "--heads", "L2H0+L0H1"), ("--model", model, "--heads", "L0H1+L2H0"))
    ):
        target = tmp_path / str(number)
        assert run(monkeypatch, *words, "--to", target) == 0
        assert "no search stands behind these heads" in capsys.readouterr().out
        assert same(target, model, "L0H1+L2H0")
        assert "points" not in (target / "README.md").read_text()


def test_a_model_that_has_moved_is_named(model, finished, tmp_path, monkeypatch, capsys):
    moved = tmp_path / "moved"
    moved.symlink_to(model, target_is_directory=True)
    assert run(monkeypatch, finished, "--model", moved, "--to", tmp_path / "target") == 0
    other = tiny_folder("qwen2", tmp_path / "other", seed=1)
    assert run(monkeypatch, finished, "--model", other, "--to", tmp_path / "wrong") == 2
    assert "the evidence was measured on other weights than those of" in capsys.readouterr().err
    assert not (tmp_path / "wrong").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ("--to", "t"),
            "name the folder of a finished search, or a model with --model and heads with --heads",
        ),
        (("--to", "t", "--model", "MODEL"), "name the folder of a finished search, or a model"),
        (("--to", "t", "--model", "MODEL", "--heads", ""), "no head is named"),
        (("--to", "t", "--model", "MODEL", "--heads", "L9H9"), "L9H9 does not exist in this model"),
        (("--to", "t", "--model", "gpt5", "--heads", "L0H0"), "there is no model 'gpt5'"),
        (("--to", "MODEL", "--model", "MODEL", "--heads", "L0H0"), "is not empty"),
        (("absent", "--to", "t"), "absent holds no finished search: result.json is missing"),
        (("EMPTY", "--to", "t"), "this search found no beneficial heads, so there is nothing to remove"),
    ],
)
def test_mistakes_get_one_sentence(words, message, model, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    build_result({}, n_layers=3, n_heads=4, model=str(model)).save("empty-run")
    places = {"MODEL": str(model), "EMPTY": "empty-run"}
    assert run(monkeypatch, *(places.get(word, word) for word in words)) == 2
    ended = capsys.readouterr()
    assert message in ended.err
    assert ended.err.count("\n") == 1
    assert not Path("t").exists()


def test_an_interrupt_does_not_promise_to_go_on(model, tmp_path, monkeypatch, capsys):
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("cel_lens.export.checkpoint.write_zeros", interrupted)
    assert run(monkeypatch, "--model", model, "--heads", "L0H0", "--to", tmp_path / "target") == 130
    assert capsys.readouterr().err == "cel-lens: interrupted\n"
    assert not any(tmp_path.iterdir())
