"""Removing a head: exact formulas in the shares, equally optimal models that react differently."""

from __future__ import annotations

import numpy as np
import pytest

from cel_lens.errors import InvalidInput
from cel_lens.theory.ablation import (
    deviations_on_separation,
    effect_of_shares,
    equally_optimal_allocations,
    remove_heads,
)
from cel_lens.theory.flow import run_flow
from cel_lens.theory.model import draw_quartets, head_contributions, joint_objective, predictor
from cel_lens.theory.parameters import Setting
from cel_lens.theory.simulation import simulate

SETTING = Setting(a=2.6, b=1.5, c=0.8)


def fitted_contributions(n: int) -> np.ndarray:
    """Random contributions whose sums are the targets exactly."""
    raw = np.random.default_rng(41).normal(size=(n, 3, 4))
    return raw + (SETTING.targets - raw.sum(-1))[..., None] / 4


def test_share_formulas_are_the_measured_effects_at_an_exact_fit():
    contributions = fitted_contributions(300)
    heads = np.arange(300) % 4
    shares = contributions[np.arange(300), :, heads] / SETTING.targets
    measured, closed = remove_heads(contributions, heads, SETTING), effect_of_shares(shares, SETTING)
    for one, other in zip(measured, closed, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-12)
    np.testing.assert_allclose(
        measured.objective_change, (measured.damage_b - measured.gain_a) / 4, rtol=0, atol=1e-12
    )


def test_clean_removal_of_the_conflict_head():
    clean = effect_of_shares([1.0, 0.0, 0.0], SETTING)
    t2 = 1.3**2
    expected = (t2, 3 * t2, t2 / 2, 0.0, 4 * t2)
    np.testing.assert_allclose(clean, expected, rtol=0, atol=1e-12)


def test_equal_optima_have_one_objective_and_many_effects():
    allocations = equally_optimal_allocations(SETTING)
    weights = np.array([predictor(head_contributions(each.quartets)) for each in allocations])
    np.testing.assert_allclose(weights, np.tile(SETTING.targets, (len(allocations), 1)), atol=1e-12)
    values = joint_objective(weights, SETTING)
    np.testing.assert_allclose(values, values[0], rtol=0, atol=1e-12)
    gains = [round(float(each.effect.gain_a), 6) for each in allocations]
    assert len(set(gains)) >= 4
    assert max(gains) > 0 > min(gains)


def test_even_split_still_helps_task_a_when_b_is_small():
    by_name = {each.name: each.effect for each in equally_optimal_allocations(SETTING)}
    even = by_name["every head holds an equal share"].gain_a
    assert float(even) == pytest.approx((5 * SETTING.t**2 - SETTING.b**2) / 9)
    assert float(even) > 0


def test_small_deviations_agree_with_the_difference_of_risks():
    run = simulate(Setting(init_scale=0.2), seed=42, n_seeds=300)
    winners = run.winners[:, 0]
    effect = remove_heads(run.contributions, winners, run.setting)
    deviation = deviations_on_separation(run.contributions, winners, run.setting)
    on = run.separated
    np.testing.assert_allclose(deviation.gain_a[on], effect.gain_a[on] - 1, rtol=0, atol=1e-12)
    np.testing.assert_allclose(deviation.damage_b[on], effect.damage_b[on] - 3, rtol=0, atol=1e-12)
    assert (deviation.gain_a <= 0).all()


def test_deviations_shrink_with_the_eighth_and_fourth_power_in_flow():
    setting, initial = Setting(), draw_quartets(43, 60)
    winners = [None, None]
    sizes = []
    for i, scale in enumerate((0.02, 0.01)):
        flow = run_flow(initial.reshape(-1, 3, 4), np.tile(setting.targets, 60), scale)
        contributions = flow.contributions.reshape(60, 3, 3)
        winners[i] = contributions.argmax(-1)
        sizes.append(deviations_on_separation(contributions, winners[i][:, 0], setting))
    on = (winners[0] == winners[1]).all(1) & (winners[0][:, :1] != winners[0][:, 1:]).all(1)
    slopes = [np.median(np.log2(np.abs(large[on] / small[on]))) for large, small in zip(*sizes, strict=True)]
    np.testing.assert_allclose(slopes, [8.0, 4.0], rtol=0, atol=0.02)


def test_a_head_that_does_not_exist_is_refused():
    with pytest.raises(InvalidInput, match="between 0 and 2"):
        remove_heads(np.ones((3, 3)), 3, SETTING)
