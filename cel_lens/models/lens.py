"""A loaded model, whichever class it is, seen through the seam."""

from __future__ import annotations

from typing import Any

from cel_lens.errors import UnsupportedModel
from cel_lens.models.backends import backend_of
from cel_lens.models.bridge import BridgeLens
from cel_lens.models.hooked import HookedLens
from cel_lens.models.protocol import LensModel

__all__ = ["lens_of"]


def lens_of(model: Any) -> LensModel:
    """See a loaded model through the seam.

    Args:
        model: What :func:`cel_lens.load_model` returned, or such an object of your own.

    Raises:
        UnsupportedModel: If it is neither a ``HookedTransformer`` nor a ``TransformerBridge``.
    """
    backend = backend_of(model)
    if backend is None:
        raise UnsupportedModel(
            f"a {type(model).__name__} cannot be ablated here: give a HookedTransformer or a TransformerBridge "
            "(load_model returns one, from a name, a folder or a GGUF file)"
        )
    return HookedLens(model) if backend == "hooked" else BridgeLens(model)
