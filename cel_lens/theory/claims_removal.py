"""Statements about removing the conflict's head: limits, orders of the deviations, the other patterns."""

from __future__ import annotations

import math
from typing import NamedTuple, Protocol

import numpy as np

from cel_lens.theory.ablation import Deviations, deviations_on_separation, effect_of_shares, remove_heads
from cel_lens.theory.claims_training import median_series
from cel_lens.theory.evidence import TRAINED, Evidence
from cel_lens.theory.intervals import acceptance_of_share
from cel_lens.theory.parameters import BoolArray, FloatArray, IntArray, Setting
from cel_lens.theory.simulation import Simulation
from cel_lens.theory.verification import (
    Claim,
    Plot,
    Row,
    Series,
    Statement,
    judge,
    median_of,
    share_of,
    within,
)

__all__ = ["order_statement", "pattern_statement", "removal_statement"]


def removal_statement(evidence: Evidence) -> Statement:
    """What is left of both risks when a clean conflict head is removed."""
    setting, scale = evidence.setting, min(evidence.runs)
    run = evidence.runs[scale]
    on, winners = run.separated, run.winners[:, 0]
    effect = remove_heads(run.contributions[on], winners[on], setting)
    t2 = setting.t**2
    # two and a half times the median deviation of section "orders" at this scale
    slack = 6 * (1 + abs(setting.t)) * scale**4
    parts = {
        "removal-risk-a": ("risk of task A afterwards", 0.0, effect.risk_a),
        "removal-risk-b": ("risk of task B afterwards", 4 * t2, effect.risk_b),
        "removal-objective": ("rise of the joint objective", t2 / 2, effect.objective_change),
        "removal-gain-a": ("gain of task A", t2, effect.gain_a),
        "removal-damage-b": ("damage of task B", 3 * t2, effect.damage_b),
    }
    rows = tuple(
        judge(
            Claim(key, f"Clean conflict head removed: {name} (median)", limit, within(limit, slack), TRAINED),
            median_of(values, f"scale {scale:g}, {int(on.sum()):,} draws"),
            run.setting,
        )
        for key, (name, limit, values) in parts.items()
    )
    return Statement(
        key="removal",
        title="Removing a clean conflict head takes task A's risk to zero and multiplies task B's by four",
        text="Before the removal both risks are t². Afterwards task A is at zero and task B at 4 t²: the shared "
        "weight was a compromise, and without it task A is right and task B twice as wrong. Shown are the "
        "medians of both risks over the draws in which the conflict has a head of its own.",
        rows=rows,
        plot=_risk_plot(evidence),
    )


def _risk_plot(evidence: Evidence) -> Plot:
    setting, scales = evidence.setting, tuple(evidence.runs)
    risk_a, risk_b = [], []
    for run in evidence.runs.values():
        on = run.separated
        effect = remove_heads(run.contributions[on], run.winners[on, 0], setting)
        risk_a.append(effect.risk_a)
        risk_b.append(effect.risk_b)
    return Plot(
        x_label="initialisation scale",
        y_label="risk after the removal",
        log_x=True,
        series=(
            median_series("task A", scales, risk_a),
            median_series("task B", scales, risk_b),
            Series(name="0", x=scales, y=(0.0,) * len(scales), style="limit"),
            Series(name="4 t²", x=scales, y=(4 * setting.t**2,) * len(scales), style="limit"),
        ),
    )


class _Pattern(NamedTuple):
    name: str
    label: str
    shares: tuple[float, float, float]
    probability: float


