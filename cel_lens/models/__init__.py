"""Models: the only part of cel_lens that imports TransformerLens."""

from cel_lens.models.ablation import Ablation, zero_ablation
from cel_lens.models.facts import ModelFacts, model_facts, weights_digest
from cel_lens.models.lens import lens_of
from cel_lens.models.loading import load_model
from cel_lens.models.parity import ParityReport, parity_report
from cel_lens.models.protocol import LensModel

__all__ = [
    "Ablation",
    "LensModel",
    "ModelFacts",
    "ParityReport",
    "lens_of",
    "load_model",
    "model_facts",
    "parity_report",
    "weights_digest",
    "zero_ablation",
]
