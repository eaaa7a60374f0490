"""Which classes the installed TransformerLens has: version 4 dropped ``HookedTransformer``."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

from cel_lens.models.protocol import Backend
from cel_lens.models.quiet import quiet

__all__ = ["backend_of", "bridge_class", "has_hooked", "hooked_class", "transformer_lens_name"]


def transformer_lens_name() -> str:
    """The library with its version, for messages."""
    return f"TransformerLens {version('transformer-lens')}"


def hooked_class() -> Any:
    """The class ``HookedTransformer``; ``None`` where TransformerLens no longer has it."""
    with quiet():
        try:
            from transformer_lens import HookedTransformer
        except ImportError:
            return None
    return HookedTransformer


def has_hooked() -> bool:
    """Whether ``HookedTransformer`` exists."""
    return hooked_class() is not None


def bridge_class() -> Any:
    """The class ``TransformerBridge``."""
    with quiet():
        from transformer_lens.model_bridge import TransformerBridge
    return TransformerBridge


def backend_of(model: object) -> Backend | None:
    """Which of the two classes a model is; ``None`` if it is neither."""
    hooked = hooked_class()
    if hooked is not None and isinstance(model, hooked):
        return "hooked"
    return "bridge" if isinstance(model, bridge_class()) else None
