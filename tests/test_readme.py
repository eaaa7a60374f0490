"""What the README says is true: its Python runs, its commands work, its files exist."""

from __future__ import annotations

import re
import shlex
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import typer

import cel_lens
from cel_lens.cli import app
from cel_lens.models import embedded
from cel_lens.results import BeneficialHeads, Outcomes, SearchConfig
from cel_lens.results.storage import to_json
from cel_lens.tasks import task_names
from tests.builders import build_result
from tests.models.tiny import tiny_model

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]

SMALL = {"n_discovery": 4, "n_heldout": 4, "pool_size": 2, "max_heads": 2}
SMALL_OPTIONS = {"--discovery": "4", "--heldout": "4", "--pool": "2", "--k": "2", "--n": "4"}


def commands(group: Any, prefix: str = "") -> dict[str, Any]:
    """Every command by its full name, those of command groups included."""
    found: dict[str, Any] = {}
    for name, one in group.commands.items():
        nested = commands(one, f"{name} ") if hasattr(one, "commands") else {name: one}
        found |= {f"{prefix}{full}": command for full, command in nested.items()}
    return found


COMMANDS = commands(typer.main.get_command(app))


def command_of(words: list[str]) -> Any:
    """The command that a call of ``cel-lens`` names."""
    return COMMANDS[words[1]] if words[1] in COMMANDS else COMMANDS[" ".join(words[1:3])]


