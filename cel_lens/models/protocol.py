"""The seam through which evaluation sees a model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from torch import Tensor, device, dtype, nn

__all__ = ["Cache", "LensModel"]


class Cache(Protocol):
    """Keys and values of the tokens seen so far, grown by :meth:`LensModel.residual`."""


class LensModel(Protocol):
    """A language model whose heads can be ablated.

    Attributes:
        n_layers: Number of layers.
        n_heads: Query heads in each layer.
        n_key_value_heads: Key/value heads in each layer.
        d_head: Width of one head's output.
        n_ctx: Longest sequence, in tokens.
        device: Where the model lies.
        dtype: Number format of the weights.
        tokenizer: The checkpoint's tokenizer, of the transformers library.
        prepends_bos: Whether raw prompts start with the beginning-of-sequence token.
        eos_token_ids: Tokens that end an answer.
    """

    n_layers: int
    n_heads: int
    n_key_value_heads: int
    d_head: int
    n_ctx: int
    device: device
    dtype: dtype
    tokenizer: Any
    prepends_bos: bool
    eos_token_ids: tuple[int, ...]

    def hook_z(self, layer: int) -> nn.Module:
        """The module that passes on each head's output, ``[batch, pos, head, d_head]``, before ``W_O``."""

    def new_cache(self, batch_size: int) -> Cache:
        """An empty key/value cache for that many rows."""

    def residual(self, tokens: Tensor, mask: Tensor, cache: Cache | None = None) -> Tensor:
        """Run all layers.

        Args:
            tokens: Token ids, ``[batch, pos]``.
            mask: 1 for a real token and 0 for padding, ``[batch, pos]``.
            cache: Earlier tokens of the same rows; it grows by these.

        Returns:
            The residual stream after the last layer, ``[batch, pos, d_model]``.
        """

    def logits(self, residual: Tensor) -> Tensor:
        """Final normalisation and unembedding.

        Args:
            residual: Residual stream after the last layer at any positions, ``[..., d_model]``.

        Returns:
            Logits in float32, ``[..., vocabulary]``.
        """
