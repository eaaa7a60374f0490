"""The run around the numbers: resuming, refusing, freezing, reporting progress."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import cel_lens.runtime.journal
from cel_lens.errors import EvaluationError, InvalidInput, ModelLoadError, RunFolderError, UnsupportedModel
from cel_lens.evaluation.reference import ReferenceEngine
from cel_lens.evaluation.sweep import SweepEngine
from cel_lens.results import BeneficialHeads, SearchConfig
from cel_lens.search import find_beneficial_heads
from cel_lens.tasks import Choose, Example, Generate, Panels, make_panels
from tests.models.planted import COPY, NameTheColour, Table, build_planted, sizes

TASK = NameTheColour(discovery={"o": 3, "x": 2, "y": 1}, heldout={"o": 3, "x": 3})
TABLES: dict[str, Table] = {
    "L0H0": COPY,
    "L0H2": {"y": {"wrong": 6.0}},
    "L1H1": {"x": {"wrong": 9.0}, "y": {"wrong": -5.0}},
}
CONFIG = SearchConfig(
    pool_size=3, max_heads=2, n_finalists=2, batch_size=4, engine="reference", **sizes(TASK)
)
ENGINES: dict[str, type] = {"reference": ReferenceEngine, "sweep": SweepEngine}
FILES = ("journal.jsonl", "outcomes.npz", "heads.csv")


@pytest.fixture(scope="module")
def model() -> Any:
    return build_planted(TABLES)


def search(model: Any, folder: Path | None = None, **changes: Any) -> BeneficialHeads:
    given = {"task": TASK, "config": CONFIG, "progress": "silent"} | changes
    result = find_beneficial_heads(model, given.pop("task"), given.pop("config"), run_dir=folder, **given)
    if folder is not None:
        result.save(folder)
    return result


def same(a: BeneficialHeads, b: BeneficialHeads) -> bool:
    """Equal in everything but clock times."""
    plain = [replace(one, provenance=replace(one.provenance, started="", seconds={})) for one in (a, b)]
    return plain[0] == plain[1]


def content(folder: Path) -> dict[str, bytes]:
    found = {name: (folder / name).read_bytes() for name in FILES if name != "outcomes.npz"}
    with np.load(folder / "outcomes.npz", allow_pickle=False) as arrays:
        found |= {name: arrays[name].tobytes() + str(arrays[name].dtype).encode() for name in arrays.files}
    return found


def finish(model: Any, folder: Path, config: SearchConfig) -> SimpleNamespace:
    result = search(model, folder, config=config)
    lines = (folder / "journal.jsonl").read_bytes().splitlines(keepends=True)
    return SimpleNamespace(folder=folder, result=result, lines=lines, content=content(folder), config=config)


@pytest.fixture(scope="module")
def finished(model: Any, tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """A finished run with the reference engine."""
    return finish(model, tmp_path_factory.mktemp("finished"), CONFIG)


@pytest.fixture(scope="module", params=ENGINES)
def each(model: Any, tmp_path_factory: pytest.TempPathFactory, request: Any) -> SimpleNamespace:
    """A finished run with each engine."""
    return finish(model, tmp_path_factory.mktemp("each"), replace(CONFIG, engine=request.param))


class Spy:
    """Counts what every engine does with a model: embedding tokens."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from transformer_lens.components import Embed

        self.passes = 0
        original = Embed.forward

        def forward(module: Any, tokens: Any) -> Any:
            self.passes += 1
            return original(module, tokens)

        monkeypatch.setattr(Embed, "forward", forward)


class Recorder:
    """A progress object that writes down what it is told, and may stop the run."""

    def __init__(self, stop_after: int | None = None, error: type[BaseException] = KeyboardInterrupt) -> None:
        self.stages: list[tuple[str, int]] = []
        self.steps: list[tuple[str, str, str]] = []
        self.entered = self.left = 0
        self._stop_after, self._error = stop_after, error

    def __enter__(self) -> Recorder:
        self.entered += 1
        return self

    def __exit__(self, *_: object) -> None:
        self.left += 1

    def stage(self, name: str, total: int) -> None:
        self.stages.append((name, total))

    def advance(self, label: str, note: str = "") -> None:
        self.steps.append((self.stages[-1][0], label, note))
        if len(self.steps) == self._stop_after:
            raise self._error


