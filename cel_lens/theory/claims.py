"""`verify`: every statement of the theory, claimed and measured."""

from __future__ import annotations

from cel_lens.theory import (
    claims_beyond,
    claims_descent,
    claims_model,
    claims_removal,
    claims_training,
)
from cel_lens.theory.descent import Progress
from cel_lens.theory.evidence import Evidence
from cel_lens.theory.parameters import Setting, require_count
from cel_lens.theory.verification import Verification

__all__ = ["verify"]

_STATEMENTS = (
    claims_model.model_statement,
    claims_model.optimum_statement,
    claims_model.escape_statement,
    claims_descent.tracking_statement,
    claims_training.leader_statement,
    claims_training.localisation_statement,
    claims_training.winners_statement,
    claims_training.separation_statement,
    claims_removal.removal_statement,
    claims_removal.pattern_statement,
    claims_removal.order_statement,
    claims_descent.step_statement,
    claims_descent.checkpoint_statement,
    claims_descent.clock_statement,
    claims_beyond.layout_statement,
    claims_beyond.large_scale_statement,
    claims_beyond.sampling_statement,
    claims_beyond.full_projection_statement,
    claims_beyond.optimiser_statement,
)


def verify(
    setting: Setting | None = None,
    *,
    seeds: int | None = None,
    seed: int = 0,
    quick: bool = False,
    progress: Progress | None = None,
) -> Verification:
    """Measure every statement of the theory.

    Models are trained at 4, 2, 1 and 0.4 times the initialisation scale of the setting, all from the same
    draws. The coarsest scale only shows the trend. Tolerances are those of 10,000 initialisations and widen
    with the square root for fewer. What the theorem does not cover (see `Setting.violated`, and the
    experiments at the end) is measured and labelled, not judged.

    Args:
        setting: Targets, step size, base scale (at least 0.01) and heads; `Setting()` by default.
        seeds: Initialisations of the main runs, at least 100; 10,000 by default, 1,000 when quick.
        seed: Seed of all draws.
        quick: Smaller runs and no finest scale: seconds in place of about a minute.
        progress: Receives one short line whenever a part is done.

    Returns:
        Statements with their rows and plots.

    Raises:
        InvalidInput: If a count is unusable, or the base scale too small to train at.
    """
    chosen = seeds if seeds is not None else (1_000 if quick else 10_000)
    evidence = Evidence(
        setting=setting or Setting(),
        seeds=require_count("seeds", chosen, at_least=100),
        seed=require_count("seed", seed, at_least=0),
        quick=quick,
        progress=progress,
    )
    statements = []
    for build in _STATEMENTS:
        statements.append(build(evidence))
        evidence.say(statements[-1].title)
    return Verification(
        setting=evidence.setting,
        seeds=evidence.seeds,
        seed=evidence.seed,
        quick=quick,
        statements=tuple(statements),
    )
