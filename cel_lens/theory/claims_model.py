"""Statements that need no training: the model, its optimum, the escape times."""

from __future__ import annotations

import numpy as np

from cel_lens.theory.ablation import Allocation, effect_of_shares, equally_optimal_allocations, remove_heads
from cel_lens.theory.attention import attention_output, literal_objective, task_population
from cel_lens.theory.escape import auxiliary_path, escape_time, predicted_leader
from cel_lens.theory.evidence import Evidence
from cel_lens.theory.intervals import Interval, wilson
from cel_lens.theory.model import (
    draw_quartets,
    gradients,
    head_contributions,
    joint_objective,
    predictor,
    risks,
)
from cel_lens.theory.parameters import Assumption, FloatArray, Setting
from cel_lens.theory.simulation import simulate_from
from cel_lens.theory.verification import (
    Claim,
    Measured,
    Plot,
    Row,
    Series,
    Statement,
    judge,
    median_of,
    within,
)

__all__ = ["escape_statement", "model_statement", "optimum_statement"]

_EXACT = 1e-12


def model_statement(evidence: Evidence) -> Statement:
    """The literal softmax attention is the closed form, with its risks, gradients and training path."""
    setting = evidence.setting
    quartets = draw_quartets(evidence.seed, 1, n_heads=setting.n_heads)[0]
    weights = predictor(head_contributions(quartets))
    inputs = np.random.default_rng([evidence.seed, 2]).standard_normal((200, 3))
    output = np.abs(attention_output(quartets, inputs) - inputs @ weights).max()
    differences = {
        "output for 200 Gaussian inputs": output,
        "population risks of both tasks": _risk_difference(quartets, setting),
        "gradient of the joint objective": np.abs(
            gradients(quartets, setting) - _literal_gradient(quartets, setting)
        ).max(),
        "weights after 60 steps of descent": _path_difference(quartets, evidence),
    }
    rows = tuple(
        judge(
            Claim(f"softmax-{i}", f"Softmax attention minus closed form: {name}", 0.0, Interval(0.0, _EXACT)),
            Measured(float(value)),
            setting,
        )
        for i, (name, value) in enumerate(differences.items(), start=1)
    )
    names = tuple(name.split(" ")[0] for name in differences)
    plot = Plot(
        x_label="what is compared",
        y_label="largest difference",
        log_y=True,
        series=(
            Series(name="measured", x=names, y=tuple(max(float(v), 1e-18) for v in differences.values())),
            Series(name="tolerance", x=names, y=(_EXACT,) * len(names), style="claim"),
        ),
    )
    return Statement(
        key="model",
        title="The closed form is a softmax attention",
        text="A head that attends to a pair of opposite memory tokens contributes exactly o v tanh(q k) to the "
        "weight of that feature, so the network is linear in its input. The gradient is compared with a "
        "complex-step derivative through the softmax. Zero differences are drawn at 1e-18.",
        rows=rows,
        plot=plot,
    )


def _risk_difference(quartets: FloatArray, setting: Setting) -> float:
    closed = risks(predictor(head_contributions(quartets)), setting)
    literal = []
    for population in (task_population(setting, "A"), task_population(setting, "B")):
        errors = attention_output(quartets, population.inputs) - population.answers
        literal.append(np.mean(errors**2))
    return float(max(abs(literal[0] - closed.task_a), abs(literal[1] - closed.task_b)))


def _literal_gradient(quartets: FloatArray, setting: Setting) -> FloatArray:
    """Complex-step gradient of J through the softmax, same shape as the quartets (3, H, 4)."""
    slope = np.empty_like(quartets)
    for place in np.ndindex(quartets.shape):
        shifted = quartets.astype(complex)
        shifted[place] += 1e-30j
        slope[place] = literal_objective(shifted, setting).imag / 1e-30
    return slope


def _path_difference(quartets: FloatArray, evidence: Evidence) -> float:
    """Descent through the softmax against the vectorised descent, after 60 steps."""
    setting = evidence.at(min(0.5, evidence.setting.init_scale * 10))
    theta = setting.init_scale * quartets
    for _ in range(60):
        theta = theta - setting.step_size * _literal_gradient(theta, setting)
    # rows are checked every 50 steps, so the last ten are taken from where 50 steps ended
    half = simulate_from(quartets[None], setting, max_steps=50).quartets[0]
    for _ in range(10):
        half = half - setting.step_size * gradients(half, setting)
    return float(np.abs(half - theta).max())


def optimum_statement(evidence: Evidence) -> Statement:
    """Models at the joint optimum that differ in what a removal does."""
    allocations = equally_optimal_allocations(evidence.setting)
    gains = np.array([float(each.effect.gain_a) for each in allocations])
    damages = np.array([float(each.effect.damage_b) for each in allocations])
    names = tuple(each.short for each in allocations)
    plot = Plot(
        x_label="features that head 0 holds",
        y_label="change of risk",
        series=(
            Series(name="gain of task A", x=names, y=tuple(gains.tolist()), style="bars"),
            Series(name="damage of task B", x=names, y=tuple(damages.tolist()), style="bars"),
        ),
    )
    return Statement(
        key="optimum",
        title="The joint optimum does not decide which head holds what",
        text="All these models compute the same function and are equally optimal. What removing head 0 does "
        "depends on how the function is shared among the heads, so training has to decide it.",
        rows=_optimum_rows(allocations, evidence.setting),
        plot=plot,
    )


