"""A ``HookedTransformer`` one layer at a time, on any batch of residual streams.

Every projection, normalisation, rotation and MLP is the model's own module; only the order of the calls
and the sharing of keys and values between rows are decided elsewhere.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from transformer_lens.components.mlps.gated_mlp import GatedMLP
from transformer_lens.components.rms_norm import RMSNorm

from cel_lens.models.hooked import HookedLens
from cel_lens.models.protocol import AttentionRule, Projected
from cel_lens.models.steps import rms_normalise, turn

__all__ = ["HookedLayers", "why_not_by_layer"]


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
        self._final: Any = lens.model.ln_final if lens.model.cfg.normalization_type is not None else None
        self._rotary = lens.model.cfg.positional_embedding_type == "rotary"
        self._turns_halves = self._rotary and _turns_halves(lens.model.cfg)

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
        normed = _normalise(block.ln1, residual)
        q, k, v = block.attn.calculate_qkv_matrices(normed, normed, normed)
        if self._rotary:
            q, k = self._turn(block.attn, q, offsets), self._turn(block.attn, k, offsets)
        return Projected(q, k, v)

    def score_divisor(self, layer: int) -> float:
        """What attention scores are divided by before the softmax."""
        return float(self._model.blocks[layer].attn.attn_scale)

    def attention_rule(self, layer: int) -> AttentionRule:
        """How the layer's attention scores become weights."""
        cfg: Any = self._model.cfg
        cap = float(cfg.attn_scores_soft_cap or 0.0)
        local = cfg.use_local_attn and cfg.attn_types is not None and cfg.attn_types[layer] == "local"
        return AttentionRule(
            divisor=self.score_divisor(layer),
            soft_cap=cap if cap > 0 else None,
            window=int(cfg.window_size) if local else None,
        )

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
        attended = torch.addmm(block.attn.b_O, z.reshape(-1, weight.shape[0]), weight).view_as(residual)
        cfg = self._model.cfg
        if cfg.use_normalization_before_and_after:
            attended = block.ln1_post(attended)
        if cfg.attn_only:
            return attended.add_(residual)
        if cfg.parallel_attn_mlp:
            return attended.add_(residual).add_(self._mlp(block, residual))
        middle = attended.add_(residual)
        return middle.add_(self._mlp(block, middle))

    def _mlp(self, block: Any, residual: Tensor) -> Tensor:
        """What the MLP adds, from the residual stream before it."""
        normed = _normalise(block.ln2, residual)
        mlp = block.mlp
        plain = self._model.cfg.act_fn == "silu" and not self._model.cfg.use_normalization_before_and_after
        if type(mlp) is not GatedMLP or not plain:
            added: Tensor = block.apply_mlp(normed)
            return added
        # the module's own steps, without a copy of each weight and in place
        hidden = functional.silu(normed @ mlp.W_gate, inplace=True).mul_(normed @ mlp.W_in).add_(mlp.b_in)
        return torch.addmm(mlp.b_out, hidden.flatten(0, -2), mlp.W_out).view_as(residual)

    def _turn(self, attn: Any, heads: Tensor, offsets: Tensor | int) -> Tensor:
        """Rotate queries or keys to their positions."""
        start, mask = _positions(offsets, heads.shape[1])
        longest = start + heads.shape[1]
        if not self._turns_halves or longest > attn.rotary_cos.shape[0]:
            turned: Tensor = attn.apply_rotary(heads, start, mask)
            return turned
        if isinstance(offsets, int):
            places = slice(start, longest)
            cos, sin = attn.rotary_cos[None, places, None], attn.rotary_sin[None, places, None]
        else:
            at = offsets[:, None] + torch.arange(heads.shape[1], device=heads.device)
            cos, sin = attn.rotary_cos[at, None], attn.rotary_sin[at, None]
        return turn(heads, cos, sin)

    def logits(self, residual: Tensor) -> Tensor:
        """Final normalisation and unembedding of chosen positions, ``[positions, d_model]`` to float32 logits."""
        unembed = self._model.unembed
        normed = residual if self._final is None else _normalise(self._final, residual[:, None])[:, 0]
        return self._lens.cap_logits(torch.addmm(unembed.b_U, normed.to(unembed.W_U.dtype), unembed.W_U))


def _normalise(module: Any, residual: Tensor) -> Tensor:
    """A normalisation module's result; for RMSNorm in full precision with fewer passes over memory."""
    if type(module) is not RMSNorm or residual.dtype != torch.float32:
        normed: Tensor = module(residual)
        return normed
    return rms_normalise(residual, module.w, module.eps)


def _turns_halves(cfg: Any) -> bool:
    """Whether rotation pairs the first half of each head with the second, over its whole width."""
    return cfg.rotary_dim == cfg.d_head and not cfg.rotary_adjacent_pairs


def why_not_by_layer(lens: HookedLens) -> str | None:
    """Why a model cannot be run layer by layer with shared keys and values; ``None`` if it can."""
    cfg = lens.model.cfg
    if cfg.positional_embedding_type not in ("rotary", "standard"):
        return f"it has {cfg.positional_embedding_type} positions"
    if cfg.attention_dir != "causal":
        return "its attention is not causal"
    special = {
        "attention sinks": cfg.use_attention_sinks,
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
    hooks = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    if any(getattr(module, kind) for module in lens.model.modules() for kind in hooks):
        return "it carries hooks of its own"
    return None


def _positions(offsets: Tensor | int, width: int) -> tuple[int, Tensor | None]:
    """Row offsets in the form TransformerLens reads them: tokens in the cache, and a left-padded mask."""
    if isinstance(offsets, int):
        return offsets, None
    latest = int(offsets.max())
    places = torch.arange(latest + width, device=offsets.device)
    return latest, (places >= (latest - offsets)[:, None]).long()
