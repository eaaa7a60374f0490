"""Closed forms beyond three heads against counting and simulation; experiments against their null cases."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from cel_lens.errors import InvalidInput
from cel_lens.theory.descent import Schedule
from cel_lens.theory.extensions import (
    Layout,
    conflict_of_tasks,
    conflict_of_weights,
    race_layout,
    separation_probability,
    separation_probability_unequal,
    train_layout,
    win_probabilities,
)
from cel_lens.theory.finite_samples import Sampling, train_on_samples
from cel_lens.theory.intervals import (
    acceptance_of_share,
    chi_square_uniform,
    median_interval,
    wilson,
)
from cel_lens.theory.non_diagonal import train_full_projections
from cel_lens.theory.optimisers import shares_after
from cel_lens.theory.parameters import Setting
from cel_lens.theory.simulation import simulate
from cel_lens.theory.tracking import tracking_errors


def test_three_heads_and_two_private_features_give_four_ninths():
    assert separation_probability(Layout()) == pytest.approx(4 / 9, abs=1e-15)


@pytest.mark.parametrize(
    ("heads", "private", "shared"), [(2, 1, 1), (3, 2, 2), (4, 3, 2), (3, 1, 4), (2, 2, 3)]
)
def test_separation_probability_counts_every_assignment(heads, private, shared):
    assignments = itertools.product(range(heads), repeat=private + shared)
    clean = [not set(heads_[:shared]) & set(heads_[shared:]) for heads_ in assignments]
    layout = Layout(n_heads=heads, n_private=private, n_shared=shared)
    assert separation_probability(layout) == pytest.approx(np.mean(clean), abs=1e-14)


@pytest.mark.parametrize(("heads", "private", "shared"), [(2, 1, 1), (8, 2, 1), (3, 2, 2), (8, 4, 3)])
def test_separation_probability_is_the_share_of_races(heads, private, shared):
    layout = Layout(n_heads=heads, n_private=private, n_shared=shared)
    separated = race_layout(layout, seed=51, n_seeds=20_000).separated
    accepted = acceptance_of_share(separation_probability(layout), 20_000)
    assert accepted.holds(separated.mean())


def test_trained_layouts_follow_the_race():
    layout = Layout(n_heads=4, n_private=3)
    run = train_layout(layout, Schedule(step_size=0.2, init_scale=0.1), seed=52, n_seeds=600)
    assert (run.winners == run.leaders).mean() > 0.995
    assert acceptance_of_share(separation_probability(layout), 600).holds(run.separated.mean())


def test_unequal_heads():
    assert separation_probability_unequal([0.25] * 4, 3) == pytest.approx(
        separation_probability(Layout(n_heads=4, n_private=3))
    )
    pi = win_probabilities([1.5, 1.0, 1.0], seed=53, n_draws=40_000)
    assert pi[0] == pytest.approx(0.598, abs=0.01)
    assert separation_probability_unequal(pi, 2) == pytest.approx(0.353, abs=0.008)
    np.testing.assert_allclose(win_probabilities([1, 1, 1], seed=54, n_draws=40_000), 1 / 3, atol=0.01)


def test_more_tasks_and_unequal_weights_reduce_to_the_two_equal_tasks():
    np.testing.assert_allclose(conflict_of_tasks([0.0, 2.0]), [1.0, -3.0])
    np.testing.assert_allclose(conflict_of_tasks([1.0, 2.0, 6.0]).mean(), -9.0)
    np.testing.assert_allclose(conflict_of_weights(2.0, 0.5), (1.0, 1.0, 3.0))
    weight, a = 0.3, 1.7
    grid = np.linspace(-3, 3, 60_001)
    optimum = grid[np.argmin(weight * grid**2 + (1 - weight) * (grid - a) ** 2)]
    closed = conflict_of_weights(a, weight)
    assert closed.optimum == pytest.approx(optimum, abs=1e-4)
    assert closed.gain_a == pytest.approx(closed.optimum**2)
    assert closed.damage_b == pytest.approx(a**2 - (closed.optimum - a) ** 2)


def test_tracking_error_has_order_two_and_order_four_when_the_step_shrinks_too():
    fixed = tracking_errors((0.05, 0.025), seed=55, n_seeds=20)
    shrinking = tracking_errors((0.2, 0.1), order=2, step_size=0.05, seed=55, n_seeds=20)
    assert 1.9 < np.median(fixed.slopes) < 2.4
    assert 3.7 < np.median(shrinking.slopes) < 4.1


def test_many_clean_samples_reproduce_the_population():
    setting = Setting(init_scale=0.1)
    population = simulate(setting, seed=56, n_seeds=60)
    sampled = train_on_samples(setting, Sampling(n_samples=4000), seed=56, n_seeds=60)
    assert sampled.fitted.all()
    np.testing.assert_array_equal(sampled.winners, population.winners)
    on = population.separated
    assert np.median(np.abs(sampled.gain_a[on] - 1)) < 0.05


def test_noise_moves_the_fit_and_not_the_order_of_the_race():
    setting = Setting(init_scale=0.1)
    noisy = train_on_samples(setting, Sampling(n_samples=20, noise=1.0), seed=57, n_seeds=80)
    usable = noisy.fitted
    assert usable.mean() > 0.9
    assert (noisy.winners == noisy.leaders)[usable].mean() > 0.97
    assert np.std(noisy.contributions[usable].sum(-1)[:, 0]) > 0.05


def test_fresh_mini_batches_keep_the_leader():
    setting = Setting(init_scale=0.2)
    run = train_on_samples(
        setting, Sampling(n_samples=8, noise=0.5, fresh=True), seed=58, n_seeds=60, max_steps=1500
    )
    assert (run.winners == run.leaders).mean() > 0.95


def test_full_projections_localise_but_do_not_separate():
    run = train_full_projections(Setting(init_scale=0.05), seed=59, n_seeds=200)
    assert run.fitted.all()
    np.testing.assert_allclose(run.contributions.sum(-1), np.tile([1, 1.5, 1], (200, 1)), atol=1e-8)
    assert (run.shares > 0.99).mean() > 0.8
    assert run.separated.mean() < 0.2
    assert run.together.mean() > 0.6


def test_only_descent_with_a_common_pull_localises():
    shares = {
        name: shares_after(name, init_scale=0.1, n_seeds=60)
        for name in ("gradient descent", "momentum", "adam")
    }
    assert np.median(shares["gradient descent"]) > 0.99
    assert np.median(shares["momentum"]) > 0.99
    assert np.median(shares["adam"]) < 0.5


def test_wilson_against_its_definition_and_medians_against_coverage():
    from scipy.optimize import brentq

    interval = wilson(37, 120)

    def score(p):
        return (37 / 120 - p) ** 2 - 1.959963984540054**2 * p * (1 - p) / 120

    assert interval.low == pytest.approx(brentq(score, 1e-6, 37 / 120), abs=1e-9)
    assert interval.high == pytest.approx(brentq(score, 37 / 120, 1 - 1e-6), abs=1e-9)
    assert wilson(0, 7).low == 0.0
    assert wilson(7, 7).high == 1.0
    rng = np.random.default_rng(60)
    covered = [median_interval(rng.exponential(size=51)).holds(np.log(2)) for _ in range(400)]
    assert 0.92 <= np.mean(covered) <= 0.995


def test_uniformity_against_scipy():
    from scipy.stats import chisquare

    counts = [12, 19, 7, 22]
    mine, theirs = chi_square_uniform(counts), chisquare(counts)
    assert mine.statistic == pytest.approx(theirs.statistic)
    assert mine.p_value == pytest.approx(theirs.pvalue)
    assert mine.freedom == 3


@pytest.mark.parametrize(
    "call",
    [
        lambda: Layout(n_heads=1),
        lambda: Layout(n_private=0),
        lambda: separation_probability_unequal([0.5, 0.6], 2),
        lambda: win_probabilities([1.0, 0.0]),
        lambda: conflict_of_weights(2.0, 1.0),
        lambda: Sampling(n_samples=2),
        lambda: Sampling(n_samples=10, noise=-1.0),
        lambda: tracking_errors((0.1,)),
        lambda: tracking_errors((0.1, 0.2)),
        lambda: tracking_errors((0.2, 0.1), order=1),
        lambda: shares_after("sgd"),
        lambda: shares_after("adam", init_scale=0.0),
        lambda: train_full_projections(Setting(), n_seeds=0),
        lambda: wilson(3, 2),
        lambda: wilson(1, 2, confidence=1.0),
        lambda: median_interval([]),
        lambda: chi_square_uniform([4]),
    ],
)
def test_impossible_questions_are_refused(call):
    with pytest.raises(InvalidInput):
        call()