def pattern_statement(evidence: Evidence) -> Statement:
    """The four ways in which the winners can coincide, with their effects."""
    setting, scale = evidence.setting, min(evidence.runs)
    run, heads = evidence.runs[scale], evidence.setting.n_heads
    same = 1 / heads
    patterns = (
        _Pattern("alone", "nothing", (1.0, 0.0, 0.0), (1 - same) ** 2),
        _Pattern("with A's feature", "A's feature", (1.0, 1.0, 0.0), same * (1 - same)),
        _Pattern("with B's feature", "B's feature", (1.0, 0.0, 1.0), same * (1 - same)),
        _Pattern("with both", "both", (1.0, 1.0, 1.0), same**2),
    )
    usable = run.usable.all(axis=1)
    winners, held = run.winners[usable], run.contributions[usable]
    together = winners[:, :1] == winners
    effect = remove_heads(held, winners[:, 0], setting)
    rows: list[Row] = []
    measured: list[tuple[float, float]] = []
    for i, pattern in enumerate(patterns):
        chosen: BoolArray = (together == np.array(pattern.shares, dtype=bool)).all(axis=1)
        claimed = effect_of_shares(pattern.shares, setting)
        values = (effect.gain_a[chosen], effect.damage_b[chosen])
        medians = tuple(median_of(value).value for value in values)
        measured.append((medians[0], medians[1]))
        rows.append(
            judge(
                Claim(
                    f"pattern-{i}-probability",
                    f"Draws with the conflict's head {pattern.name}",
                    pattern.probability,
                    acceptance_of_share(pattern.probability, chosen.size),
                    TRAINED,
                ),
                share_of(chosen, "99.9% interval", confidence=0.999),
                run.setting,
            )
        )
        for name, number, value in (
            ("gain of task A", float(claimed.gain_a), values[0]),
            ("damage of task B", float(claimed.damage_b), values[1]),
        ):
            rows.append(
                judge(
                    Claim(
                        f"pattern-{i}-{name.split(' ')[0]}",
                        f"Conflict's head {pattern.name}: {name} (median)",
                        number,
                        within(number, 20 * (1 + abs(setting.t)) * scale**4 * evidence.slack(1.0)),
                        TRAINED,
                    ),
                    median_of(value, f"scale {scale:g}"),
                    run.setting,
                )
            )
    return _pattern_result(patterns, rows, measured, evidence)


def _pattern_result(
    patterns: tuple[_Pattern, ...], rows: list[Row], measured: list[tuple[float, float]], evidence: Evidence
) -> Statement:
    names = tuple(pattern.label for pattern in patterns)
    claims = [effect_of_shares(pattern.shares, evidence.setting) for pattern in patterns]
    gains, damages = zip(*measured, strict=True)
    plot = Plot(
        x_label="what else the conflict's head holds",
        y_label="change of risk (median)",
        series=(
            Series(name="gain of task A", x=names, y=gains, style="bars"),
            Series(name="damage of task B", x=names, y=damages, style="bars"),
            Series(name="formula, gain", x=names, y=tuple(float(claim.gain_a) for claim in claims)),
            Series(name="formula, damage", x=names, y=tuple(float(claim.damage_b) for claim in claims)),
        ),
    )
    return Statement(
        key="patterns",
        title="What else the conflict's head holds decides what its removal does",
        text="Task A loses where the head also holds A's own feature and that feature is the larger one; task B "
        "loses more where it also holds B's.",
        rows=tuple(rows),
        plot=plot,
    )


class _Ends(Protocol):
    """Trained models, by descent or by flow."""

    @property
    def contributions(self) -> FloatArray: ...
    @property
    def winners(self) -> IntArray: ...


class _Slopes(NamedTuple):
    """Orders between two scales, one value a draw."""

    gain_a: FloatArray
    damage_b: FloatArray


def order_statement(evidence: Evidence) -> Statement:
    """Orders of the deviations of the gain and the damage from their limits."""
    rows: list[Row] = []
    for run in evidence.judged.values():
        rows += _constant_rows(run, evidence)
    (coarse, first), (fine, second) = list(evidence.runs.items())[1:3]
    slopes = _slopes(coarse / fine, first, second, evidence)
    rows += _slope_rows(slopes, evidence.at(coarse), f"descent, scales {coarse:g} and {fine:g}", (0.1, 0.05))
    flow = _slopes(2.0, evidence.flows[0.02], evidence.flows[0.01], evidence)
    rows += _slope_rows(flow, evidence.at(0.02), "flow, scales 0.02 and 0.01", (0.02, 0.02))
    return Statement(
        key="orders",
        title="Gain and damage approach their limits with powers of the initialisation scale",
        text="The losers keep a part of fourth order of the conflict; it enters the damage as it is and the gain "
        "squared. Slopes are taken per draw: means over draws fall more slowly, because a few near-ties "
        "dominate them.",
        rows=tuple(rows),
        plot=_order_plot(evidence),
    )


