"""Every supported family, by every path: one table, and the proof that each line of it can fail."""

from __future__ import annotations

import copy
import re
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from cel_lens.errors import InvalidInput
from cel_lens.evaluation.sweep import why_not_sweep
from cel_lens.models import lens_of, load_model, parity_report
from cel_lens.models.backends import has_hooked
from cel_lens.models.bridge import BridgeLens
from cel_lens.models.hooked import HookedLens
from cel_lens.models.layers import HookedLayers
from cel_lens.models.parity import PARITY_BOUNDS, ParityReport, ParityRow
from cel_lens.models.quiet import quiet
from tests.models.tiny import (
    BRIDGE_ONLY,
    FAMILIES,
    LLAMA3_ROPE,
    PARITY_CASES,
    needs_hooked,
    tiny_folder,
    tiny_hf,
    tiny_model,
)

INTACT = "intact logits = transformers"
SLICES = "each head: hook_z zeroed = slice zeroed in transformers"
ROWS = "each head: hook_z zeroed = rows of W_O zeroed"
SETS = SLICES.replace("each head", "sets of heads")
SET_ROWS = ROWS.replace("each head", "sets of heads")
CACHED = "cached decoding = uncached, logits"
CACHED_TOKENS = CACHED.replace("logits", "tokens")
BEHIND = "cached decoding behind padding = uncached, logits"
BEHIND_TOKENS = BEHIND.replace("logits", "tokens")
PADDED = "left padding = none"
BATCH = "batch = single prompts"
LAYERED = "layers one by one = forward pass"
EVERY = (
    INTACT,
    SLICES,
    ROWS,
    SETS,
    SET_ROWS,
    CACHED,
    CACHED_TOKENS,
    BEHIND,
    BEHIND_TOKENS,
    PADDED,
    BATCH,
    LAYERED,
)


def backends_of(family: str) -> tuple[str, ...]:
    return ("hooked", "bridge") if has_hooked() and family in FAMILIES else ("bridge",)


SUITE = [(name, one) for name, (family, _) in PARITY_CASES.items() for one in backends_of(family)]


def report_on(
    family: str, backend: str = "auto", *, layers: tuple[int, ...] = (1,), **changes: Any
) -> ParityReport:
    model = tiny_model(family, backend=backend, **changes)
    return parity_report(model, reference=tiny_hf(family, **changes), layers=layers)


def failed(report: ParityReport) -> set[str]:
    return {row.check for row in report.rows if not row.passed}


# --- the suite ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "backend"), SUITE)
def test_a_family_is_exact_in_float32(name: str, backend: str) -> None:
    family, changes = PARITY_CASES[name]
    report = report_on(family, backend, layers=(0, 1, 2), **changes)
    assert report.passed, str(report)
    assert tuple(row.check for row in report.rows) == EVERY, "a comparison was left out"
    assert report.notes == ()
    assert {row.bound for row in report.rows} == {1e-4, 0}
    assert (report.backend, report.dtype) == (backend, "float32")


@pytest.mark.slow
@pytest.mark.parametrize(("name", "backend"), SUITE)
def test_a_family_stays_within_the_bound_of_bfloat16(name: str, backend: str, tmp_path: Path) -> None:
    family, changes = PARITY_CASES[name]
    folder = tiny_folder(family, tmp_path / "m", **changes)
    report = parity_report(folder, dtype="bfloat16", device="cpu", backend=backend)  # type: ignore[arg-type]
    assert report.passed, str(report)
    assert tuple(row.check for row in report.rows) == EVERY
    assert report.dtype == "bfloat16"


def test_the_suite_covers_every_family_of_the_tiny_models() -> None:
    assert {family for family, _ in PARITY_CASES.values()} == {*FAMILIES, *BRIDGE_ONLY}


@needs_hooked
def test_the_page_on_models_lists_what_the_suite_runs() -> None:
    page = Path(__file__).parents[2].joinpath("docs/models.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| ([^|]+) \| (hooked(?:, bridge)?|bridge) \| (.*) \|$", page, re.MULTILINE)
    expected = []
    for name, (family, changes) in PARITY_CASES.items():
        reasons = {
            why_not_sweep(lens_of(tiny_model(family, backend=backend, **changes)))
            for backend in backends_of(family)
        }
        (reason,) = reasons
        sweeps = "yes" if reason is None else f"no: {reason}"
        expected.append((name, ", ".join(backends_of(family)), sweeps))
    assert listed == expected


