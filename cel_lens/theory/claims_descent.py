"""Statements about the path of descent: tracking, no overshoot, the checkpoint, the clock, the losers."""

from __future__ import annotations

import numpy as np

from cel_lens.theory.claims_training import measured_share, median_series
from cel_lens.theory.descent import Batch, Schedule, Status, descend
from cel_lens.theory.evidence import TRAINED, Evidence
from cel_lens.theory.flow import balanced_orbit
from cel_lens.theory.intervals import Interval
from cel_lens.theory.model import draw_quartets
from cel_lens.theory.parameters import Assumption, BoolArray, FloatArray
from cel_lens.theory.simulation import Simulation
from cel_lens.theory.tracking import tracking_errors
from cel_lens.theory.verification import (
    Claim,
    Measured,
    Plot,
    Row,
    Series,
    Statement,
    judge,
    median_of,
    share_of,
    within,
)

__all__ = ["checkpoint_statement", "clock_statement", "step_statement", "tracking_statement"]

_GROWTH = 1e-12


def tracking_statement(evidence: Evidence) -> Statement:
    """Distance between descent and the auxiliary equation before escape."""
    n, shrinking_scales = (10, (0.15, 0.075)) if evidence.quick else (40, (0.2, 0.1, 0.05))
    fixed = tracking_errors((0.1, 0.05, 0.025), seed=evidence.seed, n_seeds=n)
    evidence.say("tracking with a fixed step")
    shrinking = tracking_errors(
        shrinking_scales,
        step_size=0.1 * (shrinking_scales[0] / 0.2) ** 2,
        order=2,
        seed=evidence.seed,
        n_seeds=n,
    )
    evidence.say("tracking with a shrinking step")
    rows = tuple(
        judge(
            Claim(key, f"Order in the scale of the tracking error, {how}", order, accepted),
            median_of(
                run.slopes[-1],
                f"{n} draws, scales {run.scales[-2]:g} and {run.scales[-1]:g}",
            ),
            evidence.setting,
        )
        for key, how, order, accepted, run in (
            ("tracking-fixed", "fixed step size", 2.0, Interval(1.9, 2.4), fixed),
            ("tracking-shrinking", "step size falling with scale²", 4.0, Interval(3.8, 4.1), shrinking),
        )
    )
    plot = Plot(
        x_label="initialisation scale",
        y_label="largest distance before escape",
        log_x=True,
        log_y=True,
        series=tuple(
            series
            for name, run, power in (("fixed step", fixed, 2), ("step falling with scale²", shrinking, 4))
            for series in (
                median_series(name, tuple(run.scales.tolist()), list(run.errors)),
                Series(
                    name=f"slope {power}",
                    x=tuple(run.scales.tolist()),
                    y=tuple(np.median(run.errors[-1]) * (run.scales / run.scales[-1]) ** power),
                    style="claim",
                ),
            )
        ),
    )
    return Statement(
        key="tracking",
        title="Before escape, descent follows the auxiliary equation",
        text="The distance is taken in scaled weights up to 80% of the leader's escape time. With a fixed step "
        "size Euler's error is of second order in the scale; with a step that falls as the squared scale the "
        "remaining fourth-order term shows.",
        rows=rows,
        plot=plot,
    )


def step_statement(evidence: Evidence) -> Statement:
    """The residual falls at every step, and where half-steps and overshoot begin."""
    pk = balanced_orbit(abs(evidence.setting.t)).curvature
    grid = np.array([0.3, 0.45, 0.5, 0.55, 0.8, 0.95, 1.0, 1.05, 1.15]) / pk
    ratios = [_ratios(evidence, float(step)) for step in grid]
    medians = np.array([np.median(ratio) for ratio in ratios])
    rows = _ratio_rows(evidence) + _threshold_rows(evidence, grid, medians, pk)
    steps = tuple(grid.tolist())
    plot = Plot(
        x_label="step size",
        y_label="smallest ratio of successive residuals",
        series=(
            median_series("feature 0", steps, ratios),
            Series(name="1 - step size · p K", x=steps, y=tuple((1 - grid * pk).tolist()), style="claim"),
            Series(name="half", x=steps, y=(0.5,) * len(steps), style="limit"),
            Series(name="overshoot", x=steps, y=(0.0,) * len(steps), style="limit"),
        ),
    )
    return Statement(
        key="step",
        title="Below a known step size the residual shrinks at every step and never overshoots",
        text="K is the squared gradient of the winner's contribution on the balanced orbit. The ratio of "
        "successive residuals is smallest at the end of training, where it is 1 - eta p K.",
        rows=tuple(rows),
        plot=plot,
    )


