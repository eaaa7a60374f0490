"""``cel-lens doctor``: the whole table, and an exit code that says how it ended."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from cel_lens import cli
from cel_lens.models.hooked import HookedLens
from tests.models.tiny import needs_hooked, tiny_folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_folder("qwen2", tmp_path_factory.mktemp("doctor"))


def doctor(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: object
) -> tuple[object, str, str]:
    monkeypatch.setattr(sys, "argv", ["cel-lens", "doctor", *map(str, words)])
    with pytest.raises(SystemExit) as end:
        cli.main()
    return end.value.code or 0, *capsys.readouterr()


@pytest.mark.parametrize(
    ("options", "head"),
    [
        pytest.param((), "hooked, float32", marks=needs_hooked),
        (("--backend", "bridge", "--dtype", "bfloat16"), "bridge, bfloat16"),
    ],
)
def test_a_sound_model(
    folder: Path,
    options: tuple[str, ...],
    head: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, out, err = doctor(monkeypatch, capsys, folder, "--device", "cpu", *options)
    lines = out.splitlines()
    assert (code, err) == (0, "")
    assert lines[0] == f"{folder}: {head}"
    assert [line.split()[-1] for line in lines[2:-1]] == ["passed"] * 12
    assert lines[-1] == "all 12 comparisons passed"


@needs_hooked
def test_a_model_that_differs(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = HookedLens.output_weights
    monkeypatch.setattr(HookedLens, "output_weights", lambda self, layer: real(self, layer).flip(0))
    code, out, err = doctor(monkeypatch, capsys, folder, "--device", "cpu")
    assert (code, err) == (1, "")
    assert out.count("FAILED") == 2
    assert out.splitlines()[-1] == "2 of 12 comparisons failed: do not trust results of this model here"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("no/such-folder-here/x",), "no/such-folder-here/x"),
        (("FOLDER", "--backend", "hoked"), "backend is auto, hooked or bridge, not 'hoked'"),
        (("FOLDER", "--dtype", "int8"), "dtype int8 cannot be used"),
    ],
)
def test_a_mistake_gets_one_sentence(
    folder: Path,
    words: tuple[str, ...],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, out, err = doctor(monkeypatch, capsys, *(folder if word == "FOLDER" else word for word in words))
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert message in err
