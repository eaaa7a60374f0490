"""The closed form, the literal softmax and automatic differentiation are the same model."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from cel_lens.errors import InvalidInput
from cel_lens.theory.attention import attention_output, literal_objective, task_population
from cel_lens.theory.model import (
    draw_quartets,
    gradients,
    head_contributions,
    joint_objective,
    predictor,
    risks,
)
from cel_lens.theory.parameters import Assumption, Setting

SETTING = Setting(a=2.0, b=1.5, c=1.0)


def test_softmax_with_input_in_the_values_is_the_closed_form_for_every_real_input():
    quartets = 1.3 * draw_quartets(5, 1)[0]
    inputs = np.random.default_rng(1).normal(size=(200, 3))
    expected = inputs @ predictor(head_contributions(quartets))
    np.testing.assert_allclose(attention_output(quartets, inputs), expected, rtol=0, atol=1e-12)


def test_softmax_with_input_in_the_query_is_the_closed_form_on_signs_and_zeros_only():
    quartets = draw_quartets(6, 1)[0]
    weights = predictor(head_contributions(quartets))
    grid = np.array(list(itertools.product([-1.0, 0.0, 1.0], repeat=3)))
    signed = attention_output(quartets, grid, construction="sign")
    np.testing.assert_allclose(signed, grid @ weights, rtol=0, atol=1e-12)
    real = np.random.default_rng(2).normal(size=(50, 3))
    assert np.abs(attention_output(quartets, real, construction="sign") - real @ weights).max() > 0.01


def test_library_attention_agrees_without_a_scale_and_disagrees_with_its_default_scale():
    quartet = np.array([0.9, 1.1, 1.2, 0.8])
    q, k, v, o = torch.tensor(quartet)
    query = torch.stack([q * torch.eye(3, dtype=torch.float64)[0]])[None]
    key = torch.stack([k * torch.eye(3, dtype=torch.float64)[0] * sign for sign in (1.0, -1.0)])[None]
    value = torch.stack([v * torch.eye(3, dtype=torch.float64)[0] * sign for sign in (1.0, -1.0)])[None]
    attend = torch.nn.functional.scaled_dot_product_attention
    closed = float(head_contributions(quartet))
    assert float(o * attend(query, key, value, scale=1.0).sum()) == pytest.approx(closed, abs=1e-12)
    assert abs(float(o * attend(query, key, value).sum()) - closed) > 0.1


@pytest.mark.parametrize("construction", ["value", "sign"])
def test_risks_and_objective_are_the_mean_squared_errors_of_the_attention(construction):
    quartets = draw_quartets(8, 1)[0]
    weights = predictor(head_contributions(quartets))
    both = risks(weights, SETTING)
    for task, closed in (("A", both.task_a), ("B", both.task_b)):
        inputs, answers = task_population(SETTING, task)
        errors = attention_output(quartets, inputs, construction=construction) - answers
        assert np.mean(errors**2) == pytest.approx(float(closed), abs=1e-12)
    literal = literal_objective(quartets, SETTING, construction=construction)
    assert literal == pytest.approx(float(joint_objective(weights, SETTING)), abs=1e-12)


@pytest.mark.parametrize("construction", ["value", "sign"])
def test_closed_form_gradient_is_the_complex_step_derivative_of_the_softmax(construction):
    quartets = draw_quartets(9, 1)[0]
    closed = gradients(quartets, SETTING)
    for place in np.ndindex(quartets.shape):
        shifted = quartets.astype(complex)
        shifted[place] += 1e-30j
        derivative = literal_objective(shifted, SETTING, construction=construction).imag / 1e-30
        assert derivative == pytest.approx(closed[place], abs=1e-12)


def test_closed_form_gradient_equals_autograd():
    quartets = draw_quartets(10, 20)
    theta = torch.tensor(quartets, requires_grad=True)
    q, k, v, o = theta.unbind(-1)
    w = (o * v * torch.tanh(q * k)).sum(-1)
    risk_a = w[:, 0] ** 2 + (w[:, 1] - SETTING.b) ** 2
    risk_b = (w[:, 0] - SETTING.a) ** 2 + (w[:, 2] - SETTING.c) ** 2
    ((risk_a + risk_b) / 4).sum().backward()
    np.testing.assert_allclose(gradients(quartets, SETTING), theta.grad.numpy(), rtol=0, atol=1e-12)


def test_joint_optimum_is_the_compromise_with_equal_risks_t_squared():
    setting = Setting(a=3.0, b=0.7, c=1.9)
    at = risks(setting.targets, setting)
    assert float(at.task_a) == pytest.approx(2.25)
    assert float(at.task_b) == pytest.approx(2.25)
    rng = np.random.default_rng(3)
    nearby = setting.targets + 0.1 * rng.normal(size=(500, 3))
    assert (joint_objective(nearby, setting) > joint_objective(setting.targets, setting)).all()


def test_draws_of_a_seed_do_not_depend_on_how_many_are_asked_for():
    np.testing.assert_array_equal(draw_quartets(4, 3), draw_quartets(4, 9)[:3])


@pytest.mark.parametrize(
    "values",
    [
        {"step_size": 0.0},
        {"step_size": -0.1},
        {"init_scale": 0.0},
        {"init_scale": float("nan")},
        {"a": 0.0},
        {"b": 0.0},
        {"c": float("inf")},
        {"n_heads": 1},
        {"n_heads": 2.5},
    ],
)
def test_settings_without_a_mechanism_are_refused(values):
    with pytest.raises(InvalidInput, match="give"):
        Setting(**values)


@pytest.mark.parametrize(
    ("values", "assumption"),
    [
        ({"c": -1.0}, Assumption.POSITIVE_TARGETS),
        ({"init_scale": 0.5}, Assumption.SMALL_INIT),
        ({"step_size": 0.25}, Assumption.STEP_SIZE),
        ({"n_heads": 4}, Assumption.THREE_HEADS),
        ({"b": 1.0}, Assumption.DISTINCT_SHARED),
    ],
)
def test_settings_outside_the_theorem_are_labelled(values, assumption):
    assert Setting().violated() == ()
    assert Setting(**values).violated() == (assumption,)


def test_wrong_shapes_and_names_are_refused():
    with pytest.raises(InvalidInput, match="last axis"):
        head_contributions(np.zeros((3, 3)))
    with pytest.raises(InvalidInput, match="not finite"):
        head_contributions([1.0, np.nan, 1.0, 1.0])
    with pytest.raises(InvalidInput, match="3 features"):
        gradients(np.zeros((2, 3, 4)), SETTING)
    with pytest.raises(InvalidInput, match="'A' or 'B'"):
        task_population(SETTING, "C")
    with pytest.raises(InvalidInput, match="'value' or 'sign'"):
        attention_output(np.zeros((3, 3, 4)), np.zeros((1, 3)), construction="other")
    with pytest.raises(InvalidInput, match="seed"):
        draw_quartets(-1, 3)
