"""The search finds the conflict head of a model whose every weight was set by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cel_lens.conflict import ConflictRow, ConflictSetting, ConflictTask, fit_of, population, search_conflict
from cel_lens.tasks import make_panels
from tests.conflict.hand_set import hand_set, shape

HEADS = [(1, 1.5), (2, 1.1), (0, 1.0), (0, 0.0)]
"""The joint optimum (a/2, b, c) with one head for each feature: L0H2 is the conflict head, L0H3 does nothing."""


def setting_for(heads: list[tuple[int, float]], **changes: Any) -> ConflictSetting:
    return ConflictSetting(shape=shape(len(heads)), **changes)


def search(heads: list[tuple[int, float]], seed: int = 0) -> ConflictRow:
    setting = setting_for(heads)
    return search_conflict(hand_set(heads, setting), setting, seed)


def counts_by_hand(weights: tuple[float, float, float], which: str, seed: int) -> tuple[int, int, int]:
    """Right answers of the compromise, rescued and damaged by predicting ``weights x`` instead, on held-out."""
    setting = setting_for(HEADS)
    everything = population(setting)
    panels = make_panels(
        ConflictTask("A", seed, setting).examples(), n_discovery=128, n_heldout=384, seed=seed
    )
    rows = [one.fields["row"] for one in panels.heldout]
    right = everything.says_yes("A" if which == "A" else "B")[rows]
    before = everything.compromise[rows] == right
    after = ((everything.features @ np.array(weights)) > 0)[rows] == right
    return int(before.sum()), int((~before & after).sum()), int((before & ~after).sum())


def test_a_model_at_the_joint_optimum_answers_as_the_best_joint_prediction() -> None:
    setting = setting_for(HEADS)
    assert fit_of(hand_set(HEADS, setting), setting).compromise == 1


@pytest.mark.parametrize("seed", [0, 1])
def test_the_conflict_head_is_found_with_the_gain_and_the_damage_counted_by_hand(seed: int) -> None:
    row = search(HEADS, seed)
    assert str(row.chosen.heads) == "L0H2"
    for estimate, which in ((row.chosen.a, "A"), (row.chosen.b, "B")):
        counted = counts_by_hand((0, 1.5, 1.1), which, seed)
        assert (estimate.intact_correct, estimate.rescued, estimate.damaged) == counted
        assert estimate.n == 384
    assert row.chosen.a.ablated_correct == 384, "without the conflict head task A is solved"
    assert row.chosen.helps_a_hurts_b
    np.testing.assert_allclose(row.removed, (1, 0, 0), atol=1e-5)


def test_a_conflict_split_between_two_heads_is_found_whole() -> None:
    row = search([(0, 0.5), (1, 1.5), (2, 1.1), (0, 0.5)])
    assert str(row.chosen.heads) == "L0H0+L0H3"
    assert row.chosen.a.ablated_correct == 384


def test_other_sets_of_one_head_do_what_their_feature_makes_them_do() -> None:
    row = search(HEADS)
    found = {str(one.heads): (one.a.rescued, one.a.damaged) for one in row.random}
    assert set(found) == {"L0H0", "L0H1", "L0H3"}
    assert found["L0H0"] == counts_by_hand((1.0, 0.0, 1.1), "A", 0)[1:]  # without L0H1 some prompts are ties
    assert found["L0H3"] == (0, 0)
    assert not any(one.helps_a_hurts_b for one in row.random)


def test_at_the_optimum_no_removal_helps_both_tasks() -> None:
    row = search(HEADS)
    for removal in (row.chosen, *row.random):
        assert removal.a.gain + removal.b.gain <= 0


def test_a_model_that_ignores_the_shared_feature_has_nothing_to_remove() -> None:
    heads = [(1, 1.5), (2, 1.1), (0, 0.0)]
    row = search(heads)
    assert not row.found
    assert row.random == ()
    assert row.chosen.a.intact_correct == 384
    assert (row.chosen.a.gain, row.chosen.b.gain) == (0, 0)
    assert row.removed == (0, 0, 0)
