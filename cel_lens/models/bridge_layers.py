"""A ``TransformerBridge`` one layer at a time.

The weights, normalisations and position rules are those of the transformers modules inside the bridge;
layers that are not asked for do not run. Whether the steps give what the whole forward pass gives is
measured once for each model, on a short prompt, before they are used.
"""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch import Tensor

from cel_lens.models.bridge import BridgeLens, raw
from cel_lens.models.protocol import AttentionRule, Projected
from cel_lens.models.steps import rms_normalise, turn, walk

__all__ = ["BridgeLayers", "why_not_by_layer"]

# Attention components that do nothing but project, rotate, attend and project.
_PLAIN_ATTENTION = frozenset(
    {
        "JointQKVAttentionBridge",
        "JointQKVPositionEmbeddingsAttentionBridge",
        "PositionEmbeddingsAttentionBridge",
        "_SmolLM3AttentionBridge",
    }
)

# Normalisations that multiply the normalised residual stream by their weight, without an offset of one.
_PLAIN_RMS = frozenset(
    f"{family}RMSNorm" for family in ("Llama", "Mistral", "Phi3", "Qwen2", "Qwen3", "SmolLM3")
)

_LENGTH_DEPENDENT = ("dynamic", "longrope")
_CHECKED_TOKENS = 24
_TABLE = 512


