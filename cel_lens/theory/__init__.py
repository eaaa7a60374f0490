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
from cel_lens.theory.descent import Status
from cel_lens.theory.escape import AuxiliaryPath, Leader, auxiliary_path, escape_time, predicted_leader
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
from cel_lens.theory.parameters import Assumption, Setting
from cel_lens.theory.simulation import Simulation, simulate, simulate_from

__all__ = [
    "Allocation",
    "Assumption",
    "AuxiliaryPath",
    "BalancedOrbit",
    "Deviations",
    "FlowEnd",
    "Leader",
    "RemovalEffect",
    "Risks",
    "Setting",
    "Simulation",
    "Status",
    "attention_output",
    "auxiliary_path",
    "balanced_orbit",
    "deviations_on_separation",
    "draw_quartets",
    "effect_of_shares",
    "equally_optimal_allocations",
    "escape_time",
    "gradients",
    "head_contributions",
    "joint_objective",
    "literal_objective",
    "predicted_leader",
    "predictor",
    "remove_heads",
    "risks",
    "run_flow",
    "simulate",
    "simulate_from",
    "task_population",
]
