"""Attribution against derivatives measured by scaling heads, and against models where first order is exact."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from math import comb
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cel_lens.errors import InvalidInput
from cel_lens.evaluation import Evaluator
from cel_lens.evaluation.attribution import attribute
from cel_lens.heads import INTACT, Head, HeadSet, all_heads
from cel_lens.models import lens_of, load_model
from cel_lens.results import BeneficialHeads, HeadPrediction, Outcomes, SearchConfig
from cel_lens.search import find_beneficial_heads
from cel_lens.search.attribution import Selection, judge_selection
from cel_lens.tasks import get_task, make_panels
from tests.evaluation.toy_tasks import Choosing, Writing
from tests.models.planted import COPY, NameTheColour, Table, build_planted, sizes
from tests.models.tiny import tiny_model

ROWS = tuple(
    (f"the {one} and {one * 7 % 31}", (" is it", f" on {one}", " are not in it")) for one in range(5)
)
CHOOSING = Choosing(ROWS)
WRITING = Writing(tuple(f"the {one} and {one * 7 % 31} is" for one in range(6)), max_new_tokens=4)
MODELS = ("llama", "qwen2", "gpt2", "smollm3", "gemma2")

PLANTED: dict[str, Table] = {
    "L0H0": COPY,
    "L1H1": {"x": {"wrong": 9.0}},
    "L1H2": {"x": {"wrong": 1.0}, "o": {"wrong": 1.0}},
}


@contextmanager
def scaled(model: Any, head: Head, factor: float) -> Iterator[None]:
    """The head's output times a factor, by a hook of the test's own."""

    def scale(module: Any, inputs: Any, output: torch.Tensor) -> torch.Tensor:
        changed = output.clone()
        changed[:, :, head.index] *= factor
        return changed

    handle = lens_of(model).hook_z(head.layer).register_forward_hook(scale)
    try:
        yield
    finally:
        handle.remove()


def intact_of(model: Any, task: Any) -> Outcomes:
    return next(Evaluator(model, task, engine="reference").outcomes([INTACT], task.examples()))


def choice_margins(model: Any, task: Any) -> np.ndarray[Any, Any]:
    likelihoods = np.array([one.log_likelihoods for one in intact_of(model, task).details])
    return likelihoods[:, 0] - likelihoods[:, 1:].max(axis=1)


@pytest.mark.parametrize("family", MODELS)
def test_a_change_is_the_derivative_of_the_margin_by_the_heads_scale(family: str) -> None:
    model = tiny_model(family)
    found = attribute(lens_of(model), CHOOSING, CHOOSING.examples(), intact_of(model, CHOOSING))
    np.testing.assert_allclose(found.margins, choice_margins(model, CHOOSING), atol=1e-4)
    assert np.abs(found.changes).max() > 0.01
    for head in (Head(0, 0), Head(1, 3), Head(2, 1)):
        with scaled(model, head, 1.005):
            above = choice_margins(model, CHOOSING)
        with scaled(model, head, 0.995):
            below = choice_margins(model, CHOOSING)
        slope = (above - below) / 0.01
        np.testing.assert_allclose(found.changes[head.layer, head.index], -slope, rtol=5e-3, atol=5e-3)


@pytest.mark.parametrize("family", ["llama", "smollm3"])
def test_the_margin_of_a_right_text_is_that_of_its_closest_token(family: str) -> None:
    model = tiny_model(family)
    intact = intact_of(model, WRITING)
    evaluator = Evaluator(model, WRITING, engine="reference")
    found = attribute(lens_of(model), WRITING, WRITING.examples(), intact)
    right = np.array(intact.correct)
    assert right.any(), "no text is right, so nothing is compared"
    head = Head(1, 2)

    def margins() -> np.ndarray[Any, Any]:
        return np.array(evaluator.margins(WRITING.examples(), intact))[right]

    np.testing.assert_allclose(found.margins[right], margins(), atol=1e-4)
    with scaled(model, head, 1.002):
        above = margins()
    with scaled(model, head, 0.998):
        below = margins()
    np.testing.assert_allclose(found.changes[1, 2][right], (below - above) / 0.004, atol=1e-2)
    wrong = found.margins[~right]
    assert (np.isnan(wrong) | (wrong < 0)).all()


@pytest.mark.parametrize("generates", [True, False])
def test_where_first_order_is_exact_the_predictions_are_the_measurements(generates: bool) -> None:
    """In the planted model logits are linear in the heads' outputs."""
    task = NameTheColour(generates=generates)
    model = build_planted(PLANTED)
    config = SearchConfig(pool_size=2, max_heads=1, **sizes(task))
    exact = find_beneficial_heads(model, task, config, progress="silent")
    examples = [one for one in task.examples() if one.split == "discovery"]
    intact = next(Evaluator(model, task).outcomes([INTACT], examples))
    found = attribute(lens_of(model), task, examples, intact)
    assert found.n_without_margin == 0
    predicted = {one.head: (one.rescued, one.damaged) for one in found.ranking()}
    measured = {one.head: (one.rescued, one.damaged) for one in exact.screening}
    assert predicted[Head(1, 1)] == (5, 0)
    if not generates:  # without L0H0 all colours tie, and the first one is right for one "y"
        assert measured[Head(0, 0)] == (0, 9)
        measured[Head(0, 0)] = (0, 10)
    assert predicted == measured
    assert found.ranking()[0].head == Head(1, 1)


