"""Wrap what transformers read into TransformerLens' ``TransformerBridge``, with raw weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cel_lens.errors import UnsupportedModel
from cel_lens.models.backends import transformer_lens_name
from cel_lens.models.checkpoints import Checkpoint, first_line
from cel_lens.models.convert import attach_tokenizer
from cel_lens.models.quiet import quiet

__all__ = ["to_bridge"]


def to_bridge(checkpoint: Checkpoint) -> Any:
    """Put the bridge's hooks around a transformers model, which it changes in place.

    Args:
        checkpoint: What transformers read.

    Raises:
        UnsupportedModel: If TransformerLens has no adapter for the architecture.
    """
    architecture = checkpoint.config["architectures"][0]
    hf_model = checkpoint.hf_model
    with quiet():
        from transformer_lens.model_bridge.sources import build_bridge_from_module

        try:
            model = build_bridge_from_module(
                hf_model, architecture, hf_config=hf_model.config, model_name=Path(checkpoint.name).name
            )
        except MemoryError:
            raise
        except Exception as error:
            raise UnsupportedModel(
                f"the bridge of {transformer_lens_name()} cannot wrap {checkpoint.name!r} ({architecture}): "
                f"{first_line(error)}"
            ) from error
        attach_tokenizer(model, checkpoint.tokenizer, checkpoint.eos_token_ids)
    model.eval()
    for parameter in model.parameters():
        parameter.requires_grad_(True)  # as HookedTransformer has them
    return model
