"""A checkpoint without the heads, which anything that reads transformers checkpoints can run."""

from cel_lens.export.checkpoint import export_ablated

__all__ = ["export_ablated"]
