"""Gradient descent and gradient flow: they follow the gradient, fit, and end where theory says."""

from __future__ import annotations

import numpy as np
import pytest

from cel_lens.errors import InvalidInput
from cel_lens.theory.attention import literal_objective
from cel_lens.theory.descent import Schedule, Status
from cel_lens.theory.escape import predicted_leader
from cel_lens.theory.flow import balanced_orbit, run_flow
from cel_lens.theory.model import draw_quartets, gradients
from cel_lens.theory.parameters import Setting
from cel_lens.theory.simulation import simulate, simulate_from


@pytest.fixture(scope="module")
def run():
    return simulate(Setting(init_scale=0.1), seed=31, n_seeds=1500)


def test_descent_takes_exactly_the_steps_of_the_gradient():
    setting = Setting(init_scale=0.4)
    initial = draw_quartets(32, 4)
    theta = 0.4 * initial
    for _ in range(50):
        theta = theta - setting.step_size * gradients(theta, setting)
    short = simulate_from(initial, setting, max_steps=50)
    np.testing.assert_allclose(short.quartets, theta, rtol=0, atol=1e-12)


def test_descent_through_the_literal_softmax_is_the_same_trajectory():
    setting = Setting(init_scale=0.8)
    initial = draw_quartets(33, 1)
    theta = 0.8 * initial[0]
    for _ in range(50):
        slope = np.empty_like(theta)
        for place in np.ndindex(theta.shape):
            shifted = theta.astype(complex)
            shifted[place] += 1e-30j
            slope[place] = literal_objective(shifted, setting).imag / 1e-30
        theta = theta - setting.step_size * slope
    np.testing.assert_allclose(
        simulate_from(initial, setting, max_steps=50).quartets[0], theta, rtol=0, atol=1e-12
    )


def test_every_feature_is_fitted_monotonically_without_overshoot(run):
    assert (run.status == Status.CONVERGED).all()
    assert np.abs(run.residuals / run.setting.targets).max() <= 1e-14
    assert run.max_ratio.max() <= 1 + 1e-12
    assert 0.56 <= run.min_ratio.min() <= 0.60


def test_too_large_a_step_overshoots_as_the_curvature_predicts():
    pk = balanced_orbit(1.0).curvature
    for step_size in (0.9 / pk, 1.1 / pk):
        ends = simulate(Setting(init_scale=0.1, step_size=step_size), seed=34, n_seeds=100)
        overshoots = (ends.min_ratio[:, 0] < 0).mean()
        assert overshoots > 0.9 if step_size > 1 / pk else overshoots == 0


def test_the_predicted_leader_wins_and_holds_almost_everything(run):
    assert (run.winners == run.leader.head).mean() >= 0.999
    expected = [
        (run.leader.gap[:, j] > 0.01 * balanced_orbit(beta).gap_99).mean()
        for j, beta in enumerate((1, 1.5, 1))
    ]
    np.testing.assert_allclose((run.shares > 0.99).mean(axis=0), expected, atol=0.008)


def test_negative_targets_are_the_mirrored_run():
    initial = draw_quartets(35, 40)
    positive = simulate_from(initial, Setting(init_scale=0.2))
    mirrored = initial * np.array([1.0, 1.0, 1.0, -1.0])
    negative = simulate_from(mirrored, Setting(a=-2.0, b=-1.5, c=-1.0, init_scale=0.2))
    np.testing.assert_array_equal(negative.contributions, -positive.contributions)
    np.testing.assert_array_equal(negative.leader.head, positive.leader.head)


def test_status_tells_unfinished_and_diverged_features_apart():
    initial = draw_quartets(36, 20)
    unfinished = simulate_from(initial, Setting(init_scale=0.05), max_steps=50)
    assert (unfinished.status == Status.NOT_YET).all()
    lost = simulate_from(initial, Setting(init_scale=3.0, step_size=3.0), max_steps=500)
    diverged = lost.status == Status.DIVERGED
    assert diverged.any()
    assert (lost.winners[diverged] == -1).all()
    assert np.isnan(lost.shares[diverged]).all()
    assert not lost.separated[diverged.any(axis=1)].any()
    assert all(Status(int(value)).message for value in np.unique(lost.status))