def _ratio_rows(evidence: Evidence) -> list[Row]:
    """Largest and smallest ratio of successive residuals at every scale."""
    rows: list[Row] = []
    first_order = 1 - evidence.setting.step_size * evidence.largest_curvature
    for scale, run in evidence.judged.items():
        rows += [
            judge(
                Claim(
                    f"monotone-{scale:g}",
                    f"Largest ratio of successive residuals, scale {scale:g}",
                    1.0,
                    Interval(-np.inf, 1 + _GROWTH),
                    TRAINED,
                ),
                Measured(float(run.max_ratio.max()), note="at most 1: the residual never grows"),
                run.setting,
            ),
            judge(
                Claim(
                    f"smallest-ratio-{scale:g}",
                    f"Smallest ratio of successive residuals, scale {scale:g}",
                    first_order,
                    within(first_order, 0.02),
                    TRAINED,
                ),
                Measured(
                    float(run.min_ratio.min()),
                    note="claimed: 1 - eta p K to first order; positive: no overshoot",
                ),
                run.setting,
            ),
        ]
    return rows


def _threshold_rows(evidence: Evidence, grid: FloatArray, medians: FloatArray, pk: float) -> list[Row]:
    """Step sizes at which the median smallest ratio of feature 0 crosses one half and zero."""
    rows: list[Row] = []
    for key, level, name in (("half-step", 0.5, "falls by half or more"), ("overshoot", 0.0, "overshoots")):
        threshold = (1 - level) / pk
        found = float(np.interp(-level, -medians, grid))
        rows.append(
            judge(
                Claim(
                    f"threshold-{key}",
                    f"Step size from which the residual of feature 0 {name}",
                    threshold,
                    within(threshold, 0.03 * threshold),
                    (Assumption.POSITIVE_TARGETS, Assumption.SMALL_INIT),
                ),
                Measured(
                    found, note=f"claimed: {1 - level:g} / (p K); interpolated in the median over draws"
                ),
                evidence.setting,
            )
        )
    return rows


def _ratios(evidence: Evidence, step_size: float) -> FloatArray:
    """Smallest ratio of feature 0 in each of some draws at one step size."""
    setting = evidence.setting
    n = 30 if evidence.quick else 200
    batch = Batch(
        initial=draw_quartets(evidence.seed, n, n_heads=setting.n_heads, n_features=1)[:, 0],
        targets=np.full(n, setting.t),
        curvatures=np.ones(n),
    )
    ended = descend(batch, Schedule(step_size=step_size, init_scale=setting.init_scale))
    return np.asarray(ended.min_ratio[ended.status != Status.DIVERGED])


def checkpoint_statement(evidence: Evidence) -> Statement:
    """Who has escaped at the checkpoint, and what residual is left then."""
    rows = [row for run in evidence.judged.values() for row in _checkpoint_rows(run, evidence)]
    predicted = tuple(float(_late(run).mean()) for run in evidence.runs.values())
    scales = tuple(evidence.runs)
    plot = Plot(
        x_label="initialisation scale",
        y_label="share of features not escaped",
        log_x=True,
        series=(
            measured_share("measured", evidence, _unescaped),
            Series(name="predicted", x=scales, y=predicted, style="claim"),
        ),
    )
    return Statement(
        key="checkpoint",
        title="At the checkpoint a feature is fitted unless its leader is late",
        text="The checkpoint is log(1/alpha) / (eta alpha²) steps. For one draw the residual there vanishes as the "
        "scale falls; over draws a slowly shrinking share has not escaped yet, and the escape times say "
        "which.",
        rows=tuple(rows),
        plot=plot,
    )


