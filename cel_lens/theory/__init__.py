"""Three heads, two tasks, one conflict: why a removable head can appear at all.

A small attention model that can be solved: its training from a small initialisation gives every
feature to one head, and removing the head that holds the conflicting feature helps one task and hurts
the other. Source: "Can Capability Enhancement be Localized?", sections 4 and B.
"""

from cel_lens.theory.ablation import (
    Allocation,
    Deviations,
    RemovalEffect,
    deviations_on_separation,
    effect_of_shares,
    equally_optimal_allocations,
    remove_heads,
)
from cel_lens.theory.attention import attention_output, literal_objective, task_population
from cel_lens.theory.claims import verify
from cel_lens.theory.descent import Schedule, Status
from cel_lens.theory.escape import (
    AuxiliaryPath,
    Leader,
    auxiliary_path,
    escape_time,
    loser_products,
    predicted_leader,
)
from cel_lens.theory.extensions import (
    Layout,
    LayoutRun,
    conflict_of_tasks,
    conflict_of_weights,
    race_layout,
    separation_probability,
    separation_probability_unequal,
    train_layout,
    win_probabilities,
)
from cel_lens.theory.finite_samples import SampledRun, Sampling, train_on_samples
from cel_lens.theory.flow import BalancedOrbit, FlowEnd, balanced_orbit, run_flow
from cel_lens.theory.model import (
    Risks,
    draw_quartets,
    gradients,
    head_contributions,
    joint_objective,
    predictor,
    risks,
)
from cel_lens.theory.non_diagonal import FullRun, train_full_projections
from cel_lens.theory.optimisers import shares_after
from cel_lens.theory.parameters import Assumption, Setting
from cel_lens.theory.report import write_report
from cel_lens.theory.simulation import Simulation, simulate, simulate_from
from cel_lens.theory.tracking import Tracking, tracking_errors
from cel_lens.theory.verification import Plot, Row, Series, Statement, Verdict, Verification

__all__ = [
    "Allocation",
    "Assumption",
    "AuxiliaryPath",
    "BalancedOrbit",
    "Deviations",
    "FlowEnd",
    "FullRun",
    "Layout",
    "LayoutRun",
    "Leader",
    "Plot",
    "RemovalEffect",
    "Risks",
    "Row",
    "SampledRun",
    "Sampling",
    "Schedule",
    "Series",
    "Setting",
    "Simulation",
    "Statement",
    "Status",
    "Tracking",
    "Verdict",
    "Verification",
    "attention_output",
    "auxiliary_path",
    "balanced_orbit",
    "conflict_of_tasks",
    "conflict_of_weights",
    "deviations_on_separation",
    "draw_quartets",
    "effect_of_shares",
    "equally_optimal_allocations",
    "escape_time",
    "gradients",
    "head_contributions",
    "joint_objective",
    "literal_objective",
    "loser_products",
    "predicted_leader",
    "predictor",
    "race_layout",
    "remove_heads",
    "risks",
    "run_flow",
    "separation_probability",
    "separation_probability_unequal",
    "shares_after",
    "simulate",
    "simulate_from",
    "task_population",
    "tracking_errors",
    "train_full_projections",
    "train_layout",
    "train_on_samples",
    "verify",
    "win_probabilities",
    "write_report",
]
