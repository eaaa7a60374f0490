"""Statements about which head wins: the leader, how much it holds, and how winners spread over heads."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from cel_lens.theory.ablation import remove_heads
from cel_lens.theory.evidence import TRAINED, Evidence
from cel_lens.theory.flow import balanced_orbit
from cel_lens.theory.intervals import (
    Interval,
    acceptance_of_share,
    chi_square_uniform,
    wilson,
)
from cel_lens.theory.parameters import Assumption, BoolArray, FloatArray, IntArray
from cel_lens.theory.simulation import Simulation
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

__all__ = [
    "leader_statement",
    "localisation_statement",
    "measured_share",
    "median_series",
    "separation_statement",
    "series_of",
    "winners_statement",
]


def measured_share(name: str, evidence: Evidence, event: Callable[[Simulation], BoolArray]) -> Series:
    """Share of an event at every scale, with Wilson intervals."""
    return series_of(name, tuple(evidence.runs), [share_of(event(run)) for run in evidence.runs.values()])


def series_of(name: str, x: tuple[float | str, ...], measured: list[Measured]) -> Series:
    """Measured numbers with their intervals; without one, the interval has no width."""
    ends = [each.interval or Interval(each.value, each.value) for each in measured]
    return Series(
        name=name,
        x=x,
        y=tuple(each.value for each in measured),
        low=tuple(end.low for end in ends),
        high=tuple(end.high for end in ends),
    )


def leader_statement(evidence: Evidence) -> Statement:
    """The head that escapes first is the head that wins."""
    rows = []
    for scale, run in evidence.judged.items():
        right = run.winners == run.leader.head
        missed = max(2e-4, 0.05 * scale**2)
        low = 1 - missed - 3.29 * np.sqrt(missed / right.size) * (evidence.seeds < 10_000)
        rows.append(
            judge(
                Claim(
                    f"leader-{scale:g}",
                    f"Features won by the predicted leader, scale {scale:g}",
                    1.0,
                    Interval(float(low), 1.0),
                    TRAINED,
                ),
                share_of(right),
                run.setting,
            )
        )
    rivals = {
        "largest product": lambda x: x.prod(axis=-1),
        "largest norm": lambda x: np.square(x).sum(axis=-1),
    }
    scales = tuple(evidence.runs)
    plot = Plot(
        x_label="initialisation scale",
        y_label="features won by the predicted head",
        log_x=True,
        series=(
            measured_share("escape time", evidence, lambda run: run.winners == run.leader.head),
            *(_rival(name, evidence, score) for name, score in rivals.items()),
            Series(name="limit", x=scales, y=(1.0,) * len(scales), style="limit"),
        ),
    )
    return Statement(
        key="leader",
        title="The head that escapes first wins the feature",
        text="The prediction uses the initial weights alone. The other two lines show simpler predictors, "
        "which fail: only the escape time orders the heads.",
        rows=tuple(rows),
        plot=plot,
    )


def _rival(name: str, evidence: Evidence, score: Callable[[FloatArray], FloatArray]) -> Series:
    """How often a simpler score of the initial quartets names the winner."""
    return measured_share(name, evidence, lambda run: run.winners == score(run.initial).argmax(axis=-1))


def localisation_statement(evidence: Evidence) -> Statement:
    """The winner's share, and the weights it ends with."""
    rows = []
    for scale, run in evidence.judged.items():
        high = run.shares > 0.99
        predicted = float(evidence.predicted_localised(run).mean())
        rows.append(
            judge(
                Claim(
                    f"share-{scale:g}",
                    f"Features whose winner holds over 99%, scale {scale:g}",
                    predicted,
                    within(predicted, evidence.slack(0.006)),
                    TRAINED,
                ),
                share_of(
                    high,
                    "claimed: first-order prediction from the escape gaps of the same draws",
                ),
                run.setting,
            )
        )
    rows.extend(_orbit_rows(evidence))
    scales = tuple(evidence.runs)
    predicted_line = tuple(float(evidence.predicted_localised(run).mean()) for run in evidence.runs.values())
    features = (
        measured_share(f"feature {j}", evidence, lambda run, j=j: run.shares[:, j] > 0.99)  # type: ignore[misc]
        for j in range(3)
    )
    plot = Plot(
        x_label="initialisation scale",
        y_label="share of draws above 99%",
        log_x=True,
        series=(*features, Series(name="predicted, all features", x=scales, y=predicted_line, style="claim")),
    )
    return Statement(
        key="localisation",
        title="One head ends up with almost all of a feature",
        text="Two heads share a feature only if their escape times differ by less than a multiple of the squared "
        "initialisation scale, so localisation becomes certain as the scale falls. The winner ends on the "
        "balanced orbit, whose weights are known in closed form.",
        rows=tuple(rows),
        plot=plot,
    )


def _orbit_rows(evidence: Evidence) -> list[Row]:
    """Median winner weights in flow against the balanced orbit, one row a feature."""
    rows = []
    scale = min(evidence.flows)
    flow = evidence.flows[scale]
    for j, beta in enumerate(evidence.setting.targets):
        orbit = balanced_orbit(abs(float(beta)))
        index = flow.winners[:, j, None, None]
        weights = np.abs(np.take_along_axis(flow.quartets[:, j], index, axis=1)[:, 0])
        expected = np.array([orbit.query_key] * 2 + [orbit.value_output] * 2)
        away = float(np.abs(np.median(weights, axis=0) - expected).max())
        rows.append(
            judge(
                Claim(
                    f"orbit-{j}",
                    f"Winner of feature {j}: median weights minus the balanced orbit",
                    0.0,
                    Interval(0.0, 1e-3),
                    (Assumption.POSITIVE_TARGETS,),
                ),
                Measured(
                    away,
                    note=f"gradient flow at scale {scale:g}; orbit has |q| = |k| = {orbit.query_key:.4f} and "
                    f"|v| = |o| = {orbit.value_output:.4f}",
                ),
                evidence.at(scale),
            )
        )
    return rows


