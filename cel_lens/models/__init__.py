"""Models: the only part of cel_lens that imports TransformerLens."""

from cel_lens.models.ablation import Ablation, zero_ablation
from cel_lens.models.facts import ModelFacts, model_facts, weights_digest
from cel_lens.models.loading import load_model

__all__ = ["Ablation", "ModelFacts", "load_model", "model_facts", "weights_digest", "zero_ablation"]
