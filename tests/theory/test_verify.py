"""The verification confirms the theory, refuses wrong runs, and labels what the theorem does not cover."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from cel_lens.errors import InvalidInput
from cel_lens.theory import Setting, Verdict, simulate, verify, write_report
from cel_lens.theory.claims_descent import checkpoint_statement, step_statement
from cel_lens.theory.claims_removal import order_statement, pattern_statement
from cel_lens.theory.claims_training import (
    leader_statement,
    localisation_statement,
    separation_statement,
    winners_statement,
)
from cel_lens.theory.evidence import Evidence
from cel_lens.theory.figures import draw
from cel_lens.theory.intervals import Interval
from cel_lens.theory.parameters import Assumption
from cel_lens.theory.verification import Claim, Measured, Plot, Series, judge, median_of, observe, share_of

TRAINING = [leader_statement, localisation_statement, separation_statement, checkpoint_statement]


@pytest.fixture(scope="module")
def verification():
    return verify(quick=True, seed=3)


def evidence_of(**changes) -> Evidence:
    """Small evidence whose runs are trained with other settings than they claim."""
    evidence = Evidence(setting=Setting(), seeds=400, seed=5, quick=True)
    evidence.__dict__["runs"] = {
        scale: replace(
            simulate(replace(evidence.at(scale), **changes), seed=5, n_seeds=400), setting=evidence.at(scale)
        )
        for scale in (0.2, 0.1, 0.05)
    }
    return evidence


def verdicts(statement) -> dict[str, Verdict]:
    return {row.claim: row.verdict for row in statement.rows}


def test_everything_inside_the_theorem_is_confirmed(verification):
    failed = [row.cells() for row in verification.rows if row.verdict is Verdict.NOT_CONFIRMED]
    assert failed == []
    assert verification.holds
    assert verification.count(Verdict.CONFIRMED) > 60


def test_only_experiments_are_outside_at_the_default_setting(verification):
    outside = {s.key for s in verification.statements for r in s.rows if r.verdict is Verdict.OUTSIDE}
    assert outside == {"large-scale", "samples", "full-projections", "optimisers"}


def test_rows_are_unique_and_print_as_short_text(verification):
    frame = verification.to_frame()
    assert frame.index.is_unique
    assert len(frame) == len(verification.rows)
    assert np.isfinite(frame[["claimed", "measured"]].to_numpy()).all()
    with_interval = frame.dropna(subset=["low"])
    assert (with_interval["low"] <= with_interval["measured"]).all()
    assert (with_interval["measured"] <= with_interval["high"]).all()
    assert all(len(text) < 24 for row in verification.rows for text in row.cells()[1:4])


def test_every_statement_has_a_plot_of_all_its_series(verification):
    for statement in verification.statements:
        figure = draw(statement.plot)
        assert len(figure.data) == len(statement.plot.series) > 0
        assert all(len(series.y) > 0 for series in statement.plot.series)


def test_a_run_with_the_other_normalisation_of_the_objective_is_caught(monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(Setting, "curvatures", property(lambda self: np.array([2.0, 1.0, 1.0])))
        doubled = evidence_of()
    assert verdicts(step_statement(doubled))["smallest-ratio-0.05"] is Verdict.NOT_CONFIRMED
    assert verdicts(checkpoint_statement(doubled))["unescaped-0.05"] is Verdict.NOT_CONFIRMED


def test_runs_at_another_scale_than_they_say_are_caught():
    evidence = evidence_of(init_scale=0.4)
    found = verdicts(localisation_statement(evidence)) | verdicts(order_statement(evidence))
    for claim in ("share-0.05", "constant-damage-0.05", "constant-gain-0.1", "order-damage-descent"):
        assert found[claim] is Verdict.NOT_CONFIRMED, claim


def test_a_wrong_leader_and_unfair_winners_are_caught():
    evidence = evidence_of()
    for scale, run in evidence.runs.items():
        wrong = run.leader._replace(head=run.initial.prod(axis=-1).argmax(axis=-1))
        contributions = run.contributions.copy()
        contributions[:60] = np.roll(contributions[:60], 1, axis=-1)
        contributions[:200, 2] = np.sort(contributions[:200, 2], axis=-1)
        evidence.runs[scale] = replace(run, leader=wrong, contributions=contributions)
    assert set(verdicts(leader_statement(evidence)).values()) == {Verdict.NOT_CONFIRMED}
    found = verdicts(winners_statement(evidence))
    assert found["winners-joint"] is Verdict.NOT_CONFIRMED
    assert found["winners-2"] is Verdict.NOT_CONFIRMED


@pytest.mark.parametrize(
    ("changes", "assumption"),
    [
        ({"init_scale": 0.3}, Assumption.SMALL_INIT),
        ({"c": -1.0}, Assumption.POSITIVE_TARGETS),
        ({"n_heads": 4}, Assumption.THREE_HEADS),
        ({"step_size": 0.3}, Assumption.STEP_SIZE),
    ],
)
@pytest.mark.parametrize("build", TRAINING)
def test_settings_outside_the_theorem_are_measured_and_labelled(build, changes, assumption):
    evidence = Evidence(setting=Setting(**changes), seeds=100, seed=1, quick=True)
    trained = [row for row in build(evidence).rows if not row.claim.startswith("orbit")]
    for row in trained:
        assert row.verdict is Verdict.OUTSIDE
        assert assumption.value in row.note
        assert np.isfinite(row.measured)


def test_a_setting_far_outside_is_measured_to_the_end_without_a_false_verdict(tmp_path):
    far = verify(Setting(init_scale=0.8, n_heads=2, a=-2.0), seeds=100, quick=True, seed=4)
    assert far.count(Verdict.NOT_CONFIRMED) == 0
    assert far.count(Verdict.OUTSIDE) > 60
    assert write_report(far, tmp_path / "far.html").stat().st_size > 1e6


def test_effects_follow_other_targets_too():
    evidence = Evidence(setting=Setting(a=3.0, b=1.2, c=0.8, step_size=0.12), seeds=400, seed=2, quick=True)
    assert evidence.setting.violated() == ()
    found = {**verdicts(pattern_statement(evidence)), **verdicts(separation_statement(evidence))}
    assert set(found.values()) == {Verdict.CONFIRMED}


def test_nothing_observed_is_not_a_number_and_never_confirmed():
    claim = Claim("key", "text", 0.5, Interval(0.0, 1.0))
    for empty in (share_of(np.zeros(0, dtype=bool)), median_of(np.zeros(0))):
        assert np.isnan(empty.value)
        assert judge(claim, empty, Setting()).verdict is Verdict.NOT_CONFIRMED


def test_verdicts_follow_the_accepted_range_and_the_assumptions():
    claim = Claim("key", "text", 1.0, Interval(0.9, 1.1), (Assumption.SMALL_INIT,))
    small, large = Setting(init_scale=0.1), Setting(init_scale=0.4)
    assert judge(claim, Measured(1.05), small).verdict is Verdict.CONFIRMED
    assert judge(claim, Measured(1.2), small).verdict is Verdict.NOT_CONFIRMED
    assert judge(claim, Measured(float("nan")), small).verdict is Verdict.NOT_CONFIRMED
    assert judge(claim, Measured(1.05), large).verdict is Verdict.OUTSIDE
    assert observe(claim, Measured(1.0)).verdict is Verdict.OUTSIDE


def test_report_is_one_page_without_network(verification, tmp_path):
    text = write_report(verification, tmp_path / "theory.html").read_text(encoding="utf-8")
    markup = re.sub(r"<script.*?</script>", "", text, flags=re.DOTALL)
    assert not re.search(
        r"<(script|link|img|iframe)[^>]*\s(src|href)=", text[: text.index("Plotly")] + markup
    )
    assert "prefers-color-scheme: dark" in markup
    assert 'name="viewport"' in markup
    assert text.count("Plotly.newPlot(") >= len(verification.statements)
    for statement in verification.statements:
        assert f'id="plot-{statement.key}"' in markup
    assert markup.count('class="verdict"') == len(verification.rows)


def test_unusable_requests_are_refused(verification, tmp_path):
    with pytest.raises(InvalidInput, match="seeds"):
        verify(seeds=20)
    with pytest.raises(InvalidInput, match="init_scale"):
        verify(Setting(init_scale=0.001))
    with pytest.raises(InvalidInput, match="existing folder"):
        write_report(verification, tmp_path / "missing" / "theory.html")
    with pytest.raises(InvalidInput, match="different lengths"):
        Series(name="uneven", x=(1.0, 2.0), y=(1.0,))


def test_drawing_places_points_on_grouped_bars_and_keeps_errors():
    bars = [Series(name=name, x=("p", "q"), y=(1.0, 2.0), style="bars") for name in "ab"]
    points = [Series(name=name, x=("p", "q"), y=(1.0, 2.0), low=(0.5, 1.0), high=(1.5, 4.0)) for name in "cd"]
    figure = draw(Plot(x_label="x", y_label="y", series=(*bars, *points)))
    assert [trace.offsetgroup for trace in figure.data] == ["0", "1", "0", "1"]
    assert list(figure.data[2].error_y.array) == [0.5, 2.0]
    assert list(figure.data[2].error_y.arrayminus) == [0.5, 1.0]


@pytest.mark.slow
def test_the_full_verification_confirms_everything():
    assert verify(seed=11).holds