# Resuming.


def test_the_journal_holds_every_condition_once(each: SimpleNamespace) -> None:
    keys = [json.loads(line)["key"] for line in each.lines[1:]]
    singles = [f"discovery/L{layer}H{index}" for layer in range(2) for index in range(3)]
    pairs = ["discovery/L0H1+L0H2", "discovery/L0H1+L1H1", "discovery/L0H2+L1H1"]
    stages = [
        {"discovery/intact", *singles},
        {"discovery/intact repeated"},
        set(pairs),
        {"frozen choice"},
        {"heldout/intact", "heldout/L0H2+L1H1"},
    ]
    for stage in stages:
        assert set(keys[: len(stage)]) == stage
        del keys[: len(stage)]
    assert keys == []


@pytest.mark.parametrize("torn", [False, True])
@pytest.mark.parametrize("kept", range(16))
def test_a_run_killed_after_any_record_goes_on_to_the_same_bytes(
    model: Any, each: SimpleNamespace, tmp_path: Path, kept: int, torn: bool
) -> None:
    assert len(each.lines) == 15
    prefix = b"".join(each.lines[:kept])
    if torn:
        rest = each.lines[kept] if kept < 15 else b'{"key":"mor\n'
        prefix += rest[: len(rest) // 2]
    (tmp_path / "journal.jsonl").write_bytes(prefix)
    result = search(model, tmp_path, config=each.config)
    assert content(tmp_path) == each.content
    assert same(result, each.result)


@pytest.mark.parametrize("kept", [1, 5, 9, 13])
def test_a_resumed_run_measures_only_what_is_missing(
    model: Any, each: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: int
) -> None:
    (tmp_path / "journal.jsonl").write_bytes(b"".join(each.lines[:kept]))
    measured = []
    engine = ENGINES[each.config.engine]
    original = engine.evaluate

    def evaluate(self: Any, head_sets: Any, places: Any = None) -> Iterator[Any]:
        for outcomes in original(self, head_sets, places):
            measured.append(outcomes.heads.label)
            yield outcomes

    monkeypatch.setattr(engine, "evaluate", evaluate)
    search(model, tmp_path, config=each.config)
    keys = [json.loads(line)["key"] for line in each.lines[kept:]]
    expected = [key.split("/")[1].removesuffix(" repeated") for key in keys if "/" in key]
    assert measured == expected


def test_a_finished_run_is_read_back_without_any_model_work(
    model: Any, each: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    spy = Spy(monkeypatch)
    result = search(model, each.folder, config=each.config)
    assert spy.passes == 0
    assert same(result, each.result)
    assert content(each.folder) == each.content
    search(model, config=each.config)
    assert spy.passes > 0, "the spy sees what the engine does"


def test_both_engines_give_the_same_result(
    model: Any, finished: SimpleNamespace, each: SimpleNamespace
) -> None:
    changed = replace(each.result, config=CONFIG, provenance=finished.result.provenance)
    assert changed == finished.result
    assert each.result.provenance.engine == each.config.engine


def test_a_run_without_a_folder_gives_the_same_result(model: Any, finished: SimpleNamespace) -> None:
    assert same(search(model), finished.result)


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
@pytest.mark.parametrize("steps", [1, 4, 7, 9, 13, 15])
def test_an_interrupted_run_leaves_a_folder_that_goes_on(
    model: Any, each: SimpleNamespace, tmp_path: Path, steps: int, error: type[BaseException]
) -> None:
    recorder = Recorder(stop_after=steps, error=error)
    with pytest.raises(error):
        search(model, tmp_path, config=each.config, progress=recorder)
    assert (recorder.entered, recorder.left) == (1, 1)
    assert sum(len(module._forward_hooks) for module in model.modules()) == 0
    assert torch.is_grad_enabled()
    search(model, tmp_path, config=each.config)
    assert content(tmp_path) == each.content


def test_an_interrupt_inside_the_model_loses_only_the_running_condition(
    finished: SimpleNamespace, tmp_path: Path
) -> None:
    model = build_planted(TABLES)
    passes = []

    def interrupt(*_: Any) -> None:
        passes.append(1)
        if len(passes) == 9:
            raise KeyboardInterrupt

    handle = model.blocks[1].attn.hook_z.register_forward_hook(interrupt)
    with pytest.raises(KeyboardInterrupt):
        search(model, tmp_path)
    handle.remove()
    # six discovery examples in batches of four: two passes a condition, so the ninth is in the fifth
    assert (tmp_path / "journal.jsonl").read_bytes() == b"".join(finished.lines[:5])
    search(model, tmp_path)
    assert content(tmp_path) == finished.content


# Folders that belong to something else.


def other_model(**changes: Table) -> Any:
    return build_planted(TABLES | changes)


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        (
            {"config": replace(CONFIG, max_heads=1)},
            "config.max_heads differs (config.max_heads was 2, now 1)",
        ),
        ({"config": replace(CONFIG, batch_size=8)}, "config.batch_size differs"),
        (
            {"config": replace(CONFIG, layers=(0, 1))},
            "config.layers differs (config.layers was null, now [0, 1])",
        ),
        ({"config": replace(CONFIG, seed=1)}, "config.seed"),
        ({"config": replace(CONFIG, n_discovery=5)}, "config.n_discovery"),
        ({"task": replace(TASK, name="other")}, 'task differs (task was "name-the-colour", now "other")'),
        ({"task": replace(TASK, protocol="other")}, "protocol differs"),
        ({"task": replace(TASK, metric="other")}, "metric differs"),
        ({"task": replace(TASK, generates=False)}, "answers differs"),
        ({"model": other_model(L1H0={"o": {"wrong": 0.5}})}, "weights differs"),
        ({"model": copy.deepcopy(build_planted(TABLES)).to(torch.float64)}, "dtype"),
    ],
)
def test_a_folder_of_another_run_is_refused_with_the_difference(
    model: Any, finished: SimpleNamespace, changes: dict[str, Any], names: str
) -> None:
    before = content(finished.folder)
    with pytest.raises(RunFolderError) as caught:
        search(changes.pop("model", model), finished.folder, **changes)
    assert names in str(caught.value)
    assert "holds another run" in str(caught.value)
    assert "give a new folder" in str(caught.value)
    assert content(finished.folder) == before


