"""The transformers model with heads removed by hand: what every evaluation must agree with.

Nothing here uses TransformerLens, a cache, padding or a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch

from cel_lens.heads import HeadSet

_LLAMA_LIKE: Callable[[Any, int], Any] = lambda hf, layer: hf.model.layers[layer].self_attn.o_proj  # noqa: E731
PROJECTIONS: dict[str, Callable[[Any, int], Any]] = {
    "llama": _LLAMA_LIKE,
    "qwen2": _LLAMA_LIKE,
    "qwen3": _LLAMA_LIKE,
    "mistral": _LLAMA_LIKE,
    "phi3": _LLAMA_LIKE,
    "smollm3": _LLAMA_LIKE,
    "gemma2": _LLAMA_LIKE,
    "gemma3": _LLAMA_LIKE,
    "gpt2": lambda hf, layer: hf.transformer.h[layer].attn.c_proj,
    "gpt_neox": lambda hf, layer: hf.gpt_neox.layers[layer].attention.dense,
}
"""The module that maps the heads' outputs to the residual stream, for each family."""


@contextmanager
def sliced(family: str, hf: Any, heads: str | HeadSet) -> Iterator[None]:
    """Zero the heads' channels of the input of the output projection."""
    with ExitStack() as hooks:
        for layer, indices in HeadSet.of(heads).by_layer().items():

            def zero(module: Any, inputs: Any, indices: tuple[int, ...] = indices) -> Any:
                channels = inputs[0].clone()
                width = channels.shape[-1] // hf.config.num_attention_heads
                for index in indices:
                    channels[..., index * width : (index + 1) * width] = 0
                return (channels, *inputs[1:])

            hooks.callback(PROJECTIONS[family](hf, layer).register_forward_pre_hook(zero).remove)
        yield


def greedy(
    family: str,
    hf: Any,
    heads: str | HeadSet,
    prompt: Sequence[int],
    *,
    n_tokens: int,
    eos: Sequence[int] = (),
) -> tuple[int, ...]:
    """New tokens of greedy decoding, the whole sequence run again for each, up to and with the first EOS."""
    written: list[int] = []
    with sliced(family, hf, heads), torch.no_grad():
        while len(written) < n_tokens and not (written and written[-1] in eos):
            logits = hf(torch.tensor([[*prompt, *written]]), use_cache=False).logits[0, -1]
            written.append(int(logits.argmax()))
    return tuple(written)


def likelihood(
    family: str, hf: Any, heads: str | HeadSet, context: Sequence[int], continuation: Sequence[int]
) -> tuple[float, bool]:
    """Summed log-probability of the continuation, and whether each of its tokens is the arg-max."""
    with sliced(family, hf, heads), torch.no_grad():
        logits = hf(torch.tensor([[*context, *continuation]]), use_cache=False).logits[0].double()
    total, path = 0.0, True
    for place, token in enumerate(continuation):
        row = logits[len(context) - 1 + place]
        total += float(row[token] - row.logsumexp(dim=0))
        path = path and int(row.argmax()) == token
    return total, path