# --- each comparison notices a fault --------------------------------------------------------------


@pytest.mark.parametrize(
    ("family", "changes", "wrong"),
    [
        ("smollm3", {}, {"no_rope_layers": [1, 1, 1]}),
        (
            "llama",
            {"rope_parameters": LLAMA3_ROPE},
            {"rope_parameters": {**LLAMA3_ROPE, "rope_type": "default"}},
        ),
        ("gemma2", {}, {"attn_logit_softcapping": 50.0}),
        ("gemma2", {}, {"final_logit_softcapping": 30.0}),
        ("gemma2", {}, {"sliding_window": 64}),
        ("gemma3", {}, {"sliding_window": 64}),
        ("mistral", {"sliding_window": 8}, {"sliding_window": None}),
        ("gpt_neox", {}, {"use_parallel_residual": False}),
    ],
)
def test_another_architecture_is_noticed(family: str, changes: dict[str, Any], wrong: dict[str, Any]) -> None:
    report = parity_report(
        tiny_model(family, **changes), reference=tiny_hf(family, **{**changes, **wrong}), layers=[1]
    )
    assert {INTACT, SLICES, SETS} <= failed(report)
    assert not {ROWS, SET_ROWS, CACHED, PADDED, BATCH, LAYERED} & failed(report), "these need no transformers"


