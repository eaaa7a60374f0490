"""The sweep engine: the reference engine's answers from far fewer layer-tokens."""

from cel_lens.evaluation.sweep.engine import SweepEngine, why_not_sweep

__all__ = ["SweepEngine", "why_not_sweep"]
