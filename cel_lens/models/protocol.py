"""The seam through which everything else sees a model."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

if TYPE_CHECKING:
    from torch import Tensor, device, dtype
    from torch.utils.hooks import RemovableHandle

__all__ = ["AttentionRule", "Backend", "Cache", "HookPlace", "Layers", "LensModel", "Projected"]

Backend = Literal["hooked", "bridge"]
"""Which of TransformerLens' classes runs a model: ``HookedTransformer`` or ``TransformerBridge``."""


class Cache(Protocol):
    """Keys and values of the tokens seen so far, grown by :meth:`LensModel.residual`."""


class HookPlace(Protocol):
    """Where a tensor inside the model can be read and replaced."""

    def register_forward_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call ``hook(module, inputs, output)`` at every pass; what it returns, if anything, replaces ``output``."""


class Projected(NamedTuple):
    """Queries, keys and values of one layer, rotated where the model rotates.

    Attributes:
        q: ``[rows, pos, head, d_head]``.
        k: ``[rows, pos, key_value_head, d_head]``.
        v: ``[rows, pos, key_value_head, d_head]``.
    """

    q: Tensor
    k: Tensor
    v: Tensor


class AttentionRule(NamedTuple):
    """How a layer's attention scores become weights.

    Attributes:
        divisor: ``q @ k`` is divided by it.
        soft_cap: Scores ``s`` then become ``soft_cap * tanh(s / soft_cap)``; ``None``: they stay.
        window: How many keys a query sees, its own among them; ``None``: all up to its own.
    """

    divisor: float
    soft_cap: float | None = None
    window: int | None = None


class Layers(Protocol):
    """A model one layer at a time, on any batch of residual streams.

    Attention itself, the step from :meth:`project` to the heads' outputs, is the caller's: a softmax over
    causal scores as :meth:`attention_rule` says.

    Attributes:
        n_layers: Number of layers.
        n_heads: Query heads in each layer.
    """

    n_layers: int
    n_heads: int

    def embed(self, tokens: Tensor, offsets: Tensor | int) -> Tensor:
        """The residual stream before layer 0.

        Args:
            tokens: Token ids, ``[rows, pos]``.
            offsets: Position of each row's first token, ``[rows]``, or one number for all.

        Returns:
            ``[rows, pos, d_model]``.
        """

    def project(self, layer: int, residual: Tensor, offsets: Tensor | int) -> Projected:
        """Queries, keys and values that a layer computes from the residual stream.

        Args:
            layer: The layer.
            residual: ``[rows, pos, d_model]``.
            offsets: Position of each row's first token, ``[rows]``, or one number for all.
        """

    def score_divisor(self, layer: int) -> float:
        """What attention scores are divided by before the softmax."""

    def attention_rule(self, layer: int) -> AttentionRule:
        """How the layer's attention scores become weights."""

    def finish(self, layer: int, residual: Tensor, z: Tensor) -> Tensor:
        """Output projection and MLP.

        Args:
            layer: The layer.
            residual: The residual stream before the layer, ``[rows, pos, d_model]``.
            z: Outputs of the heads, ablated or not, ``[rows, pos, head, d_head]``.

        Returns:
            The residual stream after the layer.
        """

    def logits(self, residual: Tensor) -> Tensor:
        """Final normalisation and unembedding of chosen positions, ``[positions, d_model]`` to float32 logits."""


class LensModel(Protocol):
    """A language model whose heads can be ablated.

    Attributes:
        model: TransformerLens' own object.
        backend: Which class it is.
        n_layers: Number of layers.
        n_heads: Query heads in each layer.
        n_key_value_heads: Key/value heads in each layer.
        d_head: Width of one head's output.
        d_model: Width of the residual stream.
        d_mlp: Width inside the MLP; 0 without one.
        n_ctx: Longest sequence, in tokens.
        device: Where the model lies.
        dtype: Number format of the weights.
        tokenizer: The checkpoint's tokenizer, of the transformers library.
        prepends_bos: Whether raw prompts start with the beginning-of-sequence token.
        eos_token_ids: Tokens that end an answer.
    """

    model: Any
    backend: Backend
    n_layers: int
    n_heads: int
    n_key_value_heads: int
    d_head: int
    d_model: int
    d_mlp: int
    n_ctx: int
    device: device
    dtype: dtype
    tokenizer: Any
    prepends_bos: bool
    eos_token_ids: tuple[int, ...]

    def hook_z(self, layer: int) -> HookPlace:
        """Where each head's output, ``[batch, pos, head, d_head]``, passes on its way to the output projection."""

    def hook_pattern(self, layer: int) -> HookPlace:
        """Where the attention weights pass, ``[batch, head, query, key]``; each query's sum to 1."""

    def output_weights(self, layer: int) -> Tensor:
        """The output projection ``W_O``, ``[head, d_head, d_model]``: what a head writes is ``z @ W_O[head]``."""

    def output_bias(self, layer: int) -> Tensor:
        """The bias of the output projection, ``[d_model]``; zeros where the model has none."""

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

    @property
    def layers(self) -> Layers:
        """The model layer by layer.

        Raises:
            UnsupportedModel: If :meth:`why_not_by_layer` gives a reason.
        """

    def why_not_by_layer(self) -> str | None:
        """Why the model cannot be run layer by layer, as in "because it has ..."; ``None`` if it can."""