@needs_hooked
@pytest.mark.parametrize("family", ["qwen2", "gpt2", "gpt_neox"])
def test_folded_value_biases_are_noticed_though_the_intact_model_is_equal(
    family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = copy.deepcopy(tiny_model(family, backend="hooked"))
    with quiet():
        model.load_and_process_state_dict(
            model.state_dict(), fold_ln=False, center_writing_weights=False, center_unembed=False,
            fold_value_biases=True, refactor_factored_attn_matrices=False,
        )  # fmt: skip
    monkeypatch.setattr("cel_lens.models.checks.check_value_biases", lambda model, name: None)
    report = parity_report(model, reference=tiny_hf(family))
    assert failed(report) == {SLICES, SETS}


@pytest.mark.parametrize("backend", backends_of("qwen2"))
def test_a_removal_that_does_nothing_or_hits_another_head_is_noticed(
    backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from cel_lens.heads import Head, HeadSet
    from cel_lens.models import parity_checks

    real = parity_checks.ablate

    @contextmanager
    def none(lens: Any, heads: HeadSet) -> Any:
        yield

    def neighbour(lens: Any, heads: HeadSet) -> Any:
        return real(lens, HeadSet.of([Head(one.layer, (one.index + 1) % 4) for one in heads]))

    for fault in (none, neighbour):
        monkeypatch.setattr(parity_checks, "ablate", fault)
        assert {SLICES, ROWS, SETS, SET_ROWS, LAYERED} <= failed(report_on("qwen2", backend))


def patch_residual(monkeypatch: pytest.MonkeyPatch, backend: str, fault: Any) -> None:
    lens = HookedLens if backend == "hooked" else BridgeLens
    real = lens.residual
    monkeypatch.setattr(
        lens,
        "residual",
        lambda self, tokens, mask, cache=None: fault(lambda *given: real(self, *given), tokens, mask, cache),
    )


@pytest.mark.parametrize("backend", backends_of("qwen2"))
def test_a_cache_that_is_off_by_one_is_noticed(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def short(real: Any, tokens: Any, mask: Any, cache: Any) -> Any:
        if cache is None or tokens.shape[1] == 1:
            return real(tokens, mask, cache)
        return real(tokens[:, :-1], mask[:, :-1], cache)

    patch_residual(monkeypatch, backend, short)
    assert failed(report_on("qwen2", backend)) == {CACHED, CACHED_TOKENS, BEHIND, BEHIND_TOKENS}


@pytest.mark.parametrize("backend", backends_of("qwen2"))
def test_padding_that_is_attended_is_noticed(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def unmasked(real: Any, tokens: Any, mask: Any, cache: Any) -> Any:
        return real(tokens, torch.ones_like(mask), cache)

    patch_residual(monkeypatch, backend, unmasked)
    assert failed(report_on("qwen2", backend)) - {BEHIND_TOKENS} == {BEHIND, PADDED}


@pytest.mark.parametrize("backend", backends_of("qwen2"))
def test_rows_that_mix_are_noticed(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def mixed(real: Any, tokens: Any, mask: Any, cache: Any) -> Any:
        found = real(tokens, mask, cache)
        return found + 0.1 * (found - found[:1])

    patch_residual(monkeypatch, backend, mixed)
    assert BATCH in failed(report_on("qwen2", backend))
    assert not {CACHED, BEHIND} & failed(report_on("qwen2", backend)), "they have one row"


@needs_hooked
def test_a_step_that_differs_from_the_forward_pass_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    real = HookedLayers.finish
    monkeypatch.setattr(
        HookedLayers, "finish", lambda self, layer, residual, z: real(self, layer, residual, 1.01 * z)
    )
    assert failed(report_on("llama", "hooked")) == {LAYERED}


@pytest.mark.parametrize("backend", backends_of("llama"))
def test_weights_of_another_head_are_noticed(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    lens = HookedLens if backend == "hooked" else BridgeLens
    real = lens.output_weights
    monkeypatch.setattr(lens, "output_weights", lambda self, layer: real(self, layer).flip(0))
    assert failed(report_on("llama", backend)) == {ROWS, SET_ROWS}


def test_numbers_that_are_not_finite_do_not_pass() -> None:
    assert not ParityRow(check="x", error=float("nan"), bound=1).passed
    assert not ParityRow(check="x", error=float("inf"), bound=1).passed
    assert ParityRow(check="x", error=0, bound=0).passed


# --- the report itself ----------------------------------------------------------------------------


def test_the_model_is_left_as_it_was() -> None:
    for backend in backends_of("gpt2"):
        model, hf = tiny_model("gpt2", backend=backend), tiny_hf("gpt2")
        hooks = [len(part._forward_pre_hooks) for part in hf.modules()]
        before = {name: weight.clone() for name, weight in model.state_dict().items()}
        report_on("gpt2", backend)
        assert all(torch.equal(before[name], weight) for name, weight in model.state_dict().items())
        assert [len(part._forward_pre_hooks) for part in hf.modules()] == hooks


def test_an_edited_model_is_not_its_checkpoint(tmp_path: Path) -> None:
    model = load_model(tiny_folder("llama", tmp_path / "m"), device="cpu")
    assert parity_report(model).passed
    with torch.no_grad():
        lens_of(model).output_weights(1)[2] *= 1.1
    assert failed(parity_report(model)) == {INTACT, SLICES, SETS}


def test_a_model_without_a_checkpoint_is_compared_with_itself_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    model = copy.deepcopy(tiny_model("qwen3"))  # a copy is an object of its own
    report = parity_report(model)
    assert report.passed
    assert [row.check for row in report.rows] == [one for one in EVERY if "transformers" not in one]
    assert report.notes == (
        "transformers, because load_model did not make this model, so its checkpoint is not known (give reference)",
    )
    assert f"not compared: {report.notes[0]}" in str(report)


def test_what_cannot_be_run_layer_by_layer_is_said() -> None:
    report = report_on("llama", rope_parameters={"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0})
    assert report.passed
    assert LAYERED not in {row.check for row in report.rows}
    assert "length-dependent rotation" in report.notes[0]


def test_a_family_whose_heads_lie_nowhere_known_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    from cel_lens.models.projections import PROJECTIONS

    monkeypatch.delitem(PROJECTIONS, "llama")
    report = report_on("llama")
    assert report.passed
    assert not {SLICES, SETS} & {row.check for row in report.rows}
    assert "is of the kind llama" in report.notes[0]


def test_the_table() -> None:
    report = report_on("llama")
    frame = report.to_frame()
    assert list(frame.columns) == ["check", "error", "bound", "passed"]
    assert list(frame["check"]) == list(EVERY)
    assert frame["passed"].all()
    lines = str(report).splitlines()
    assert len(lines) == 2 + len(EVERY)
    assert all(line.endswith("passed") for line in lines[2:])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"layers": [3]}, "layers are whole numbers from 0 to 2"),
        ({"layers": []}, "layers are whole numbers"),
        ({"n_tokens": 4}, "n_tokens is a whole number from 8"),
        ({"n_tokens": 257}, "n_tokens is a whole number from 8 to the model's 256"),
    ],
)
def test_arguments_without_meaning_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        parity_report(tiny_model("llama"), **given)


def test_every_precision_that_loads_has_a_bound() -> None:
    from cel_lens.models.loading import _DTYPES

    assert set(PARITY_BOUNDS) == set(_DTYPES)
