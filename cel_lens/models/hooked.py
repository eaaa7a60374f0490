"""A ``HookedTransformer`` seen through the seam."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cel_lens.errors import UnsupportedModel
from cel_lens.models.facts import model_facts
from cel_lens.models.protocol import Backend, HookPlace, Layers

if TYPE_CHECKING:
    from torch import Tensor
    from transformer_lens import HookedTransformer

__all__ = ["HookedLens"]


class HookedLens:
    """Implements :class:`cel_lens.models.protocol.LensModel` with TransformerLens' public calls."""

    backend: Backend = "hooked"

    def __init__(self, model: HookedTransformer) -> None:
        import torch

        facts = model_facts(model)
        self.model = model
        self.n_layers = int(model.cfg.n_layers)
        self.n_heads = int(model.cfg.n_heads)
        self.n_key_value_heads = int(model.cfg.n_key_value_heads or model.cfg.n_heads)
        self.d_head = int(model.cfg.d_head)
        self.d_model = int(model.cfg.d_model)
        self.d_mlp = int(model.cfg.d_mlp or 0)
        self.n_ctx = int(model.cfg.n_ctx)
        self.device = torch.device(model.W_U.device)
        self.dtype: torch.dtype = model.W_U.dtype
        self.tokenizer: Any = model.tokenizer
        self.prepends_bos = facts.prepends_bos
        self.eos_token_ids = facts.eos_token_ids

    def hook_z(self, layer: int) -> HookPlace:
        """The hook point between the heads' outputs and the output projection."""
        return self._attention(layer).hook_z  # type: ignore[no-any-return]

    def hook_pattern(self, layer: int) -> HookPlace:
        """The hook point behind the softmax."""
        return self._attention(layer).hook_pattern  # type: ignore[no-any-return]

    def output_weights(self, layer: int) -> Tensor:
        """The output projection, ``[head, d_head, d_model]``."""
        return self._attention(layer).W_O.detach()  # type: ignore[no-any-return]

    def output_bias(self, layer: int) -> Tensor:
        """The bias of the output projection, ``[d_model]``."""
        return self._attention(layer).b_O.detach()  # type: ignore[no-any-return]

    @property
    def layers(self) -> Layers:
        """The model layer by layer."""
        reason = self.why_not_by_layer()
        if reason is not None:
            raise UnsupportedModel(f"the model cannot be run layer by layer because {reason}")
        from cel_lens.models.layers import HookedLayers

        return HookedLayers(self)

    def why_not_by_layer(self) -> str | None:
        """Why the model cannot be run layer by layer; ``None`` if it can."""
        from cel_lens.models.layers import why_not_by_layer

        return why_not_by_layer(self)

    def new_cache(self, batch_size: int) -> Any:
        """An empty key/value cache."""
        from transformer_lens.cache.key_value_cache import TransformerLensKeyValueCache

        return TransformerLensKeyValueCache.init_cache(self.model.cfg, self.device, batch_size)

    def residual(self, tokens: Tensor, mask: Tensor, cache: Any = None) -> Tensor:
        """Run all layers; see the protocol."""
        found: Tensor = self.model(
            tokens, stop_at_layer=self.n_layers, attention_mask=mask, past_kv_cache=cache
        )
        return found

    def logits(self, residual: Tensor) -> Tensor:
        """Final normalisation and unembedding, in float32."""
        if self.model.cfg.normalization_type is not None:  # else there is no ln_final
            residual = self.model.ln_final(residual)
        return self.cap_logits(self.model.unembed(residual))

    def cap_logits(self, logits: Tensor) -> Tensor:
        """Raw logits in float32, with the soft cap of models that have one."""
        import torch

        cap = float(getattr(self.model.cfg, "output_logits_soft_cap", 0.0) or 0.0)
        return (cap * torch.tanh(logits / cap) if cap > 0 else logits).float()

    def _attention(self, layer: int) -> Any:
        return self.model.blocks[layer].attn