def test_a_change_of_generated_logits_is_what_removal_measures() -> None:
    """Linear logits again: the margin "colour less wrong" of each "x" falls and rises by hand."""
    task = NameTheColour()
    examples = [one for one in task.examples() if one.stratum == "x"]
    model = build_planted(PLANTED)
    intact = next(Evaluator(model, task).outcomes([INTACT], examples))
    found = attribute(lens_of(model), task, examples, intact)
    np.testing.assert_allclose(found.margins, (4 - 10) / 3, atol=1e-5)
    np.testing.assert_allclose(found.changes[1, 1], 9 / 3, atol=1e-5)
    np.testing.assert_allclose(found.changes[1, 2], 1 / 3, atol=1e-5)
    np.testing.assert_allclose(found.changes[0, 0], -4 / 3, atol=1e-5)
    assert not found.changes[0, 1:].any()


@pytest.mark.parametrize("family", ["llama", "smollm3"])
def test_nothing_is_left_on_the_model(family: str) -> None:
    model = tiny_model(family)
    intact = intact_of(model, CHOOSING)
    needs = [one.requires_grad for one in model.parameters()]
    hooks = [len(one._forward_hooks) for one in model.modules()]
    with torch.inference_mode():
        found = attribute(lens_of(model), CHOOSING, CHOOSING.examples(), intact)
    for one in model.parameters():
        one.requires_grad_(False)
    frozen = attribute(lens_of(model), CHOOSING, CHOOSING.examples(), intact)
    for one, before in zip(model.parameters(), needs, strict=True):
        one.requires_grad_(before)
    np.testing.assert_allclose(frozen.changes, found.changes, atol=1e-6)
    assert all(one.grad is None for one in model.parameters())
    handle = lens_of(model).hook_z(1).register_forward_hook(fail)
    with pytest.raises(RuntimeError, match="on purpose"):
        attribute(lens_of(model), CHOOSING, CHOOSING.examples(), intact)
    handle.remove()
    assert [len(one._forward_hooks) for one in model.modules()] == hooks


def fail(*_: Any) -> None:
    raise RuntimeError("on purpose")


@pytest.mark.parametrize("engine", ["sweep", "reference"])
def test_a_search_finds_the_planted_head_among_the_few_that_it_measures(engine: Any, tmp_path: Path) -> None:
    task = NameTheColour()
    config = SearchConfig(
        pool_size=2, max_heads=2, screening="attribution", attribution_top=2, engine=engine, **sizes(task)
    )
    result = find_beneficial_heads(
        build_planted(PLANTED), task, config, progress="silent", run_dir=tmp_path / "run"
    )
    assert str(result.heads) == "L1H1"
    assert (result.heldout.rescued, result.heldout.damaged) == (8, 0)
    found = result.attribution
    assert found is not None
    assert str(found.predictions[0].head) == "L1H1"
    assert (found.n_chosen, found.n_others, len(found.sample), len(found.not_evaluated)) == (2, 4, 1, 3)
    assert len(result.screening) == 3
    frame = result.to_frame().set_index("head")
    left = [str(one.head) for one in found.not_evaluated]
    assert len(frame) == 6
    assert list(frame.index[3:]) == left
    assert frame.loc[left, ["gain_points", "at_most_points"]].isna().all(axis=None)
    assert not frame.loc[left, "measured"].any()
    assert frame["predicted_points"].loc["L1H1"] == pytest.approx(100 * 5 / 15)
    again = find_beneficial_heads(
        build_planted(PLANTED), task, config, progress="silent", run_dir=tmp_path / "run"
    )
    assert (again.attribution, again.screening) == (found, result.screening)
    result.save(tmp_path / "saved")
    assert BeneficialHeads.load(tmp_path / "saved") == result