class Amended(NameTheColour):
    """The same prompts, another thing about them."""

    def __init__(self, **changes: Any) -> None:
        super().__init__(discovery=TASK.discovery, heldout=TASK.heldout)
        object.__setattr__(self, "changes", changes)

    def examples(self) -> tuple[Example, ...]:
        kept = {name: value for name, value in self.changes.items() if name in ("target", "fields")}  # type: ignore[attr-defined]
        return tuple(replace(one, **kept) for one in super().examples())

    def request(self, example: Example) -> Generate | Choose:
        kept = {name: value for name, value in self.changes.items() if name not in ("target", "fields")}  # type: ignore[attr-defined]
        return replace(super().request(example), **kept)


@pytest.mark.parametrize(
    "changes", [{"target": "red"}, {"fields": {"tests": ["a"]}}, {"max_new_tokens": 2}, {"stop": ("x",)}]
)
def test_a_folder_is_not_continued_when_answers_or_requests_have_changed(
    model: Any, finished: SimpleNamespace, changes: dict[str, Any]
) -> None:
    search(model, finished.folder, task=Amended())
    with pytest.raises(RunFolderError, match="holds another run"):
        search(model, finished.folder, task=Amended(**changes))


def test_other_versions_are_named(
    model: Any, finished: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cel_lens.search.provenance.version", lambda name: "9.9")
    with pytest.raises(RunFolderError, match=r"versions\.numpy.*versions\.torch.* differ"):
        search(model, finished.folder)


def test_a_record_of_another_panel_is_refused(model: Any, finished: SimpleNamespace, tmp_path: Path) -> None:
    lines = list(finished.lines)
    entry = json.loads(lines[3])
    entry["record"]["correct"] = entry["record"]["correct"][:-1]
    lines[3] = json.dumps(entry).encode() + b"\n"
    (tmp_path / "journal.jsonl").write_bytes(b"".join(lines))
    with pytest.raises(RunFolderError, match="record of L0H1 is damaged"):
        search(model, tmp_path)


def test_another_frozen_choice_is_refused_before_held_out_is_run(
    model: Any, finished: SimpleNamespace, tmp_path: Path
) -> None:
    lines = list(finished.lines[:13])
    entry = json.loads(lines[12])
    assert entry["key"] == "frozen choice"
    entry["record"]["heads"] = "L1H1"
    lines[12] = json.dumps(entry).encode() + b"\n"
    (tmp_path / "journal.jsonl").write_bytes(b"".join(lines))
    with pytest.raises(RunFolderError, match=r"frozen in this run folder was L1H1, but now .* L0H2\+L1H1"):
        search(model, tmp_path)
    assert b'"heldout/' not in (tmp_path / "journal.jsonl").read_bytes()


def test_a_second_run_in_a_working_folder_is_refused_at_once(
    model: Any, finished: SimpleNamespace, tmp_path: Path
) -> None:
    class Second(Recorder):
        refused = 0

        def advance(self, label: str, note: str = "") -> None:
            with pytest.raises(RunFolderError, match="another process is working in"):
                search(model, tmp_path)
            self.refused += 1

    progress = Second()
    search(model, tmp_path, progress=progress)
    assert progress.refused == 7 + 7 + 2
    assert content(tmp_path) == finished.content


def test_a_folder_that_cannot_be_made_is_refused(model: Any, tmp_path: Path) -> None:
    (tmp_path / "occupied").write_text("a file")
    for folder in (tmp_path / "occupied", tmp_path / "occupied" / "below"):
        with pytest.raises(RunFolderError, match=r"occupied.* cannot be used"):
            search(model, folder)


# Freezing.


@pytest.mark.parametrize("engine", ENGINES)
def test_the_choice_is_written_down_before_held_out_is_run(
    model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: Any
) -> None:
    events: list[str] = []
    put, evaluate = cel_lens.runtime.journal.FileJournal.put, ENGINES[engine].evaluate

    def spy_put(self: Any, key: str, record: Any) -> None:
        put(self, key, record)
        assert json.dumps(key) in (tmp_path / "journal.jsonl").read_text()
        events.append(f"wrote {key}")

    def spy_evaluate(self: Any, head_sets: Any, places: Any = None) -> Iterator[Any]:
        side = self._examples[0].id.split("/")[0]
        for outcomes in evaluate(self, head_sets, places):
            events.append(f"ran {side}")
            yield outcomes

    monkeypatch.setattr(cel_lens.runtime.journal.FileJournal, "put", spy_put)
    monkeypatch.setattr(ENGINES[engine], "evaluate", spy_evaluate)
    search(model, tmp_path, config=replace(CONFIG, engine=engine))
    frozen = events.index("wrote frozen choice")
    assert "ran heldout" not in events[:frozen]
    assert "ran discovery" not in events[frozen:]
    assert events[frozen:].count("ran heldout") == 2


def test_the_freeze_digest_depends_on_choice_and_examples(model: Any, finished: SimpleNamespace) -> None:
    again = search(model)
    assert again.provenance.freeze_digest == finished.result.provenance.freeze_digest
    fewer = search(model, config=replace(CONFIG, n_finalists=1))
    assert fewer.finalists == finished.result.finalists[:1]
    assert fewer.provenance.freeze_digest != finished.result.provenance.freeze_digest


# Order of completion.


class Scattered:
    """Does jobs one by one or in groups, in another order, and hands the outcomes over in yet another."""

    def __init__(self, group: int) -> None:
        self._group = group

    def run(self, work: Callable[[tuple[Any, ...]], Iterable[Any]], jobs: tuple[Any, ...]) -> Iterator[Any]:
        backwards = jobs[::-1]
        groups = [backwards[start : start + self._group] for start in range(0, len(jobs), self._group)]
        done = [outcome for group in groups for outcome in work(group)]
        yield from done[1::2]
        yield from done[::2]


@pytest.mark.parametrize("group", [1, 2, 100])
def test_the_order_of_completion_does_not_matter(
    model: Any, each: SimpleNamespace, tmp_path: Path, group: int
) -> None:
    result = search(model, tmp_path, config=each.config, executor=Scattered(group))
    assert same(result, each.result)
    assert (tmp_path / "heads.csv").read_bytes() == each.content["heads.csv"]
    assert sorted((tmp_path / "journal.jsonl").read_bytes().splitlines(keepends=True)) == sorted(each.lines)
    assert same(search(model, tmp_path, config=each.config), each.result), "and it is read back"


# Progress.


def test_progress_is_told_every_step(model: Any, tmp_path: Path) -> None:
    for _ in range(2):  # from scratch, then all from the journal
        recorder = Recorder()
        search(model, tmp_path, progress=recorder)
        assert recorder.stages == [("screening", 7), ("joint search", 7), ("held-out", 2)]
        labels = {
            name: [label for stage, label, _ in recorder.steps if stage == name]
            for name, _ in recorder.stages
        }
        assert sorted(labels["screening"]) == sorted(
            ["intact", *(f"L{layer}H{index}" for layer in range(2) for index in range(3))]
        )
        assert len(labels["joint search"]) == 7
        assert sorted(labels["held-out"]) == ["L0H2+L1H1", "intact"]
        assert (recorder.entered, recorder.left) == (1, 1)


def test_progress_notes_the_best_gain_so_far(model: Any) -> None:
    recorder = Recorder()
    search(model, progress=recorder)
    notes = {label: note for stage, label, note in recorder.steps if stage == "screening"}
    assert notes["intact"] == ""
    assert notes["L0H0"] == "best so far -66.7 points (L0H0)"
    assert notes["L1H2"] == "best so far +16.7 points (L1H1)"  # two rescued, one damaged of six
    assert recorder.steps[-1] == ("held-out", "L0H2+L1H1", "best so far +50.0 points (L0H2+L1H1)")


# What cannot be searched.


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"pool_size": 7},
            r"pool_size=7 is larger than the 6 heads to screen \(2 layers with 3 heads each\)",
        ),
        (
            {"pool_size": 4, "layers": (1,)},
            r"larger than the 3 heads to screen \(1 layers with 3 heads each\)",
        ),
        ({"layers": (0, 2)}, "layer 2 does not exist in this model: it has layers 0-1"),
        ({"n_discovery": 7}, "ask for fewer"),
    ],
)
def test_a_search_that_does_not_fit_the_model_is_refused_before_it_begins(
    model: Any, tmp_path: Path, changes: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    spy = Spy(monkeypatch)
    with pytest.raises(InvalidInput, match=message):
        search(model, tmp_path / "run", config=replace(CONFIG, **changes))
    assert spy.passes == 0
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_damaged_model_is_refused(tmp_path: Path, value: float) -> None:
    model = build_planted(TABLES)
    with torch.no_grad():
        model.blocks[1].attn.W_O[2, 3, 4] = value
    with pytest.raises(ModelLoadError, match=r"blocks\.1\.attn\.W_O"):
        search(model, tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("other", [torch.nn.Linear(2, 2), 7, None])
def test_what_is_no_model_is_refused(other: Any) -> None:
    with pytest.raises((UnsupportedModel, InvalidInput)):
        search(other)


@pytest.mark.parametrize("generates", [True, False])
@pytest.mark.parametrize("engine", ENGINES)
def test_a_model_that_answers_differently_a_second_time_is_refused(engine: Any, generates: bool) -> None:
    model = build_planted(TABLES)

    class Drift(Recorder):
        def advance(self, label: str, note: str = "") -> None:
            super().advance(label, note)
            if len(self.steps) == 7:  # all is screened; the intact model is asked once more
                with torch.no_grad():
                    model.blocks[0].attn.W_O[0] *= -1.001

    task = replace(TASK, generates=generates)
    with pytest.raises(EvaluationError, match="differently a second time"):
        search(model, task=task, config=replace(CONFIG, engine=engine), progress=Drift())


def test_panels_that_overlap_are_refused() -> None:
    one, two = (Example(id=name, prompt="red o ?", target="red", group="g") for name in "ab")
    with pytest.raises(InvalidInput, match="stand in both"):
        Panels(discovery=(one,), heldout=(one,))
    with pytest.raises(InvalidInput, match="one group"):
        Panels(discovery=(one,), heldout=(two,))


# Small and special searches.


def test_own_panels_are_used_as_they_are(model: Any) -> None:
    examples = NameTheColour().examples()
    panels = Panels(discovery=examples[10:13] + examples[:2], heldout=examples[20:18:-1])
    result = search(model, panels=panels)
    assert result.discovery_outcomes.example_ids == tuple(one.id for one in panels.discovery)
    assert result.heldout_outcomes.example_ids == tuple(one.id for one in panels.heldout)
    assert (result.config.n_discovery, result.config.n_heldout) == (5, 2)
    assert (result.discovery.n, result.heldout.n) == (5, 2)
    # three "x" are wrong when intact, two "o" right
    assert (result.discovery.intact_correct, result.discovery.rescued) == (2, 3)


def test_one_example_in_each_panel_is_enough(model: Any) -> None:
    task = NameTheColour(discovery={"x": 1}, heldout={"x": 1})
    result = search(model, task=task, config=replace(CONFIG, **sizes(task)))
    assert str(result.heads) == "L1H1"
    assert (result.heldout.n, result.heldout.rescued, result.heldout.gain, result.heldout.p_value) == (
        1,
        1,
        1,
        1,
    )


def test_a_model_of_one_layer_and_head_is_enough() -> None:
    model = build_planted({"L0H0": {"x": {"wrong": 1.0}, **COPY}}, n_layers=1, n_heads=1)
    task = NameTheColour(discovery={"o": 2}, heldout={"o": 2})
    config = SearchConfig(pool_size=1, max_heads=1, **sizes(task))
    result = search(model, task=task, config=config)
    assert not result.found
    assert (result.screening[0].rescued, result.screening[0].damaged) == (0, 2)


def test_only_the_chosen_layers_are_screened(model: Any) -> None:
    result = search(model, config=replace(CONFIG, layers=(1,)))
    assert {one.head.layer for one in result.screening} == {1}
    assert str(result.heads) == "L1H1"


def test_the_batch_size_does_not_change_the_verdicts(model: Any, finished: SimpleNamespace) -> None:
    for batch_size in (1, 100):
        result = search(model, config=replace(CONFIG, batch_size=batch_size))
        assert result.discovery_outcomes == finished.result.discovery_outcomes
        assert result.heldout_outcomes == finished.result.heldout_outcomes


def test_heads_without_output_are_named_in_the_provenance() -> None:
    model = build_planted(TABLES)
    with torch.no_grad():
        model.blocks[0].attn.W_V[1] = 0
    assert search(model).provenance.inactive == ("L0H1",)


def test_flags_of_intact_and_ablated_runs_stand_side_by_side(model: Any) -> None:
    provenance = search(model).provenance
    capped = {"capped": 6}  # one token, never an end
    assert provenance.discovery_flags == {"intact": capped, "ablated": capped}
    assert set(provenance.heldout_flags) == {"intact", "ablated"}


def test_the_panels_of_a_search_are_those_of_make_panels(model: Any, finished: SimpleNamespace) -> None:
    panels = make_panels(TASK.examples(), n_discovery=6, n_heldout=6, seed=0)
    assert finished.result.discovery_outcomes.example_ids == tuple(one.id for one in panels.discovery)
    assert finished.result.heldout_outcomes.example_ids == tuple(one.id for one in panels.heldout)


def test_stages_are_timed(finished: SimpleNamespace) -> None:
    seconds = finished.result.provenance.seconds
    assert list(seconds) == ["screening", "joint search", "held-out"]
    assert all(value >= 0 for value in seconds.values())
