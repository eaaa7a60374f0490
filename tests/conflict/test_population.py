"""The two tasks conflict exactly as stated; everything is counted over all prompts, in whole numbers."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cel_lens.conflict import ConflictSetting, ConflictTask, population
from cel_lens.conflict.population import MEANINGS
from cel_lens.errors import InvalidInput
from cel_lens.tasks import ChoiceScores, check_task

WHOLE = np.rint(MEANINGS * np.sqrt(7.5)).astype(int)
TRIPLES = list(product(range(8), repeat=3))

# Targets (a, b, c) = (2, 1.5, 1.1) in tenths, without the common factor of the meanings.
EVIDENCE_A = [15 * WHOLE[1, j] + 11 * WHOLE[2, k] for _, j, k in TRIPLES]
EVIDENCE_B = [20 * WHOLE[0, i] + 15 * WHOLE[1, j] + 11 * WHOLE[2, k] for i, j, k in TRIPLES]
JOINT = [10 * WHOLE[0, i] + 15 * WHOLE[1, j] + 11 * WHOLE[2, k] for i, j, k in TRIPLES]


def test_the_meanings_are_standardised_and_uncorrelated() -> None:
    assert all(sorted(row) == [-4, -3, -2, -1, 1, 2, 3, 4] for row in WHOLE.tolist())
    np.testing.assert_allclose(MEANINGS @ MEANINGS.T / 8, np.eye(3), atol=1e-12)
    np.testing.assert_allclose(MEANINGS.mean(axis=1), 0, atol=1e-12)


def test_the_features_are_independent() -> None:
    x = population(ConflictSetting()).features
    np.testing.assert_allclose(x.T @ x / len(x), np.eye(3), atol=1e-12)
    assert len(np.unique(x.round(9), axis=0)) == 512


def test_the_right_answers_and_the_compromise_are_those_of_the_theory() -> None:
    found = population(ConflictSetting())
    for name, evidence, says_yes in (
        ("A", EVIDENCE_A, found.says_yes("A")),
        ("B", EVIDENCE_B, found.says_yes("B")),
        ("w* = (a/2, b, c)", JOINT, found.compromise),
    ):
        assert 0 not in evidence
        assert says_yes.tolist() == [one > 0 for one in evidence] * 2, name  # once for each cue


def test_where_the_compromise_is_wrong_for_one_task_it_is_right_for_the_other() -> None:
    found = population(ConflictSetting())
    wrong_a = found.compromise != found.says_yes("A")
    wrong_b = found.compromise != found.says_yes("B")
    assert not (wrong_a & wrong_b).any()
    assert (wrong_a | wrong_b).tolist() == (found.says_yes("A") != found.says_yes("B")).tolist()
    counted = [
        sum((j > 0) != (one > 0) for j, one in zip(JOINT, task, strict=True))
        for task in (EVIDENCE_A, EVIDENCE_B)
    ]
    assert [int(wrong_a.sum()), int(wrong_b.sum())] == [2 * counted[0], 2 * counted[1]]
    assert counted == [92, 64], "of 512: the compromise is 82.0 % right on A and 87.5 % right on B"


@settings(max_examples=50, deadline=None)
@given(
    st.tuples(*[st.floats(-3, 3).map(lambda x: round(x, 3))] * 3),
    st.tuples(*[st.floats(-3, 3).map(lambda x: round(x, 3))] * 3),
)
def test_without_a_cue_the_best_joint_answer_is_the_sign_of_the_mean_targets(
    a: tuple[float, float, float], b: tuple[float, float, float]
) -> None:
    try:
        found = population(ConflictSetting(targets_a=a, targets_b=b))
    except InvalidInput:
        return  # some prompt lies exactly between
    joint = found.features @ (np.array(a) + np.array(b))
    assert (found.compromise == (joint > 0)).all()


def test_a_cue_that_always_tells_the_task_ends_the_conflict() -> None:
    found = population(ConflictSetting(cue=1.0))
    east = found.cue == 0
    assert (found.compromise[east] == found.says_yes("A")[east]).all()
    assert (found.compromise[~east] == found.says_yes("B")[~east]).all()


def test_the_conflict_shrinks_as_the_cue_grows() -> None:
    missed = []
    for cue in (0.5, 0.6, 0.7, 0.8, 0.9, 1.0):
        found = population(ConflictSetting(cue=cue))
        weight = np.where(found.cue == 0, cue, 1 - cue)  # how often task A has that prompt
        missed.append(float((weight * (found.compromise != found.says_yes("A"))).sum() / weight.sum()))
    assert missed == sorted(missed, reverse=True)
    assert missed[0] == 92 / 512
    assert missed[-1] == 0


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_any_change_of_the_compromise_that_helps_a_hurts_b_by_at_least_as_much(seed: int) -> None:
    found = population(ConflictSetting())
    a, b, before = found.says_yes("A"), found.says_yes("B"), found.compromise
    flipped = np.random.default_rng(seed).random(len(a)) < 0.2
    after = before ^ flipped
    change_a = int((after == a).sum()) - int((before == a).sum())
    change_b = int((after == b).sum()) - int((before == b).sum())
    assert change_a + change_b == -2 * int((flipped & (a == b)).sum())


def test_targets_that_leave_a_prompt_undecided_are_refused() -> None:
    with pytest.raises(InvalidInput, match="between yes and no"):
        population(ConflictSetting(targets_a=(0, 1.5, 1.0)))  # 1.5 * 2 = 1.0 * 3


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"cue": 0.4}, "cue"),
        ({"targets_a": (0.0, 0.0, 0.0)}, "targets_a"),
        ({"targets_b": (1.0, float("nan"), 0.0)}, "targets_b"),
        ({"optimizer": "lion"}, "optimizer"),
        ({"learning_rate": 0.0}, "learning_rate"),
        ({"steps": 0}, "steps"),
        ({"n_discovery": 200, "n_heldout": 400}, "512"),
    ],
)
def test_settings_out_of_range_are_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        ConflictSetting(**change)  # type: ignore[arg-type]


def test_the_tasks_have_the_same_prompts_and_other_answers() -> None:
    a, b = ConflictTask("A", 3).examples(), ConflictTask("B", 3).examples()
    assert [one.id for one in a] == [one.id for one in b]
    assert [one.prompt for one in a] == [one.prompt for one in b]
    assert len({one.prompt for one in a}) == len({one.id for one in a}) == 512
    for task, examples, evidence in (("A", a, EVIDENCE_A), ("B", b, EVIDENCE_B)):
        assert check_task(ConflictTask(task)).name == f"conflict-{task.lower()}"  # type: ignore[arg-type]
        assert [one.target for one in examples] == ["yes" if one > 0 else "no" for one in evidence]


def test_cues_are_as_frequent_as_stated() -> None:
    for cue in (0.5, 0.8, 1.0):
        setting = ConflictSetting(cue=cue)
        for which, expected in (("A", cue), ("B", 1 - cue)):
            prompts = [one.prompt for one in ConflictTask(which, 1, setting).examples()]  # type: ignore[arg-type]
            east = sum(prompt.startswith("east") for prompt in prompts) / 512
            assert abs(east - expected) <= 4 * np.sqrt(cue * (1 - cue) / 512)  # four standard deviations


def test_the_likelier_answer_counts_and_a_tie_is_yes() -> None:
    task = ConflictTask("A")
    example = next(one for one in task.examples() if one.target == "yes")
    for scores, correct, flags in (
        ((-1.0, -2.0), True, ()),
        ((-2.0, -1.0), False, ()),
        ((-1.0, -1.0), True, ("tie",)),
    ):
        verdict = task.judge(example, ChoiceScores(log_likelihoods=scores, greedy=(True, False)))
        assert (verdict.correct, verdict.flags) == (correct, flags)
    with pytest.raises(InvalidInput, match="'A' or 'B'"):
        ConflictTask("C")  # type: ignore[arg-type]
