"""How much runs at once, from a memory budget."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from cel_lens.errors import InvalidInput
from cel_lens.models.protocol import LensModel
from cel_lens.models.size import free_memory

__all__ = ["Budget"]

_MOST_TOKENS = 2048
"""Tokens in one chunk: enough to fill matrix products, few enough for a processor's cache."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Limits in tokens.

    Attributes:
        slice_tokens: Tokens whose intact residual stream is kept at a time.
        chunk_tokens: Tokens of all conditions together that climb at a time.
    """

    slice_tokens: int
    chunk_tokens: int

    @classmethod
    def of(cls, lens: LensModel, memory: int | None, *, longest: int, keeps_below: bool) -> Budget:
        """Turn bytes into tokens.

        Args:
            lens: The model.
            memory: Bytes; ``None``: 60 % of what is free.
            longest: Tokens of the longest row with everything in front of it.
            keeps_below: Whether keys and values of all layers are kept, as generation needs.

        Raises:
            InvalidInput: If not even one short row fits.
        """
        available = int(0.6 * free_memory(lens.device)) if memory is None else memory
        size = torch.empty(0, dtype=lens.dtype).element_size()
        keys_values = 2 * lens.n_key_value_heads * lens.d_head * size * lens.n_layers
        kept = lens.d_model * size + (keys_values if keeps_below else 0)
        climbing = keys_values + 4 * size * (lens.d_model * 3 + lens.d_mlp) + 8 * lens.n_heads * longest
        budget = cls(
            slice_tokens=int(0.4 * available / kept),
            chunk_tokens=min(_MOST_TOKENS, int(0.4 * available / climbing)),
        )
        if budget.chunk_tokens < 64:
            raise InvalidInput(f"a memory budget of {available:,} bytes is too small for this model")
        return budget
