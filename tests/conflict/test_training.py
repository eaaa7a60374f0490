"""A trained model reaches the compromise, and the seed alone decides it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from cel_lens.conflict import ConflictSetting, ConflictTask, fit_of, population, train_conflict_model
from cel_lens.errors import EvaluationError
from cel_lens.evaluation import evaluate_heads
from cel_lens.models.small import SmallShape

SETTING = ConflictSetting(steps=250)


@pytest.fixture(scope="module")
def model() -> Any:
    return train_conflict_model(SETTING, 0)


def test_the_trained_model_answers_as_the_compromise_up_to_what_its_loss_allows(model: Any) -> None:
    fit = fit_of(model, SETTING)
    # The loss is nearly the least possible. A model that knows nothing has log 2 - entropy = 0.18 too much; one
    # that treats the features additively, as one layer of attention does best, has about 0.0005.
    untold = np.log(2) - population(SETTING).entropy
    assert 0 < fit.excess_loss < 0.01 * untold
    # Where a model says otherwise than p, it loses at least 2 (p - 1/2)^2 nats (Pinsker), so the prompts
    # answered otherwise are few and close to 1/2.
    task = ConflictTask("A", 0, SETTING)
    everything, rows = population(SETTING), list(task.rows())
    scores = np.array([one.log_likelihoods for one in evaluate_heads(model, task, "").details])
    p = everything.p_yes[rows]
    loss = (
        -(p * scores[:, 0] + (1 - p) * scores[:, 1]).mean() + (p * np.log(p) + (1 - p) * np.log(1 - p)).mean()
    )
    otherwise = (scores[:, 0] > scores[:, 1]) != everything.compromise[rows]
    assert (2 * (p - 0.5) ** 2 * otherwise).mean() <= loss
    assert fit.compromise > 0.95  # 5 % of prompts lie within 0.02 of 1/2, where 0.0018 nats decide nothing
    assert np.mean(np.abs(everything.p_yes - 0.5) < 0.02) > 0.03


def test_the_log_odds_are_ordered_as_the_joint_optimum(model: Any) -> None:
    task = ConflictTask("A", 0, SETTING)
    scores = np.array([one.log_likelihoods for one in evaluate_heads(model, task, "").details])
    x = population(SETTING).features[list(task.rows())]
    slope = np.linalg.lstsq(x, scores[:, 0] - scores[:, 1], rcond=None)[0]
    # Both tasks pull the private features the same way and the shared one half as far as B alone; a mixture of
    # two sigmoids is flatter than one, so only the ratios are comparable: w* = (1, 1.5, 1.1).
    np.testing.assert_allclose(slope / slope.sum(), np.array([1, 1.5, 1.1]) / 3.6, atol=0.03)


def test_the_seed_decides_everything_and_no_global_generator_moves() -> None:
    quick = ConflictSetting(steps=5)
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first = train_conflict_model(quick, 3)
    assert torch.equal(before, torch.get_rng_state())
    torch.manual_seed(2)
    again, other = train_conflict_model(quick, 3), train_conflict_model(quick, 4)
    weights = [dict(one.named_parameters()) for one in (first, again, other)]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
    assert not torch.equal(weights[0]["unembed.W_U"], weights[2]["unembed.W_U"])
    assert not any(one.requires_grad for one in first.parameters())


@pytest.mark.slow
def test_a_reliable_cue_lets_the_model_learn_both_tasks_where_it_has_an_mlp() -> None:
    shape = SmallShape(n_layers=2, d_mlp=64, normalize=True)
    setting = ConflictSetting(cue=1.0, shape=shape, steps=250)
    trained = train_conflict_model(setting, 0)
    right = [evaluate_heads(trained, ConflictTask(which, 0, setting), "").accuracy for which in ("A", "B")]  # type: ignore[arg-type]
    assert min(right) > 0.92, "above the 82.0 % and 87.5 % of the compromise"


def test_a_training_that_diverges_says_so() -> None:
    with pytest.raises(EvaluationError, match="diverged at step"):
        train_conflict_model(ConflictSetting(optimizer="sgd", learning_rate=1e4, steps=20), 0)
