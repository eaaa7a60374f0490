"""A ``HookedTransformer`` one layer at a time, on any batch of residual streams.

Every projection, normalisation, rotation and MLP is the model's own module; only the order of the calls
and the sharing of keys and values between rows are decided elsewhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from cel_lens.models.hooked import HookedLens

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["HookedLayers", "Projected", "why_not_by_layer"]


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


class HookedLayers:
    """Steps of a forward pass.

    Args:
        lens: The model; :func:`why_not_by_layer` must be ``None`` for it.
    """

    def __init__(self, lens: HookedLens) -> None:
        self.n_layers = lens.n_layers
        self.n_heads = lens.n_heads
        self._lens = lens
        self._model = lens.model
        self._rotary = lens.model.cfg.positional_embedding_type == "rotary"

    def embed(self, tokens: Tensor, offsets: Tensor | int) -> Tensor:
        """The residual stream before layer 0.

        Args:
            tokens: Token ids, ``[rows, pos]``.
            offsets: Position of each row's first token, ``[rows]``, or one number for all.

        Returns:
            ``[rows, pos, d_model]``.
        """
        embedded: Tensor = self._model.embed(tokens)
        if self._rotary:
            return embedded
        start, mask = _positions(offsets, tokens.shape[1])
        placed: Tensor = embedded + self._model.pos_embed(tokens, start, mask)
        return placed

    def project(self, layer: int, residual: Tensor, offsets: Tensor | int) -> Projected:
        """Queries, keys and values that a layer computes from the residual stream.

        Args:
            layer: The layer.
            residual: ``[rows, pos, d_model]``.
            offsets: Position of each row's first token, ``[rows]``, or one number for all.
        """
        block: Any = self._model.blocks[layer]
        normed = block.ln1(residual)
        q, k, v = block.attn.calculate_qkv_matrices(normed, normed, normed)
        if self._rotary:
            start, mask = _positions(offsets, residual.shape[1])
            q, k = block.attn.apply_rotary(q, start, mask), block.attn.apply_rotary(k, start, mask)
        return Projected(q, k, v)

    def score_divisor(self, layer: int) -> float:
        """What attention scores are divided by before the softmax."""
        return float(self._model.blocks[layer].attn.attn_scale)

    def finish(self, layer: int, residual: Tensor, z: Tensor) -> Tensor:
        """Output projection and MLP.

        Args:
            layer: The layer.
            residual: The residual stream before the layer, ``[rows, pos, d_model]``.
            z: Outputs of the heads, ablated or not, ``[rows, pos, head, d_head]``.

        Returns:
            The residual stream after the layer.
        """
        block: Any = self._model.blocks[layer]
        weight: Tensor = block.attn.W_O.flatten(0, 1)
        attended: Tensor = z.flatten(2) @ weight + block.attn.b_O
        if self._model.cfg.use_normalization_before_and_after:
            attended = block.ln1_post(attended)
        if self._model.cfg.attn_only:
            return residual + attended
        if self._model.cfg.parallel_attn_mlp:
            parallel: Tensor = residual + attended + block.apply_mlp(block.ln2(residual))
            return parallel
        middle = residual + attended
        after: Tensor = middle + block.apply_mlp(block.ln2(middle))
        return after

    def logits(self, residual: Tensor) -> Tensor:
        """Final normalisation and unembedding of chosen positions, ``[rows, d_model]`` to float32 logits."""
        return self._lens.logits(residual[:, None])[:, 0]


def why_not_by_layer(lens: HookedLens) -> str | None:
    """Why a model cannot be run layer by layer with shared keys and values; ``None`` if it can."""
    cfg = lens.model.cfg
    if cfg.positional_embedding_type not in ("rotary", "standard"):
        return f"it has {cfg.positional_embedding_type} positions"
    if cfg.attention_dir != "causal":
        return "its attention is not causal"
    special = {
        "a soft cap on attention scores": (cfg.attn_scores_soft_cap or 0) > 0,
        "attention sinks": cfg.use_attention_sinks,
        "sliding-window attention": cfg.use_local_attn
        and cfg.attn_types is not None
        and "local" in cfg.attn_types,
        "logarithmic attention scaling": cfg.use_logn_attn,
        "length-dependent rotation": cfg.use_dynamic_ntk_rope,
        "clipped queries and keys": cfg.clip_qkv is not None,
        "its own normalisation order": str(cfg.original_architecture).startswith("Olmo"),
        "split inputs of the heads switched on": cfg.use_attn_in
        or cfg.use_split_qkv_input
        or cfg.use_hook_mlp_in,
        "packed weights": cfg.load_in_4bit,
        "several devices": cfg.n_devices > 1,
    }
    for what, present in special.items():
        if present:
            return f"it has {what}"
    if any(point._forward_hooks or point._backward_hooks for point in lens.model.hook_dict.values()):
        return "it carries hooks of its own"
    return None


def _positions(offsets: Tensor | int, width: int) -> tuple[int, Tensor | None]:
    """Row offsets in the form TransformerLens reads them: tokens in the cache, and a left-padded mask."""
    if isinstance(offsets, int):
        return offsets, None
    import torch

    latest = int(offsets.max())
    places = torch.arange(latest + width, device=offsets.device)
    return latest, (places >= (latest - offsets)[:, None]).long()
