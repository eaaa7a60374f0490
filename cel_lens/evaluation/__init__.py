"""From a model, examples and head sets to outcomes."""

from cel_lens.evaluation.evaluator import Engine, Evaluator, evaluate_heads

__all__ = ["Engine", "Evaluator", "evaluate_heads"]
