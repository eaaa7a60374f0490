"""Models: the only part of cel_lens that imports TransformerLens."""

from cel_lens.models.facts import ModelFacts, model_facts, weights_digest
from cel_lens.models.loading import load_model

__all__ = ["ModelFacts", "load_model", "model_facts", "weights_digest"]