def _optimum_rows(allocations: tuple[Allocation, ...], setting: Setting) -> tuple[Row, ...]:
    """Equal objective, different effects, and their formulas in the shares."""
    held = np.array([head_contributions(each.quartets) for each in allocations])
    weights = predictor(held)
    closed = effect_of_shares(held[:, :, 0] / setting.targets, setting)
    measured = remove_heads(held, np.zeros(len(allocations), dtype=np.int64), setting)
    formula = max(float(np.abs(x - y).max()) for x, y in zip(closed, measured, strict=True))
    excess = float(np.abs(joint_objective(weights, setting) - setting.t**2 / 2).max())
    exact = Interval(0.0, _EXACT * max(1.0, setting.a**2, setting.b**2, setting.c**2))
    return (
        judge(
            Claim(
                "optimum-shared",
                "Constructed models: distance of their joint objective from its minimum",
                0.0,
                exact,
            ),
            Measured(excess),
            setting,
        ),
        judge(
            Claim(
                "optimum-range",
                "Constructed models: gain of task A lost if the conflict head holds everything",
                setting.b**2,
                within(setting.b**2, exact.high),
            ),
            Measured(
                float(allocations[0].effect.gain_a - allocations[3].effect.gain_a),
                note="head 0 holds the conflict alone, against head 0 holds everything",
            ),
            setting,
        ),
        judge(
            Claim(
                "share-formulas",
                "Effects of a removal minus their formulas in the shares of the head",
                0.0,
                exact,
            ),
            Measured(formula),
            setting,
        ),
        judge(
            Claim(
                "clean-objective",
                "Rise of the joint objective when a pure conflict head is removed",
                setting.t**2 / 2,
                within(setting.t**2 / 2, exact.high),
            ),
            Measured(float(allocations[0].effect.objective_change)),
            setting,
        ),
    )


def escape_statement(evidence: Evidence) -> Statement:
    """Escape times: closed form against the differential equation, and their law for normal draws."""
    setting, seed = evidence.setting, evidence.seed
    n_paths = 8 if evidence.quick else 24
    quartets = draw_quartets(seed, n_paths, n_heads=1, n_features=1)[:, 0, 0]
    relative = max(abs(auxiliary_path(x).escape_time / float(escape_time(x)) - 1) for x in quartets)
    n = 40_000 if evidence.quick else 400_000
    drawn = draw_quartets(seed + 1, n, n_heads=setting.n_heads, n_features=1)[:, 0]
    leader = predicted_leader(drawn)
    close = int((leader.gap < 0.02).sum())
    density, width = close / n / 0.02, np.sqrt(400_000 / n)
    ends = wilson(close, n)
    rows: tuple[Row, ...] = (
        judge(
            Claim(
                "escape-ode",
                "Escape time: relative difference of closed form and differential equation",
                0.0,
                Interval(0.0, 1e-8),
            ),
            Measured(relative, note=f"largest of {n_paths} quartets"),
            setting,
        ),
        judge(
            Claim(
                "escape-median",
                "Median escape time of the leader for standard normal draws",
                0.6991,
                within(0.6991, 0.005 * width),
                (Assumption.THREE_HEADS,),
            ),
            median_of(leader.time, f"{n:,} draws"),
            setting,
        ),
        judge(
            Claim(
                "escape-gap",
                "Density at zero of the gap between the two smallest escape times",
                1.055,
                within(1.055, 0.04 * width),
                (Assumption.THREE_HEADS,),
            ),
            Measured(
                density,
                Interval(ends.low / 0.02, ends.high / 0.02),
                note=f"gaps below 0.02 among {n:,} draws",
            ),
            setting,
        ),
    )
    return Statement(
        key="escape",
        title="Every head escapes at a finite, computable time",
        text="Before escape each head follows the auxiliary equation alone and blows up at a time given by "
        "Carlson's elliptic integral. The plot shows how often a head, and the first of the heads, is "
        "later than a given time.",
        rows=rows,
        plot=_survival_plot(escape_time(drawn[:, 0]), leader.time, setting.n_heads),
    )


def _survival_plot(single: FloatArray, first: FloatArray, n_heads: int) -> Plot:
    grid = np.geomspace(0.1, 30, 40)

    def later(times: FloatArray) -> tuple[tuple[float, ...], tuple[float, ...]]:
        share = np.array([(times > level).mean() for level in grid])
        seen = share * len(times) >= 5
        return tuple(grid[seen].tolist()), tuple(share[seen].tolist())

    one, leaders = later(single), later(first)
    return Plot(
        x_label="scaled time",
        y_label="share of draws that escape later",
        log_x=True,
        log_y=True,
        series=(
            Series(name="one head", x=one[0], y=one[1], style="line"),
            Series(name=f"first of {n_heads} heads", x=leaders[0], y=leaders[1], style="line"),
        ),
    )
