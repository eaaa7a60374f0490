"""A ``HookedTransformer`` seen through the seam."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cel_lens.errors import UnsupportedModel
from cel_lens.models.facts import model_facts

if TYPE_CHECKING:
    from torch import Tensor, nn
    from transformer_lens import HookedTransformer

__all__ = ["HookedLens", "lens_of"]


class HookedLens:
    """Implements :class:`cel_lens.models.protocol.LensModel` with TransformerLens' public calls."""

    def __init__(self, model: HookedTransformer) -> None:
        import torch

        facts = model_facts(model)
        self.model = model
        self.n_layers = int(model.cfg.n_layers)
        self.n_heads = int(model.cfg.n_heads)
        self.n_key_value_heads = int(model.cfg.n_key_value_heads or model.cfg.n_heads)
        self.d_head = int(model.cfg.d_head)
        self.n_ctx = int(model.cfg.n_ctx)
        self.device = torch.device(model.W_U.device)
        self.dtype: torch.dtype = model.W_U.dtype
        self.tokenizer: Any = model.tokenizer
        self.prepends_bos = facts.prepends_bos
        self.eos_token_ids = facts.eos_token_ids

    def hook_z(self, layer: int) -> nn.Module:
        """The hook point between the heads' outputs and the output projection."""
        module: nn.Module = self.model.blocks[layer].attn.hook_z
        return module

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


def lens_of(model: Any) -> HookedLens:
    """See a loaded model through the seam.

    Raises:
        UnsupportedModel: If it is not a ``HookedTransformer``.
    """
    from transformer_lens import HookedTransformer

    if not isinstance(model, HookedTransformer):
        raise UnsupportedModel(
            f"a {type(model).__name__} cannot be ablated here: give a HookedTransformer "
            "(load_model returns one, from a name, a folder or a GGUF file)"
        )
    return HookedLens(model)
