"""The closed-form escape time against the differential equation, quadrature and known values."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import quad, solve_ivp

from cel_lens.errors import InvalidInput
from cel_lens.theory.escape import (
    auxiliary_path,
    auxiliary_velocity,
    escape_time,
    loser_products,
    predicted_leader,
)
from cel_lens.theory.model import draw_quartets


@pytest.mark.parametrize(
    ("quartet", "time"),
    [
        ((1, 1, 1, 1), 0.5),
        ((1, 2, 3, 4), 0.0859010796624659),
        ((-1, 2, 3, 4), 0.18327993614427043),
        ((0.5, 1, 1.5, 2), 0.3436043186498636),
        ((0.5, -1, 1.5, 2), 0.7331197445770817),
        ((1, -1, 2, 3), np.inf),
        ((0, 0, 2, 3), np.inf),
    ],
)
def test_known_quartets(quartet, time):
    assert float(escape_time(quartet)) == pytest.approx(time, rel=1e-12)


def test_closed_form_is_where_the_differential_equation_blows_up():
    quartets = draw_quartets(21, 16, n_heads=1, n_features=1)[:, 0, 0]
    assert {np.sign(quartet.prod()) for quartet in quartets} == {-1.0, 1.0}
    for quartet in quartets:
        path = auxiliary_path(quartet)
        assert path.escape_time == pytest.approx(float(escape_time(quartet)), rel=1e-8)


def test_closed_form_is_the_quadrature_of_the_common_growth_of_the_squares():
    u = np.array([1.0, 2.0, 3.0, 4.0]) ** 2
    integral, _ = quad(lambda s: 0.5 / np.sqrt(np.prod(u + s)), 0, np.inf, epsabs=1e-13)
    assert float(escape_time([1, 2, 3, 4])) == pytest.approx(integral, rel=1e-9)


def test_differences_of_squares_are_conserved_and_the_product_grows():
    path = auxiliary_path([0.5, -1.0, 1.5, 2.0])
    early = path.times < 0.9 * path.escape_time
    squares = path.quartets[early] ** 2
    np.testing.assert_allclose(
        squares - squares[:, :1], np.tile(squares[0] - squares[0, 0], (early.sum(), 1)), atol=1e-8
    )
    assert (np.diff(path.quartets.prod(axis=1)) >= 0).all()


def test_time_scales_with_the_inverse_square_and_ignores_order():
    quartets = draw_quartets(22, 300, n_heads=1, n_features=1)[:, 0, 0]
    times = escape_time(quartets)
    np.testing.assert_allclose(escape_time(3 * quartets), times / 9, rtol=1e-12)
    np.testing.assert_allclose(escape_time(quartets[:, [2, 0, 3, 1]]), times, rtol=1e-12)
    np.testing.assert_allclose(escape_time(-quartets), times, rtol=1e-12)


def test_a_near_tie_with_negative_product_is_late_but_finite():
    late, later = escape_time([[1, -1.001, 2, 3], [1, -1.000001, 2, 3]])
    assert np.isfinite(later)
    assert late < later


def test_a_single_zero_coordinate_leaves_zero_and_escapes():
    assert float(escape_time([0.0, 1.0, 2.0, 3.0])) == pytest.approx(
        float(escape_time([1e-9, 1.0, 2.0, 3.0])), rel=1e-6
    )


def test_median_of_the_smallest_of_three_normal_heads():
    leader = predicted_leader(draw_quartets(23, 100_000, n_features=1)[:, 0])
    assert np.median(leader.time) == pytest.approx(0.6991, abs=0.006)
    assert np.mean(leader.time > 3) == pytest.approx(0.0149, abs=0.0015)


def test_leader_is_the_smallest_time_and_flips_the_output_for_negative_targets():
    quartets = draw_quartets(24, 50)
    leader = predicted_leader(quartets)
    times = escape_time(quartets)
    np.testing.assert_array_equal(leader.head, times.argmin(-1))
    np.testing.assert_allclose(leader.gap, np.diff(np.sort(times, -1)[..., :2])[..., 0])
    mirrored = quartets * np.array([1, 1, 1, -1])
    np.testing.assert_array_equal(predicted_leader(quartets, -1.0).head, predicted_leader(mirrored).head)
    assert (predicted_leader(quartets, -1.0).head != leader.head).any()


@pytest.mark.parametrize("target", [1.0, -1.0])
def test_losers_are_where_the_differential_equation_has_them_at_the_leaders_escape(target):
    quartets = draw_quartets(25, 4, n_features=1)[:, 0]
    products = loser_products(quartets, target)
    leader = predicted_leader(quartets, target)
    for row, heads in enumerate(quartets):
        for head, start in enumerate(heads):
            if head == leader.head[row]:
                assert products[row, head] == target * np.inf
                continue
            mirrored = start * np.array([1, 1, 1, target])
            end = solve_ivp(
                lambda _, x: auxiliary_velocity(x), (0, leader.time[row]), mirrored, rtol=1e-10, atol=1e-12
            )
            assert products[row, head] == pytest.approx(target * end.y[:, -1].prod(), rel=1e-3)


def test_questions_without_an_answer_are_refused():
    with pytest.raises(InvalidInput, match="never escapes"):
        auxiliary_path([1, -1, 2, 3])
    with pytest.raises(InvalidInput, match="one quartet"):
        auxiliary_path(np.ones((2, 4)))
    with pytest.raises(InvalidInput, match="at least 2 heads"):
        predicted_leader(np.ones((1, 4)))
    with pytest.raises(InvalidInput, match="target"):
        predicted_leader(np.ones((2, 4)), 0.0)