def _checkpoint_rows(run: Simulation, evidence: Evidence) -> list[Row]:
    """Share that has not escaped at the checkpoint, and residuals of those that were due before it."""
    scale, waiting, late = run.setting.init_scale, _unescaped(run), _late(run)
    early = run.leader.time <= 0.8 * _allowed(run)
    fitted = np.abs(run.checkpoint_residuals) <= scale**4 * np.abs(run.setting.targets)
    held = fitted[early]
    return [
        judge(
            Claim(
                f"unescaped-{scale:g}",
                f"Features not yet escaped at the checkpoint, scale {scale:g}",
                float(late.mean()),
                within(float(late.mean()), evidence.slack(0.004)),
                TRAINED,
            ),
            share_of(
                waiting,
                f"step {run.setting.checkpoint:,}; claimed: from the escape times alone",
            ),
            run.setting,
        ),
        judge(
            Claim(
                f"checkpoint-{scale:g}",
                f"Features due well before the checkpoint with residual below scale⁴, scale {scale:g}",
                1.0,
                Interval(0.999, 1.0),
                TRAINED,
            ),
            share_of(
                held,
                "due: predicted escape before 80% of the checkpoint",
            ),
            run.setting,
        ),
    ]


def _allowed(run: Simulation) -> FloatArray:
    """Escape time that just reaches the checkpoint, shape (3,)."""
    setting = run.setting
    return np.asarray(setting.curvatures * np.abs(setting.targets) * max(np.log(1 / setting.init_scale), 0.0))


def _late(run: Simulation) -> BoolArray:
    return np.asarray(run.leader.time > _allowed(run))


def _unescaped(run: Simulation) -> BoolArray:
    return np.asarray(np.abs(run.checkpoint_residuals) > np.abs(run.setting.targets) / 2)


def clock_statement(evidence: Evidence) -> Statement:
    """When the race stops, and what the losers keep."""
    rows = _clock_rows(evidence)
    flow = evidence.flows[0.01]
    products = evidence.loser_products
    others = np.isfinite(products)
    predicted, held = 0.01**4 * products[others], flow.contributions[others]
    ratio = held / predicted
    rows.append(
        judge(
            Claim(
                "losers",
                "What a loser keeps, over scale⁴ times its product at the leader's escape (median)",
                1.0,
                within(1.0, 5e-4),
                (Assumption.POSITIVE_TARGETS,),
            ),
            median_of(ratio, "gradient flow at scale 0.01"),
            evidence.at(0.01),
        )
    )
    x, y = np.abs(predicted[:400]), np.abs(held[:400])
    order = np.argsort(x)
    plot = Plot(
        x_label="predicted from the auxiliary equation",
        y_label="contribution of a loser (magnitude)",
        log_x=True,
        log_y=True,
        series=(
            Series(name="losers", x=tuple(x[order].tolist()), y=tuple(y[order].tolist())),
            Series(
                name="equal",
                x=(float(x.min()), float(x.max())),
                y=(float(x.min()), float(x.max())),
                style="claim",
            ),
        ),
    )
    return Statement(
        key="clock",
        title="The race stops at the leader's escape, and losers keep a fourth-order part",
        text="All heads of a feature share one clock. It stops when the feature is fitted, a known step of second "
        "order after the leader's escape time, so a loser stays where the auxiliary equation has taken it.",
        rows=tuple(rows),
        plot=plot,
    )


def _clock_rows(evidence: Evidence) -> list[Row]:
    """Clock at the end against the leader's escape time, one row a feature."""
    rows: list[Row] = []
    scale, run = next(iter(evidence.judged.items()))
    setting = run.setting
    drift = (run.clock - run.leader.time) / scale**2
    for j, beta in enumerate(np.abs(setting.targets)):
        euler = 1.5 * setting.step_size * setting.curvatures[j] * beta * np.log(1 / scale)
        claimed = balanced_orbit(float(beta)).clock_offset + euler
        rows.append(
            judge(
                Claim(
                    f"clock-{j}",
                    f"Feature {j}: clock minus the leader's escape time, over scale² (median)",
                    claimed,
                    within(claimed, max(0.05, evidence.slack(0.02))),
                    TRAINED,
                ),
                median_of(
                    drift[:, j],
                    f"scale {scale:g}; claimed: kappa + (3/2) eta p beta log(1/scale)",
                ),
                setting,
            )
        )
    return rows