class BridgeLayers:
    """Steps of a forward pass.

    Args:
        lens: The model; :func:`why_not_by_layer` must be ``None`` for it.
    """

    def __init__(self, lens: BridgeLens) -> None:
        self.n_layers = lens.n_layers
        self.n_heads = lens.n_heads
        self._lens = lens
        bridge = lens.model
        self._config: Any = bridge.original_model.config
        self._embed, self._final, self._unembed = (
            raw(part) for part in (bridge.embed, bridge.ln_final, bridge.unembed)
        )
        self._positions = raw(bridge.pos_embed) if "pos_embed" in bridge._modules else None
        self._rotary = raw(bridge.rotary_emb) if "rotary_emb" in bridge._modules else None
        self._blocks = [_Block(block, self._config) for block in bridge.blocks]
        self._tables: dict[str | None, tuple[Tensor, Tensor]] = {}

    def embed(self, tokens: Tensor, offsets: Tensor | int) -> Tensor:
        """The residual stream before layer 0."""
        embedded: Tensor = self._embed(tokens)
        if self._positions is None:
            return embedded
        start = offsets if isinstance(offsets, int) else offsets[:, None]
        at = torch.arange(tokens.shape[1], device=tokens.device) + start
        placed: Tensor = embedded + self._positions(at.expand_as(tokens))
        return placed

    def project(self, layer: int, residual: Tensor, offsets: Tensor | int) -> Projected:
        """Queries, keys and values, rotated where the layer rotates."""
        block = self._blocks[layer]
        normed = _normalise(block.ln1, residual)
        q, k, v = (part(normed) for part in (block.q, block.k, block.v))
        q, k = _normalise_heads(block.q_norm, q, self._lens), _normalise_heads(block.k_norm, k, self._lens)
        q, k, v = (part.view(*residual.shape[:2], -1, self._lens.d_head) for part in (q, k, v))
        if self._rotary is not None and block.rotates:
            cos, sin = self._rotation(block.layer_type, offsets, residual)
            q, k = turn(q, cos, sin), turn(k, cos, sin)
        return Projected(q, k, v)

    def score_divisor(self, layer: int) -> float:
        """What attention scores are divided by before the softmax."""
        return self._blocks[layer].rule.divisor

    def attention_rule(self, layer: int) -> AttentionRule:
        """How the layer's attention scores become weights."""
        return self._blocks[layer].rule

    def finish(self, layer: int, residual: Tensor, z: Tensor) -> Tensor:
        """Output projection and MLP."""
        block = self._blocks[layer]
        attended: Tensor = block.o(z.flatten(2))
        if block.ln1_post is not None:
            attended = block.ln1_post(attended)
        middle = attended.add_(residual)
        return middle.add_(block.mlp_adds(residual if block.parallel else middle))

    def logits(self, residual: Tensor) -> Tensor:
        """Final normalisation and unembedding of chosen positions."""
        normed = _normalise(self._final, residual)
        return self._lens.cap_logits(self._unembed(normed.to(self._unembed.weight.dtype)))

    def _rotation(
        self, layer_type: str | None, offsets: Tensor | int, residual: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Cosines and sines of the rows' positions, ``[rows or 1, pos, 1, rotated]``."""
        width = residual.shape[1]
        latest = offsets if isinstance(offsets, int) else int(offsets.max())
        cos, sin = self._table(layer_type, latest + width, residual)
        if isinstance(offsets, int):
            places = slice(offsets, offsets + width)
            return cos[None, places, None], sin[None, places, None]
        at = offsets[:, None] + torch.arange(width, device=residual.device)
        return cos[at, None], sin[at, None]

    def _table(self, layer_type: str | None, length: int, like: Tensor) -> tuple[Tensor, Tensor]:
        """The model's own cosines and sines from position 0 on, ``[pos, rotated]``; it grows as needed."""
        known = self._tables.get(layer_type)
        if known is None or known[0].shape[0] < length:
            at = torch.arange(-(-length // _TABLE) * _TABLE, device=like.device)[None]
            extra = () if layer_type is None else (layer_type,)
            assert self._rotary is not None
            cos, sin = self._rotary(like[:1, :1], at, *extra)
            known = self._tables[layer_type] = cos[0], sin[0]
        return known


class _Block:
    """The transformers modules of one layer, and the order in which it uses them."""

    def __init__(self, block: Any, config: Any) -> None:
        parts, attention = block._modules, block.attn
        self.ln1, self.ln1_post = raw(block.ln1), raw(parts.get("ln1_post"))
        self.ln2, self.ln2_post = raw(parts.get("ln2", block.ln1)), raw(parts.get("ln2_post"))
        self.q, self.k, self.v, self.o = (raw(getattr(attention, part)) for part in "qkvo")
        self.q_norm, self.k_norm = (raw(attention._modules.get(part)) for part in ("q_norm", "k_norm"))
        self.parallel = type(block).__name__ == "ParallelBlockBridge"
        inside = raw(attention)
        index = inside.layer_idx
        self.rotates = bool(getattr(inside, "use_rope", True))
        self.rule = AttentionRule(
            divisor=1 / inside.scaling,
            soft_cap=getattr(inside, "attn_logit_softcapping", None),
            window=_window(config, index),
        )
        types = getattr(config, "layer_types", None)
        self.layer_type = str(types[index]) if types and _rotates_by_type(config) else None
        self._mlp = block.mlp
        gated = type(block.mlp).__name__ == "GatedMLPBridge"
        self._gated = (
            tuple(raw(getattr(block.mlp, part)) for part in ("gate", "in", "out")) if gated else None
        )
        self._act: Any = raw(block.mlp).act_fn if gated else None

    def mlp_adds(self, residual: Tensor) -> Tensor:
        """What the MLP adds, from the residual stream before it."""
        normed = _normalise(self.ln2, residual)
        if self._gated is None:
            found = self._mlp(normed)
        else:
            gate, up, down = self._gated
            found = down(self._act(gate(normed)).mul_(up(normed)))
        added: Tensor = found if self.ln2_post is None else self.ln2_post(found)
        return added


def _normalise(module: Any, residual: Tensor) -> Tensor:
    """A normalisation module's result, by the fewest passes over memory where it is a plain RMSNorm."""
    if type(module).__name__ in _PLAIN_RMS and residual.dtype == torch.float32:
        return rms_normalise(residual, module.weight, module.variance_epsilon)
    normed: Tensor = module(residual)
    return normed


def _normalise_heads(module: Any, flat: Tensor, lens: BridgeLens) -> Tensor:
    """Normalised queries or keys, ``[rows, pos, head * d_head]``: each head by itself, or all together."""
    if module is None:
        return flat
    if module.weight.numel() == lens.d_head:
        return _normalise(module, flat.view(*flat.shape[:2], -1, lens.d_head)).flatten(2)
    return _normalise(module, flat)


def _window(config: Any, layer: int) -> int | None:
    """How many keys a query of a layer sees, its own among them; ``None``: all."""
    window = getattr(config, "sliding_window", None)
    types = getattr(config, "layer_types", None)
    slides = window is not None and (types is None or types[layer] == "sliding_attention")
    return int(window) if slides and window is not None else None


def _rope_parameters(config: Any) -> dict[str | None, dict[str, Any]]:
    """The rotation's parameters for each kind of layer; under ``None`` where all have the same."""
    found = getattr(config, "rope_parameters", None) or {}
    if found and all(isinstance(one, dict) for one in found.values()):
        return dict(found)
    return {None: dict(found)}


def _rotates_by_type(config: Any) -> bool:
    return None not in _rope_parameters(config)


def why_not_by_layer(lens: BridgeLens) -> str | None:
    """Why a model cannot be run layer by layer with shared keys and values; ``None`` if it can."""
    if any(_foreign_hooks(module) for module in lens.model.modules()):
        return "it carries hooks of its own"
    if lens.model not in _REASONS:
        _REASONS[lens.model] = _unlike(lens) or _inexact(lens)
    return _REASONS[lens.model]


# What was found out about a model stays true, since it is about its structure.
_REASONS: weakref.WeakKeyDictionary[Any, str | None] = weakref.WeakKeyDictionary()


def _foreign_hooks(module: Any) -> bool:
    """Whether a module has hooks that are not the bridge's own bookkeeping."""
    kinds = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    hooks = (hook for kind in kinds for hook in getattr(module, kind).values())
    return any(
        not str(getattr(hook, "__module__", "")).startswith("transformer_lens.model_bridge.")
        for hook in hooks
    )


def _unlike(lens: BridgeLens) -> str | None:
    """A part of the model that the steps do not have."""
    bridge, config = lens.model, lens.model.original_model.config
    if getattr(bridge.cfg, "n_devices", 1) > 1:
        return "it has several devices"
    flags = ("use_attn_in", "use_split_qkv_input", "use_attn_result", "use_hook_mlp_in")
    if any(getattr(bridge.cfg, flag, False) for flag in flags):
        return "it has split inputs or outputs of the heads switched on"
    if any(one.get("rope_type") in _LENGTH_DEPENDENT for one in _rope_parameters(config).values()):
        return "it has length-dependent rotation"
    if getattr(bridge.cfg, "rotary_adjacent_pairs", False):
        return "it has a rotation of neighbouring channels"
    if any(
        kind not in ("full_attention", "sliding_attention")
        for kind in getattr(config, "layer_types", None) or ()
    ):
        return f"it has layers of other kinds ({', '.join(sorted(set(config.layer_types)))})"
    if "pos_embed" in bridge._modules and type(raw(bridge.pos_embed)) is not torch.nn.Embedding:
        return f"it has positions of its own kind ({type(raw(bridge.pos_embed)).__name__})"
    for layer, block in enumerate(bridge.blocks):
        attention = block.attn
        if type(attention).__name__ not in _PLAIN_ATTENTION:
            return f"its attention has steps of its own ({type(attention).__name__})"
        if getattr(raw(attention), "sinks", None) is not None:
            return "it has attention sinks"
        if raw(attention).layer_idx != layer:
            return "it runs layers in an order of its own"
    return None


def _inexact(lens: BridgeLens) -> str | None:
    """Compare the steps with the whole forward pass, on one short prompt."""
    n_tokens = min(_CHECKED_TOKENS, lens.n_ctx)
    ids = (torch.arange(n_tokens, device=lens.device) * 7919 + 11) % lens.model.cfg.d_vocab
    with torch.no_grad():
        whole = lens.residual(ids[None], torch.ones_like(ids)[None])
        try:
            steps = BridgeLayers(lens)
            stepped = walk(steps, ids[None])
            logits = steps.logits(whole[0])
        except (AttributeError, IndexError, KeyError, RuntimeError, TypeError, ValueError) as error:
            return f"its layers have steps of their own ({type(error).__name__})"
        off = max(_difference(stepped, whole), _difference(logits, lens.logits(whole)[0]))
    if not off <= (1e-3 if lens.dtype in (torch.float32, torch.float64) else 1e-1):  # also when it is NaN
        return f"its layers one by one differ from its forward pass by {off:.2g}"
    return None


def _difference(found: Tensor, expected: Tensor) -> float:
    """The largest difference, as a fraction of the largest value."""
    return float((found - expected).abs().max() / expected.abs().max())
