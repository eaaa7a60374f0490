"""A trained model reaches the compromise, and the seed alone decides it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from cel_lens.conflict import ConflictSetting, ConflictTask, fit_of, population, train_conflict_model
from cel_lens.errors import EvaluationError
from cel_lens.evaluation import evaluate_heads

SETTING = ConflictSetting(steps=250)


@pytest.fixture(scope="module")
def model() -> Any:
    return train_conflict_model(SETTING, 0)


def test_the_trained_model_answers_as_the_compromise_up_to_what_its_loss_allows(model: Any) -> None:
    fit = fit_of(model, SETTING)
    # A model that knows nothing loses log 2 - entropy = 0.216 nats too much. The best sum of one function of each
    # feature, which is what one layer of attention without MLP tends to, loses 0.0016 too much.
    untold = np.log(2) - population(SETTING).entropy
    assert untold == pytest.approx(0.216, abs=5e-4)
    assert 0 < fit.excess_loss < 0.0025
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
    # The bound allows 5 % at a distance of 0.16 from 1/2; 5 % of the prompts lie within 0.03, and are close calls.
    assert fit.compromise > 0.95
    assert np.mean(np.abs(everything.p_yes - 0.5) < 0.03) > 0.05


def test_the_log_odds_are_ordered_as_the_joint_optimum(model: Any) -> None:
    task = ConflictTask("A", 0, SETTING)
    scores = np.array([one.log_likelihoods for one in evaluate_heads(model, task, "").details])
    x = population(SETTING).features[list(task.rows())]
    slope = np.linalg.lstsq(x, scores[:, 0] - scores[:, 1], rcond=None)[0]
    # A mixture of two sigmoids is flatter than one, so only ratios compare with w* = (1, 1.5, 1.1). The best linear
    # log-odds have ratios within 0.008 of it; the rest of the tolerance is left to training.
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


def test_a_reliable_cue_lets_the_model_learn_both_tasks() -> None:
    setting = ConflictSetting(cue=1.0, steps=400)
    trained = train_conflict_model(setting, 0)
    right = [evaluate_heads(trained, ConflictTask(which, 0, setting), "").accuracy for which in ("A", "B")]  # type: ignore[arg-type]
    assert min(right) > 0.92, "above the 82.0 % and 87.5 % of the compromise"


def test_a_training_that_diverges_says_so() -> None:
    with pytest.raises(EvaluationError, match="diverged at step"):
        train_conflict_model(ConflictSetting(optimizer="sgd", learning_rate=1e4, steps=20), 0)
