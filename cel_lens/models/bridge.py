"""A ``TransformerBridge`` seen through the seam: TransformerLens' hooks around the transformers model itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cel_lens.errors import UnsupportedModel
from cel_lens.models.facts import model_facts
from cel_lens.models.protocol import Backend, HookPlace, Layers

if TYPE_CHECKING:
    from torch import Tensor
    from torch.utils.hooks import RemovableHandle

__all__ = ["BridgeLens", "raw"]


class BridgeLens:
    """Implements :class:`cel_lens.models.protocol.LensModel` for a ``TransformerBridge``.

    The bridge keeps transformers' own forward pass, so the cache, the masks and the position rules are
    those of transformers.
    """

    backend: Backend = "bridge"

    def __init__(self, model: Any) -> None:
        import torch

        facts = model_facts(model)
        weight = next(model.parameters())
        self.model = model
        self.n_layers = facts.n_layers
        self.n_heads = facts.n_heads
        self.n_key_value_heads = facts.n_key_value_heads
        self.d_head = facts.d_head
        self.d_model = facts.d_model
        self.d_mlp = int(getattr(model.cfg, "d_mlp", None) or 0)
        self.n_ctx = facts.n_ctx
        self.device = torch.device(weight.device)
        self.dtype: torch.dtype = weight.dtype
        self.tokenizer: Any = model.tokenizer
        self.prepends_bos = facts.prepends_bos
        self.eos_token_ids = facts.eos_token_ids

    def hook_z(self, layer: int) -> HookPlace:
        """The input of the output projection, its heads told apart."""
        return _SplitHeads(self._attention(layer).o.hook_in, self.n_heads)

    def hook_pattern(self, layer: int) -> HookPlace:
        """The hook point behind the softmax."""
        return self._attention(layer).hook_pattern  # type: ignore[no-any-return]

    def output_weights(self, layer: int) -> Tensor:
        """The output projection, ``[head, d_head, d_model]``."""
        projection = raw(self._attention(layer).o)
        weight = projection.weight.detach()
        rows = weight if type(projection).__name__ == "Conv1D" else weight.T  # [heads' channels, d_model]
        return rows.reshape(self.n_heads, -1, rows.shape[-1])  # type: ignore[no-any-return]

    def output_bias(self, layer: int) -> Tensor:
        """The bias of the output projection, ``[d_model]``."""
        bias = raw(self._attention(layer).o).bias
        if bias is None:
            return self.output_weights(layer).new_zeros(self.d_model)
        return bias.detach()  # type: ignore[no-any-return]

    def new_cache(self, batch_size: int) -> _BridgeCache:
        """An empty key/value cache."""
        from transformers import DynamicCache

        return _BridgeCache(keys_values=DynamicCache())

    def residual(self, tokens: Tensor, mask: Tensor, cache: Any = None) -> Tensor:
        """Run all layers; see the protocol."""
        seen = mask if cache is None or cache.mask is None else _beside(cache.mask, mask)
        places = (seen.cumsum(dim=-1) - 1).clamp_min_(0)[:, -tokens.shape[1] :]
        found: list[Tensor] = []
        # what goes into the last normalisation is what the last layer leaves
        handle = self.model.ln_final.register_forward_pre_hook(lambda _, inputs: found.append(inputs[0]))
        try:
            self.model.original_model.base_model(
                input_ids=tokens,
                attention_mask=seen,
                position_ids=places,
                past_key_values=None if cache is None else cache.keys_values,
                use_cache=cache is not None,
            )
        finally:
            handle.remove()
        if cache is not None:
            cache.mask = seen
        return found[0]

    def logits(self, residual: Tensor) -> Tensor:
        """Final normalisation and unembedding, in float32."""
        return self.cap_logits(self.model.unembed(self.model.ln_final(residual)))

    def cap_logits(self, logits: Tensor) -> Tensor:
        """Raw logits in float32, with the soft cap of models that have one."""
        import torch

        cap = float(getattr(self.model.original_model.config, "final_logit_softcapping", None) or 0.0)
        return (cap * torch.tanh(logits / cap) if cap > 0 else logits).float()

    @property
    def layers(self) -> Layers:
        """The model layer by layer."""
        reason = self.why_not_by_layer()
        if reason is not None:
            raise UnsupportedModel(f"the model cannot be run layer by layer because {reason}")
        from cel_lens.models.bridge_layers import BridgeLayers

        return BridgeLayers(self)

    def why_not_by_layer(self) -> str | None:
        """Why the model cannot be run layer by layer; ``None`` if it can."""
        from cel_lens.models.bridge_layers import why_not_by_layer

        return why_not_by_layer(self)

    def _attention(self, layer: int) -> Any:
        return self.model.blocks[layer].attn


@dataclass(kw_only=True)
class _BridgeCache:
    """transformers' cache, and the mask of the tokens in it, ``[batch, pos]``."""

    keys_values: Any
    mask: Tensor | None = None


@dataclass(frozen=True, slots=True)
class _SplitHeads:
    """A hook point of ``[batch, pos, head * d_head]``, for hooks that read and write ``[batch, pos, head, d_head]``."""

    point: Any
    n_heads: int

    def register_forward_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Register a hook that sees the heads apart."""

        def split(module: Any, inputs: Any, output: Tensor) -> Tensor | None:
            fits = output.ndim == 3 and output.shape[-1] % self.n_heads == 0
            heads = output.view(*output.shape[:2], self.n_heads, -1) if fits else output
            changed = hook(module, inputs, heads)
            return None if changed is None else changed.reshape(output.shape)

        return self.point.register_forward_hook(split)  # type: ignore[no-any-return]


def raw(component: Any) -> Any:
    """The transformers module inside a component of the bridge; any other module itself."""
    from transformer_lens.model_bridge.generalized_components.base import GeneralizedComponent

    while isinstance(component, GeneralizedComponent):
        component = component.original_component
    return component


def _beside(left: Tensor, right: Tensor) -> Tensor:
    import torch

    return torch.cat([left, right], dim=-1)