def winners_statement(evidence: Evidence) -> Statement:
    """Winners are uniform over heads and independent over features."""
    from scipy.stats import chi2

    scale = min(evidence.runs)
    run = evidence.runs[scale]
    heads = evidence.setting.n_heads
    cells = (run.winners * heads ** np.arange(3)[::-1]).sum(axis=1)[run.usable.all(axis=1)]
    counts = np.bincount(cells, minlength=heads**3)
    test = chi_square_uniform(counts)
    accepted = Interval(float(chi2.ppf(0.001, test.freedom)), float(chi2.ppf(0.999, test.freedom)))
    rows = [
        judge(
            Claim(
                "winners-joint",
                "Chi-square of the joint table of the three winners",
                float(test.freedom),
                accepted,
                TRAINED,
            ),
            Measured(test.statistic, note=f"scale {scale:g}, {heads**3} cells, p = {test.p_value:.3f}"),
            run.setting,
        )
    ]
    for j in range(3):
        first = run.winners[:, j] == 0
        rows.append(
            judge(
                Claim(
                    f"winners-{j}",
                    f"Draws in which head 0 wins feature {j}",
                    1 / heads,
                    acceptance_of_share(1 / heads, first.size),
                    TRAINED,
                ),
                share_of(first),
                run.setting,
            )
        )
    return Statement(
        key="winners",
        title="Winners are uniform over the heads and independent over the features",
        text="Heads are exchangeable and features never interact, so every combination of winners is equally "
        "likely. One test of the joint table covers uniformity and independence together.",
        rows=tuple(rows),
        plot=_winners_plot(counts, heads),
    )


def _winners_plot(counts: IntArray, heads: int) -> Plot:
    """Share of every combination of winners, counts of shape (H^3,)."""
    total = int(counts.sum())
    cells = [np.unravel_index(cell, (heads,) * 3) for cell in range(len(counts))]
    names = tuple("".join(str(head) for head in cell) for cell in cells)
    measured = [Measured(int(count) / total, wilson(int(count), total)) for count in counts]
    return Plot(
        x_label="winners of features 0, 1 and 2",
        y_label="share of draws",
        series=(
            series_of("measured", names, measured),
            Series(name="uniform and independent", x=names, y=(heads**-3.0,) * len(names), style="claim"),
        ),
    )


def separation_statement(evidence: Evidence) -> Statement:
    """Event E: the conflict's head holds nothing else; alone, and together with localisation."""
    heads = evidence.setting.n_heads
    four_ninths = ((heads - 1) / heads) ** 2
    rows: list[Row] = []
    for scale, run in evidence.judged.items():
        both = run.separated & (run.shares > 0.99).all(axis=1)
        joint = four_ninths * float(evidence.predicted_localised(run).prod())
        n = both.size
        rows += [
            judge(
                Claim(
                    f"separated-{scale:g}",
                    f"Draws in which the conflict's head holds nothing else, scale {scale:g}",
                    four_ninths,
                    acceptance_of_share(four_ninths, n),
                    TRAINED,
                ),
                share_of(run.separated, "99.9% interval", confidence=0.999),
                run.setting,
            ),
            judge(
                Claim(
                    f"separated-localised-{scale:g}",
                    f"The same with every winner's share over 99%, scale {scale:g}",
                    joint,
                    within(joint, evidence.slack(0.017)),
                    TRAINED,
                ),
                share_of(both),
                run.setting,
            ),
        ]
    rows.append(_gain_row(evidence))
    scales = tuple(evidence.runs)
    plot = Plot(
        x_label="initialisation scale",
        y_label="share of draws",
        log_x=True,
        series=(
            measured_share("separated", evidence, lambda run: run.separated),
            measured_share(
                "separated and localised",
                evidence,
                lambda run: run.separated & (run.shares > 0.99).all(axis=1),
            ),
            Series(name="limit", x=scales, y=(four_ninths,) * len(scales), style="claim"),
        ),
    )
    return Statement(
        key="separation",
        title="With probability 4/9 the conflict has a head of its own",
        text="By the largest contribution alone this share is exact at every scale, because heads are "
        "exchangeable; what the theory adds is that the winners also hold almost everything.",
        rows=tuple(rows),
        plot=plot,
    )


def _gain_row(evidence: Evidence) -> Row:
    """How often removing the conflict's head helps task A."""
    scale = min(evidence.runs)
    run, setting = evidence.runs[scale], evidence.setting
    usable = run.usable.all(axis=1)
    gain = remove_heads(run.contributions[usable], run.winners[usable, 0], setting).gain_a
    helped = gain > 0
    claimed = 1 - 1 / setting.n_heads if abs(setting.b) > abs(setting.t) else 1.0
    return judge(
        Claim(
            "helps-a",
            "Draws in which removing the conflict's head helps task A",
            claimed,
            within(claimed, evidence.slack(0.02)),
            (*TRAINED, Assumption.DISTINCT_SHARED),
        ),
        share_of(
            helped,
            f"scale {scale:g}; in every draw if |b| were below |t|"
            if abs(setting.b) > abs(setting.t)
            else f"scale {scale:g}",
        ),
        run.setting,
    )


def median_series(name: str, x: tuple[float, ...], samples: list[FloatArray]) -> Series:
    """Medians of samples with their intervals, one point a position."""
    return series_of(name, x, [median_of(sample) for sample in samples])