def test_residual_at_the_checkpoint_follows_the_escape_times(run):
    setting = run.setting
    assert setting.checkpoint == 1152
    unescaped = np.abs(run.checkpoint_residuals) > setting.targets / 2
    late = run.leader.time > setting.curvatures * setting.targets * np.log(1 / setting.init_scale)
    assert (unescaped != late).mean() < 0.005
    assert unescaped.mean() > 0.05


def test_the_clock_stops_at_the_leaders_escape_with_the_derived_correction(run):
    setting = run.setting
    for j, beta in enumerate(setting.targets):
        euler = 1.5 * setting.step_size * setting.curvatures[j] * beta * np.log(1 / setting.init_scale)
        measured = np.median((run.clock[:, j] - run.leader.time[:, j]) / setting.init_scale**2)
        assert measured == pytest.approx(balanced_orbit(beta).clock_offset + euler, abs=0.06)


def test_frame_has_one_row_a_seed_and_feature(run):
    frame = run.to_frame()
    assert len(frame) == 4500
    assert (frame["winner"] == frame["leader"]).mean() > 0.999


@pytest.mark.parametrize(
    ("beta", "score", "gain", "curvature", "offset", "gap"),
    [
        (0.25, 0.505925, 0.535602, 0.410948, -0.788677, 9.18436),
        (1.0, 1.024518, 1.295840, 2.106316, -0.066518, 4.88702),
        (1.5, 1.247871, 1.769524, 3.162000, 0.125547, 4.15218),
        (4.0, 1.885175, 4.188700, 8.152697, 0.598754, 3.01028),
    ],
)
def test_balanced_orbit_constants(beta, score, gain, curvature, offset, gap):
    orbit = balanced_orbit(beta)
    measured = (orbit.score, orbit.gain, orbit.curvature, orbit.clock_offset, orbit.gap_99)
    np.testing.assert_allclose(measured, (score, gain, curvature, offset, gap), rtol=0, atol=1e-5)


def test_balanced_curvature_is_the_squared_gradient_of_the_contribution():
    orbit = balanced_orbit(1.3)
    q, v = orbit.query_key, orbit.value_output
    tanh = np.tanh(q * q)
    gradient = np.array([v * v * q * (1 - tanh**2)] * 2 + [v * tanh] * 2)
    assert gradient @ gradient == pytest.approx(orbit.curvature, rel=1e-10)


def test_flow_ends_on_the_balanced_orbit_with_losers_of_fourth_order():
    initial = draw_quartets(37, 60, n_features=1)[:, 0]
    leader = predicted_leader(initial)
    clear = leader.gap > 0.1
    flow = run_flow(initial, 1.0, 0.01)
    rows = np.arange(60)
    winner = np.abs(flow.quartets[rows, leader.head])[clear]
    orbit = balanced_orbit(1.0)
    expected = [orbit.query_key] * 2 + [orbit.value_output] * 2
    assert np.abs(np.median(winner, axis=0) - expected).max() < 1e-3
    np.testing.assert_allclose(flow.contributions.sum(axis=-1), 1.0, rtol=0, atol=1e-12)
    clock_shift = (flow.clock - leader.time)[clear] / 1e-4
    assert np.median(clock_shift) == pytest.approx(orbit.clock_offset, abs=0.01)
    assert np.median(flow.shares) > 0.9999


def test_unusable_training_arguments_are_refused():
    with pytest.raises(InvalidInput, match="tolerance"):
        simulate_from(draw_quartets(0, 2), Setting(), tolerance=0.0)
    with pytest.raises(InvalidInput, match="max_steps"):
        simulate_from(draw_quartets(0, 2), Setting(), max_steps=0)
    with pytest.raises(InvalidInput, match="shape"):
        simulate_from(np.ones((2, 3, 2, 4)), Setting())
    with pytest.raises(InvalidInput, match="n_seeds"):
        simulate(n_seeds=0)
    with pytest.raises(InvalidInput, match="positive"):
        Schedule(step_size=0.0, init_scale=0.1)
    with pytest.raises(InvalidInput, match="positive initialisation scale"):
        run_flow(np.ones((1, 2, 4)), 1.0, 0.0)
    with pytest.raises(InvalidInput, match="not reached"):
        run_flow(np.ones((1, 2, 4)), 1.0, 0.1, max_steps=2)
    with pytest.raises(InvalidInput, match="target"):
        balanced_orbit(0.0)