def blocks(language: str, text: str = README) -> list[str]:
    """The code blocks of one language."""
    return re.findall(rf"^```(?:{language})\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def lines(program: str, text: str = README) -> list[list[str]]:
    """The calls of one program in the shell blocks, comments left out."""
    found = [
        shlex.split(line, comments=True) for block in blocks("sh|bash", text) for line in block.splitlines()
    ]
    return [words for words in found if words and words[0] == program]


LIBRARY, OWN_TASK = blocks("python")


@pytest.fixture
def small(monkeypatch, tmp_path):
    """Searches take small panels, whatever the README asks for, and write to a temporary folder."""

    def config(**options: Any) -> SearchConfig:
        asked = SearchConfig(**options)  # the README's own settings are valid
        return SearchConfig(**{**options, **SMALL, "seed": asked.seed})

    monkeypatch.setattr(cel_lens, "SearchConfig", config, raising=False)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def tiny(monkeypatch):
    """Every name loads a tiny random model."""
    model = tiny_model("llama", max_position_embeddings=512)

    def load(source: Any, **_: Any) -> Any:
        assert source in (embedded.EMBEDDED_NAME, model)
        return model

    for home in ("cel_lens", "cel_lens.models", "cel_lens.evaluation.evaluator"):
        monkeypatch.setattr(f"{home}.load_model", load, raising=False)


def check_library(names: dict[str, Any]) -> None:
    result, outcomes = names["result"], names["outcomes"]
    assert isinstance(result, BeneficialHeads)
    assert BeneficialHeads.load("run") == result
    assert isinstance(outcomes, Outcomes)
    assert outcomes.n == 50
    assert names["logits"].ndim == 3


def check_own_task(names: dict[str, Any]) -> None:
    result, task = names["result"], names["NextLetter"]()
    assert result.provenance.task == "next-letter"
    assert result.heldout.n == SMALL["n_heldout"]
    last = task.examples()[-1]
    assert (last.prompt, last.target) == ("y", "z")
    written = cel_lens.Generation(text=" z.")
    assert task.judge(last, written) == cel_lens.Verdict(correct=True, answer="z")
    assert task.judge(last, cel_lens.Generation(text="")) == cel_lens.Verdict(correct=False, answer=None)


CHECKS = pytest.mark.parametrize(
    ("block", "check"), [(LIBRARY, check_library), (OWN_TASK, check_own_task)], ids=["library", "own task"]
)


def run(block: str) -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": "readme"}
    exec(compile(block, "README.md", "exec"), names)
    return names


@CHECKS
@pytest.mark.usefixtures("small", "tiny")
def test_python_runs_with_a_tiny_model(block, check):
    check(run(block))


@CHECKS
@pytest.mark.slow
@pytest.mark.usefixtures("small")
def test_python_runs_as_written_with_the_embedded_model(block, check):
    check(run(block))


def test_own_task_takes_ten_lines():
    (body,) = re.findall(r"^class NextLetter:\n(.*?)^(?=\S)", OWN_TASK, re.MULTILINE | re.DOTALL)
    assert len([line for line in f"class\n{body}".splitlines() if line.strip()]) <= 10


@pytest.mark.usefixtures("tiny")
def test_commands_run_in_the_order_of_the_readme(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    calls = lines("cel-lens")
    assert [words[1] for words in calls] == ["search", "evaluate", "report"]
    for words in calls:
        smaller = [SMALL_OPTIONS.get(before, word) for before, word in pairwise(words)]
        app(smaller, standalone_mode=False)
    assert "Gain" in capsys.readouterr().out
    promised = re.findall(
        r"`(\w+\.\w+)`", README.partition("`search` leaves")[2].partition(" in the folder")[0]
    )
    assert set(promised) == {"report.html", "result.json", "outcomes.npz", "heads.csv"}
    assert set(promised) <= {path.name for path in (tmp_path / "run").iterdir()}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_options_and_targets_exist(document):
    text = document.read_text(encoding="utf-8")
    for words in lines("cel-lens", text):
        known = {option for one in command_of(words).params for option in one.opts}
        assert {word for word in words if word.startswith("--")} <= known | {"--help"}
    for command, option in re.findall(r"`cel-lens (\w+) (--[\w-]+)", text):
        assert option in {name for one in COMMANDS[command].params for name in one.opts} | {"--help"}
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    assert {words[1] for words in lines("make", text)} | set(re.findall(r"`make ([\w-]+)", text)) <= targets
    mentioned = set(re.findall(r"`(--[\w-]+)", text))
    every_option = {option for one in COMMANDS.values() for param in one.params for option in param.opts}
    assert mentioned <= every_option | {"--help", "--no-deps"}


def test_make_commands_of_the_readme_run_in_continuous_integration():
    ci = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    for words in lines("make"):
        assert f"step make {words[1]}" in ci


def test_the_makefile_calls_the_command_line_that_exists():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    recipe = makefile.partition("cel-lens search")[2].partition("\n\n")[0]
    known = {option for one in COMMANDS["search"].params for option in one.opts}
    assert set(re.findall(r"--[\w-]+", recipe)) <= known
    assert f"EMBEDDED := {lines('pip')[1][-1]}\n" in makefile
    assert shlex.join(lines("pip")[1]) == embedded._INSTALL
    assert "install --disable-pip-version-check -c constraints.txt" in makefile


def test_every_public_name_is_in_the_api_reference():
    text = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    assert sorted(re.findall(r"^\.\. auto\w+:: (\w+)$", text, re.MULTILINE)) == sorted(cel_lens.__all__)


def test_the_readme_lists_the_tasks_that_exist():
    table = README.partition("## Tasks")[2].partition("\n## ")[0]
    assert re.findall(r"^\| `(\w+)` ", table, re.MULTILINE) == list(task_names())


def test_every_option_and_field_is_documented():
    command_line = (ROOT / "docs" / "command-line.md").read_text(encoding="utf-8")
    options = {option for param in COMMANDS["search"].params for option in param.opts}
    assert options == set(re.findall(r"^\| `(--[\w-]+)`", command_line, re.MULTILINE))
    for name, command in COMMANDS.items():
        assert f"\n## {name}\n" in command_line
        assert {option for param in command.params for option in param.opts if option[:2] == "--"} <= set(
            re.findall(r"`(--[\w-]+)`", command_line)
        )
    files = (ROOT / "docs" / "files.md").read_text(encoding="utf-8")
    named = set(re.findall(r"[a-z_]+", " ".join(re.findall(r"`([^`]*)`", files))))
    result = build_result()
    document = to_json(result)
    fields = {*document, *document["heldout"], *document["provenance"], *document["subsets"][0]}
    assert fields | set(result.to_frame().columns) <= named


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(document):
    for target in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", document.read_text(encoding="utf-8")):
        assert target.startswith("https://") or (document.parent / target).exists(), target


def test_pins_meet_the_requirements_of_the_package():
    import tomllib

    from packaging.requirements import Requirement

    lines_of_pins = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = dict(line.split("==") for line in lines_of_pins if not line.startswith("#"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    asked = [*project["dependencies"], *extras["test"], *extras["lint"], *extras["docs"]]
    for requirement in map(Requirement, asked):
        assert requirement.specifier.contains(pins[requirement.name.lower().replace("_", "-")]), requirement
    assert (pins["torch"], pins["transformer-lens"][:4]) == ("2.13.0", "3.9.")
    assert pins["transformers"] < "5.24"
