"""Where each model family keeps the weights that carry the heads' outputs into the residual stream."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from cel_lens.errors import ModelLoadError, UnsupportedModel

__all__ = ["PROJECTIONS", "Projection", "projection_of"]


@dataclass(frozen=True, slots=True)
class Projection:
    """The output projection of a family.

    Attributes:
        pattern: Name of its weight in a checkpoint, from the layer's number on, with ``{}`` for that number.
        axis: Which axis runs over the heads' outputs: ``"columns"`` of a linear layer, whose weight is
            ``[d_model, head * d_head]``, or ``"rows"`` of GPT-2's transposed ``Conv1D``.
    """

    pattern: str
    axis: Literal["columns", "rows"] = "columns"

    def find(self, layer: int, names: Iterable[str], model: str) -> str:
        """The one name of a checkpoint that means this projection in a layer.

        What stands before it differs: checkpoints of the bare body lack the body's prefix.

        Args:
            layer: The layer.
            names: Names of all tensors.
            model: How messages call the model.

        Raises:
            ModelLoadError: If there is none, or more than one.
        """
        wanted = re.compile(rf"(?:.*\.)?{re.escape(self.pattern.format(layer))}")
        found = [name for name in names if wanted.fullmatch(name)]
        if len(found) != 1:
            raise ModelLoadError(
                f"{model!r} has {len(found) or 'no'} weights named {self.pattern.format(layer)!r} where one is "
                f"needed, so the heads of layer {layer} cannot be removed from its files"
            )
        return found[0]


_O_PROJ = Projection("layers.{}.self_attn.o_proj.weight")

PROJECTIONS: dict[str, Projection] = {
    "bloom": Projection("h.{}.self_attention.dense.weight"),
    "gemma": _O_PROJ,
    "gemma2": _O_PROJ,
    "gemma3_text": _O_PROJ,
    "gpt2": Projection("h.{}.attn.c_proj.weight", "rows"),
    "gpt_neo": Projection("h.{}.attn.attention.out_proj.weight"),
    "gpt_neox": Projection("layers.{}.attention.dense.weight"),
    "gptj": Projection("h.{}.attn.out_proj.weight"),
    "granite": _O_PROJ,
    "llama": _O_PROJ,
    "mistral": _O_PROJ,
    "mixtral": _O_PROJ,
    "olmo": _O_PROJ,
    "olmo2": _O_PROJ,
    "olmo3": _O_PROJ,
    "opt": Projection("layers.{}.self_attn.out_proj.weight"),
    "phi": Projection("layers.{}.self_attn.dense.weight"),
    "phi3": _O_PROJ,
    "qwen2": _O_PROJ,
    "qwen2_moe": _O_PROJ,
    "qwen3": _O_PROJ,
    "qwen3_moe": _O_PROJ,
    "smollm3": _O_PROJ,
    "stablelm": _O_PROJ,
    "starcoder2": _O_PROJ,
}
"""By ``model_type`` of ``config.json``. A family that is not listed is refused: its heads may lie elsewhere."""


def projection_of(model_type: object, model: str) -> Projection:
    """The output projection of a family.

    Args:
        model_type: As in ``config.json``.
        model: How messages call the model.

    Raises:
        UnsupportedModel: If the family is not listed.
    """
    if not isinstance(model_type, str) or model_type not in PROJECTIONS:
        raise UnsupportedModel(
            f"{model!r} is of the kind {model_type}, for which the place of the heads in a checkpoint is not "
            f"known here, only that of {', '.join(PROJECTIONS)}"
        )
    return PROJECTIONS[model_type]