def _deviations(ends: _Ends, on: BoolArray, setting: Setting) -> Deviations:
    return deviations_on_separation(ends.contributions[on], ends.winners[on, 0], setting)


def _separated(ends: _Ends) -> BoolArray:
    shared, first, second = ends.winners.T
    return np.asarray((shared != first) & (shared != second) & (ends.winners >= 0).all(axis=1))


def _constant_rows(run: Simulation, evidence: Evidence) -> list[Row]:
    """Median deviations in units of their order against what the losers' products predict, draw by draw."""
    setting, scale = run.setting, run.setting.init_scale
    products = evidence.loser_products
    leaders = run.leader.head[: len(products)]
    shared, first, second = leaders.T
    on = np.asarray(
        (shared != first) & (shared != second) & (run.winners[: len(products)] == leaders).all(axis=1)
    )
    held = run.contributions[: len(products)]
    measured = deviations_on_separation(held[on], shared[on], setting)
    kept = deviations_on_separation(products[on] * scale**4, shared[on], setting)
    rows = []
    for name, power, values, predicted in (
        ("damage of task B from 3 t²", 4, measured.damage_b, kept.damage_b),
        ("gain of task A from t²", 8, measured.gain_a, kept.gain_a),
    ):
        claimed = float(np.median(np.abs(predicted))) / scale**power if predicted.size else math.nan
        claim = Claim(
            f"constant-{name.split(' ')[0]}-{scale:g}",
            f"Distance of the {name}, over the {power}th power of the scale (median), scale {scale:g}",
            claimed,
            within(claimed, (0.02 + 15 * scale**2) * claimed),
            TRAINED,
        )
        note = "claimed: from the losers' products at the leader's escape, same draws"
        rows.append(judge(claim, median_of(np.abs(values) / scale**power, note), setting))
    return rows


def _slopes(factor: float, coarse: _Ends, fine: _Ends, evidence: Evidence) -> _Slopes:
    """Log-log slopes over the draws that have the same separated winners at both scales."""
    on = _separated(coarse) & (coarse.winners == fine.winners).all(axis=1)
    large, small = (_deviations(ends, on, evidence.setting) for ends in (coarse, fine))
    return _Slopes(*(np.log(np.abs(x / y)) / np.log(factor) for x, y in zip(large, small, strict=True)))


def _slope_rows(slopes: _Slopes, setting: Setting, how: str, tolerances: tuple[float, float]) -> list[Row]:
    rows = []
    for name, order, values, tolerance in (
        ("gain of task A", 8.0, slopes.gain_a, tolerances[0]),
        ("damage of task B", 4.0, slopes.damage_b, tolerances[1]),
    ):
        claim = Claim(
            f"order-{name.split(' ')[0]}-{how.split(',', maxsplit=1)[0]}",
            f"Order in the scale of the {name} (median slope per draw), {how}",
            order,
            within(order, tolerance),
            TRAINED,
        )
        note = "the paper states at least 4" if order > 4 else ""
        rows.append(judge(claim, median_of(values, note), setting))
    return rows


def _order_plot(evidence: Evidence) -> Plot:
    scales = tuple(evidence.runs)
    gains, damages, means = [], [], []
    for run in evidence.runs.values():
        deviation = _deviations(run, run.separated, evidence.setting)
        gains.append(np.abs(deviation.gain_a))
        damages.append(np.abs(deviation.damage_b))
        means.append(float(damages[-1].mean()) if damages[-1].size else math.nan)
    gain, damage = (
        median_series(name, scales, x) for name, x in (("gain, median", gains), ("damage, median", damages))
    )
    lines = []
    for series, power in ((gain, 8), (damage, 4)):
        heights = tuple(series.y[-1] * (scale / scales[-1]) ** power for scale in scales)
        lines.append(Series(name=f"slope {power}", x=scales, y=heights, style="claim"))
    return Plot(
        x_label="initialisation scale",
        y_label="distance from the limit",
        log_x=True,
        log_y=True,
        series=(gain, damage, Series(name="damage, mean", x=scales, y=tuple(means)), *lines),
    )