def test_measuring_everything_misses_nothing() -> None:
    task = NameTheColour()
    shared: dict[str, Any] = {"pool_size": 2, "max_heads": 2, **sizes(task)}
    model = build_planted(PLANTED)
    exact = find_beneficial_heads(model, task, SearchConfig(**shared), progress="silent")
    for how in ({"attribution_top": 6}, {"attribution_top": 2, "attribution_sample": 1.0}):
        config = SearchConfig(screening="attribution", **shared, **how)
        found = find_beneficial_heads(model, task, config, progress="silent")
        assert (found.screening, found.subsets) == (exact.screening, exact.subsets)
        assert found.attribution is not None
        assert (found.attribution.missed, found.attribution.missed_at_most) == (0, 0)
        assert found.attribution.not_evaluated == ()


def test_the_estimate_of_what_was_missed_is_the_one_worked_out_by_hand() -> None:
    heads = all_heads(30, 9)
    predictions = tuple(HeadPrediction(head=head, n=64, rescued=2, damaged=1) for head in heads)
    sample = heads[70:90]
    selection = Selection(predictions, 70, sample, 0)
    found = judge_selection(selection, [*heads[:8], *sample[:2]])
    assert found.missed == pytest.approx(2 / 20 * 180)
    assert found.recall == pytest.approx(8 / (10 + 18))
    none = judge_selection(selection, heads[:10])
    assert (none.missed, none.recall) == (0, 1)
    # no good head among 20 of 200: at most K with C(200 - K, 20) / C(200, 20) > 5 %
    most = max(k for k in range(181) if comb(200 - k, 20) / comb(200, 20) > 0.05)
    assert none.missed_at_most == most
    assert most == 26
    assert "at most 26" in str(none)
    assert found.missed_at_most > found.missed


@pytest.mark.parametrize(
    "settings",
    [
        {"attribution_top": 9},
        {"attribution_top": True},
        {"attribution_sample": 0},
        {"attribution_sample": 1.5},
        {"attribution_sample": float("nan")},
        {"screening": "guess"},
    ],
)
def test_settings_out_of_range_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match=r"attribution|screening"):
        SearchConfig(**settings)


def test_a_changed_record_is_refused_and_an_older_result_loads(tmp_path: Path) -> None:
    task = NameTheColour()
    config = SearchConfig(pool_size=2, max_heads=1, screening="attribution", attribution_top=2, **sizes(task))
    result = find_beneficial_heads(build_planted(PLANTED), task, config, progress="silent")
    result.save(tmp_path)
    file = tmp_path / "result.json"
    document = json.loads(file.read_text())
    for name, value in (("missed", 7), ("n_chosen", 5), ("sample", []), ("unknown", 1)):
        file.write_text(json.dumps(document | {"attribution": document["attribution"] | {name: value}}))
        with pytest.raises(InvalidInput, match=r"result\.json"):
            BeneficialHeads.load(tmp_path)
    del (
        document["attribution"],
        document["config"]["attribution_top"],
        document["config"]["attribution_sample"],
    )
    document["config"]["screening"] = "exhaustive"
    file.write_text(json.dumps(document))
    assert BeneficialHeads.load(tmp_path).attribution is None


@pytest.mark.slow
def test_predictions_rank_the_heads_of_a_real_model() -> None:
    """Recall on SmolLM2: of the five best of 27 heads, at least three are in the first third of the predictions."""
    from scipy.stats import spearmanr

    model = load_model("smollm2-135m-instruct")
    task = get_task("arithmetic")
    panel = make_panels(task.examples(), n_discovery=20, n_heldout=1).discovery
    evaluator = Evaluator(model, task)
    heads = all_heads(evaluator.lens.n_layers, evaluator.lens.n_heads, (10, 12, 14))
    outcomes = {
        one.heads: one for one in evaluator.outcomes([INTACT, *(HeadSet((h,)) for h in heads)], panel)
    }
    intact = outcomes.pop(INTACT)
    gains = {heads.heads[0]: sum(one.correct) - sum(intact.correct) for heads, one in outcomes.items()}
    found = [one for one in attribute(evaluator.lens, task, panel, intact).ranking() if one.head in gains]
    predicted = [one.rescued - one.damaged for one in found]
    assert spearmanr(predicted, [gains[one.head] for one in found]).statistic > 0.4
    bar = sorted(gains.values())[-5]
    first = [gains[one.head] >= bar for one in found[:9]]
    assert sum(first) >= 3
