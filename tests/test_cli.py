"""The command line: a mistake gets one sentence and exit code 2; a search leaves its files."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from cel_lens import cli
from cel_lens.models import load_model, zero_ablation
from cel_lens.results import BeneficialHeads
from cel_lens.search import find_beneficial_heads
from tests.models.tiny import tiny_folder, tiny_tokenizer

BEST = "L0H2"


class Ended(NamedTuple):
    code: int
    out: str
    err: str


Run = Callable[..., Ended]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run the command in this process as its entry point does."""

    def command(*words: object) -> Ended:
        capsys.readouterr()
        monkeypatch.setattr(sys, "argv", ["cel-lens", *map(str, words)])
        code: Any = 0
        try:
            cli.main()
        except SystemExit as end:
            code = end.code or 0
        return Ended(code, *capsys.readouterr())

    return command


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a tiny random model of three layers with four heads, which answers in digits."""
    folder = tiny_folder("qwen2", tmp_path_factory.mktemp("model"), max_position_embeddings=512)
    weights = load_file(folder / "model.safetensors")
    weights["lm_head.weight"][tiny_tokenizer().convert_tokens_to_ids(list("0123456789"))] *= 9
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


@pytest.fixture(scope="module")
def rows(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Right is what the model answers without L0H2, so removing that head rescues and damages nothing."""
    path = tmp_path_factory.mktemp("rows") / "sums.jsonl"
    contexts = [f"Question: What is {a} plus {b}?\nAnswer:" for a in range(10, 30) for b in range(10)]
    loaded = load_model(model, device="cpu")
    with zero_ablation(loaded, BEST), torch.inference_mode():
        digits = [loaded.tokenizer.decode(loaded(one)[0, -1].argmax().item()) for one in contexts]
    lines = [{"context": one, "completion": digit} for one, digit in zip(contexts, digits, strict=True)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


SMALL = (
    "--layers",
    "0",
    "--discovery",
    "12",
    "--heldout",
    "20",
    "--k",
    "2",
    "--pool",
    "3",
    "--device",
    "cpu",
)


def search_words(model: Path, rows: Path, out: Path) -> tuple[object, ...]:
    task = ("--task", "arithmetic", "--style", "lm-eval", "--data", rows)
    return ("search", "--model", model, *task, "--out", out, *SMALL)


# Mistakes.

WRONG: list[tuple[tuple[str, ...], str]] = [
    (("evaluate", "--heads", "L3"), "'L3' is not a head: write L<layer>H<head>, for example L3H7"),
    (
        ("evaluate", "--heads", "L3H0"),
        "L3H0 does not exist in this model: it has layers 0-2 with query heads 0-3",
    ),
    (("evaluate", "--heads", "L0H0+L0H0"), "a head is named twice"),
    (("evaluate", "--heads", "L0H0", "--task", "arithmetics"), "did you mean 'arithmetic'"),
    (("evaluate", "--heads", "L0H0", "--style", "x"), "style is 'completion', 'chat' or 'lm-eval', not 'x'"),
    (("evaluate", "--heads", "L0H0", "--model", "gpt5"), "there is no model 'gpt5': the nearest names are"),
    (("evaluate", "--heads", "L0H0", "--model", "./absent"), "there is no folder './absent'"),
    (("evaluate", "--heads", "L0H0", "--data", "absent.jsonl"), "there is no file absent.jsonl"),
    (
        ("evaluate", "--heads", "L0H0", "--data", "no-column.jsonl"),
        "no-column.jsonl, line 1: column 'context' is missing",
    ),
    (("evaluate", "--heads", "L0H0", "--data", "bad.jsonl"), "bad.jsonl, line 2: not JSON"),
    (("evaluate", "--heads", "L0H0", "--split", "test"), "a split is 'discovery' or 'heldout', not 'test'"),
    (("evaluate", "--heads", "L0H0", "--n", "0"), "n is a whole number from 1, not 0"),
    (("evaluate", "--heads", "L0H0", "--n", "999999"), "999999 examples were asked for, but the task has"),
    (("evaluate", "--heads", "L0H0", "--dtype", "int8"), "dtype int8 cannot be used"),
    (("evaluate", "--heads", "L0H0", "--device", "abacus"), "there is no device 'abacus'"),
    (
        ("evaluate", "--heads", "L0H0", "--engine", "steam"),
        "--engine is sweep or reference, not 'steam'",
    ),
    (
        ("search", "--out", "out", "--layers", "a-b"),
        "'a-b' is not a selection of layers: write for example 0-5",
    ),
    (
        ("search", "--out", "out", "--layers", "0-7"),
        "layer 3 does not exist in this model: it has layers 0-2",
    ),
    (("search", "--out", "out", "--layers", "1"), "pool_size=10 is larger than the 4 heads to screen"),
    (("search", "--out", "out", "--k", "11"), "max_heads=11 is larger than the pool of 10 heads"),
    (("search", "--out", "out", "--discovery", "0"), "n_discovery is a whole number from 1, not 0"),
    (("search", "--out", "out", "--heldout", "99999"), "ask for fewer"),
    (("search", "--out", "occupied"), "occupied cannot be used (File exists)"),
    (("search", "--out", "/proc/nowhere"), "/proc/nowhere cannot be used"),
    (("report", "absent"), "absent holds no finished search: result.json is missing"),
    (("report", "occupied"), "the result in occupied cannot be read"),
]


@pytest.mark.parametrize(("words", "message"), WRONG)
def test_a_mistake_gets_one_sentence_and_exit_code_2(
    run: Run,
    model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    Path("occupied").write_text("a file")
    Path("no-column.jsonl").write_text('{"question": "x", "completion": "1"}\n')
    Path("bad.jsonl").write_text('{"context": "x", "completion": "1"}\n{"context"\n')
    usual = () if words[0] == "report" else ("--model", str(model), "--task", "arithmetic", "--device", "cpu")
    kept = [pair for pair in zip(usual[::2], usual[1::2], strict=True) if pair[0] not in words]
    ended = run(*words, *(word for pair in kept for word in pair))
    assert ended.code == 2
    assert message in ended.err
    assert ended.err.startswith("cel-lens: ")
    assert ended.err.count("\n") == 1, "one line"
    assert "Traceback" not in ended.err
    assert ended.out == "", "no figures before the mistake is named"
    assert not Path("out").exists()


def test_missing_and_unknown_options_are_named(run: Run) -> None:
    for words, name in ((("search", "--task", "x"), "--model"), (("report", "--deep", "x"), "--deep")):
        ended = run(*words)
        assert ended.code == 2
        assert name in re.sub(r"\x1b\[[0-9;]*m", "", ended.err)


def test_help_lists_the_commands(run: Run) -> None:
    ended = run("--help")
    assert ended.code == 0
    for name in ("search", "evaluate", "report"):
        assert name in ended.out


def test_an_interrupt_ends_with_a_sentence_and_its_own_code(
    run: Run, model: Path, rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("cel_lens.search.find_beneficial_heads", interrupted)
    ended = run(*search_words(model, rows, tmp_path / "out"))
    assert ended.code == 130
    assert "interrupted; what is finished is kept, and the same command goes on" in ended.err
    assert "Traceback" not in ended.err
    assert ended.out == ""


def test_the_installed_entry_point_shows_no_traceback(tmp_path: Path) -> None:
    code = "from cel_lens.cli import main; main()"
    command = [sys.executable, "-W", "error", "-c", code, "report", str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert ended.returncode == 2
    assert ended.stderr == (
        f"cel-lens: {tmp_path} holds no finished search: result.json is missing "
        "(a search writes result.json and outcomes.npz when it ends)\n"
    )


# A search from beginning to end.


@pytest.fixture(scope="module")
def finished(model: Path, rows: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Ended]:
    """A finished search and what it printed, in a process of its own."""
    out = tmp_path_factory.mktemp("search") / "new" / "folder"
    code = "from cel_lens.cli import main; main()"
    words = [str(word) for word in search_words(model, rows, out)]
    ended = subprocess.run(
        [sys.executable, "-W", "error", "-c", code, *words],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    return out, Ended(ended.returncode, ended.stdout, ended.stderr)


def arrays(folder: Path) -> dict[str, bytes]:
    with np.load(folder / "outcomes.npz", allow_pickle=False) as found:
        return {name: found[name].tobytes() for name in found.files}


def figures(text: str) -> str:
    """What was printed, without clock times."""
    return re.sub(r"Time .*\n", "", text)


def test_a_search_leaves_its_files_and_prints_what_they_say(finished: tuple[Path, Ended]) -> None:
    out, ended = finished
    assert ended.code == 0, ended.err
    names = {"result.json", "outcomes.npz", "heads.csv", "report.html", "journal.jsonl"}
    assert names <= {path.name for path in out.iterdir()}
    result = BeneficialHeads.load(out)
    held = result.heldout
    assert str(result.heads) == BEST
    assert held.rescued > 0 == held.damaged
    assert held.ablated_correct == held.n, "by the construction of the rows"
    assert f"Chosen heads     {BEST}\n" in ended.out
    assert result.headline in ended.out
    assert f"Intact           {held.intact_correct}/20" in ended.out
    assert f"Ablated          {held.ablated_correct}/20" in ended.out
    assert f"p = {held.p_value:.2g}" in ended.out
    assert "selected on these examples; optimistic" in ended.out
    assert "Screened         4 of 12 heads, then 6 subsets of the best 3" in ended.out
    assert str(out / "report.html") in ended.out
    assert len((out / "heads.csv").read_text().splitlines()) == 1 + 4
    assert {one.head.layer for one in result.screening} == {0}


def test_a_search_says_how_far_it_is(finished: tuple[Path, Ended]) -> None:
    lines = finished[1].err.splitlines()
    for stage, total in (("screening", 5), ("joint search", 7), ("held-out", 2)):
        assert f"{stage}: 0/{total}" in lines
        assert any(line.startswith(f"{stage}: {total}/{total} (") for line in lines)
    assert all(re.match(r"(screening|joint search|held-out): \d+/\d+", line) for line in lines), lines


def test_the_same_search_again_only_reads_its_folder(
    run: Run, model: Path, rows: Path, finished: tuple[Path, Ended], monkeypatch: pytest.MonkeyPatch
) -> None:
    from cel_lens.evaluation import Evaluator

    out, first = finished
    before = {name: (out / name).read_bytes() for name in ("journal.jsonl", "heads.csv")}
    outcomes = arrays(out)

    def engine(*_: object) -> None:
        raise AssertionError("the model was asked again")

    monkeypatch.setattr(Evaluator, "engine", engine)
    again = run(*search_words(model, rows, out))
    assert again.code == 0, again.err
    assert figures(again.out) == figures(first.out)
    assert {name: (out / name).read_bytes() for name in before} == before
    assert arrays(out) == outcomes


def test_another_search_in_the_folder_is_refused(
    run: Run, model: Path, rows: Path, finished: tuple[Path, Ended]
) -> None:
    ended = run(*search_words(model, rows, finished[0]), "--seed", "1")
    assert ended.code == 2
    assert "holds another run: config.seed, panels, prompts" in ended.err.replace("answers, ", "")
    assert ended.err.count("\n") == 1


def test_report_writes_the_page_again(run: Run, finished: tuple[Path, Ended]) -> None:
    out, first = finished
    page = (out / "report.html").read_text()
    (out / "report.html").unlink()
    ended = run("report", out)
    assert ended.code == 0
    assert (out / "report.html").read_text() == page
    summary = figures(first.out).partition("Report:")[0]
    assert figures(ended.out) == f"{summary}Report: {out / 'report.html'}\n"


def test_evaluate_prints_the_counts_of_the_search(
    run: Run, model: Path, rows: Path, finished: tuple[Path, Ended]
) -> None:
    result = BeneficialHeads.load(finished[0])
    single = result.screening[-1]
    usual = ("evaluate", "--model", model, "--task", "arithmetic", "--style", "lm-eval", "--data", rows)
    ended = run(*usual, "--heads", single.head, "--split", "discovery", *SMALL[2:6])
    assert ended.code == 0, ended.err
    intact = result.discovery.intact_correct
    ablated = intact + single.rescued - single.damaged
    lines = ended.out.splitlines()
    assert lines[0].startswith(f"intact: {intact}/12 = {100 * intact / 12:.1f} % (arithmetic, lm-eval, acc")
    assert lines[1].startswith(f"{single.head}: {ablated}/12 = ")
    assert lines[2].startswith(
        f"gain {100 * single.gain:+.1f} points ({single.rescued} rescued, {single.damaged} damaged;"
    )
    assert len(lines) == 3


def test_evaluate_of_the_intact_model_prints_one_line(run: Run, model: Path, rows: Path) -> None:
    usual = ("evaluate", "--model", model, "--task", "arithmetic", "--style", "lm-eval", "--data", rows)
    ended = run(*usual, "--heads", "intact", "--n", "5", "--device", "cpu", "--engine", "reference")
    assert ended.code == 0, ended.err
    assert re.fullmatch(r"intact: \d/5 = \d+\.0 % \(arithmetic, lm-eval, acc.*\)\n", ended.out)


def test_a_folder_and_a_task_name_are_enough_in_python(model: Path) -> None:
    from cel_lens import SearchConfig

    config = SearchConfig(n_discovery=3, n_heldout=4, pool_size=2, max_heads=1, layers=(2,))
    result = find_beneficial_heads(str(model), "arithmetic", config, progress="silent")
    assert (result.discovery.n, result.heldout.n, len(result.screening)) == (3, 4, 4)
    assert result.provenance.model == str(model)
    assert result.provenance.protocol == "completion-6shot"
