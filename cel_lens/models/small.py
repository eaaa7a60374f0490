"""Small transformers made from nothing: random weights, a vocabulary of whole words, a tokenizer for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cel_lens.errors import InvalidInput
from cel_lens.models.quiet import quiet

if TYPE_CHECKING:
    from transformer_lens import HookedTransformer as HookedTransformer  # noqa: PLC0414  # named by callers' types

__all__ = ["SmallShape", "small_transformer"]

_SPECIAL = ("<eos>", "<unk>")


@dataclass(frozen=True, slots=True, kw_only=True)
class SmallShape:
    """Size of a small transformer.

    Attributes:
        n_layers: Transformer blocks.
        n_heads: Heads in each block.
        d_model: Width of the residual stream.
        d_head: Width of one head.
        d_mlp: Width of the MLP of each block; 0: attention only.
        n_ctx: Longest sequence in tokens.
        normalize: Layer norm before every part and before the logits.

    Raises:
        InvalidInput: If a size is not a positive whole number (``d_mlp`` may be 0).
    """

    n_layers: int = 1
    n_heads: int = 8
    d_model: int = 32
    d_head: int = 4
    d_mlp: int = 0
    n_ctx: int = 16
    normalize: bool = False

    def __post_init__(self) -> None:
        for name in ("n_layers", "n_heads", "d_model", "d_head", "d_mlp", "n_ctx"):
            value, least = getattr(self, name), 0 if name == "d_mlp" else 1
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise InvalidInput(f"{name} is a whole number from {least}, not {value!r}")


def small_transformer(
    words: Sequence[str],
    shape: SmallShape,
    *,
    seed: int,
    init_scale: float = 0.1,
    name: str = "small-transformer",
) -> HookedTransformer:
    """Make an untrained transformer that reads and writes these words.

    Weights are independent normal numbers from a generator of their own, so the seed alone decides them and
    no global generator is touched. Biases start at 0 and the scales of layer norms at 1. Learned positions
    are added to the words; nothing is put in front of a prompt.

    Args:
        words: The vocabulary, each word without white space; the first is token 2, after end-of-sequence and
            unknown.
        shape: Sizes.
        seed: Decides the weights.
        init_scale: Standard deviation of every weight, above 0.
        name: What results call the model.

    Returns:
        The model in float32 on the CPU, ready to be trained.

    Raises:
        InvalidInput: If a word is repeated, empty, reserved or holds white space, or the scale is not positive.
    """
    import torch

    if not init_scale > 0:
        raise InvalidInput(f"init_scale is a number above 0, not {init_scale!r}")
    _check_words(words)
    with quiet():
        from transformer_lens import HookedTransformer, HookedTransformerConfig

        config = HookedTransformerConfig(
            model_name=name,
            n_layers=shape.n_layers,
            n_heads=shape.n_heads,
            d_model=shape.d_model,
            d_head=shape.d_head,
            d_mlp=shape.d_mlp or None,
            attn_only=shape.d_mlp == 0,
            act_fn="relu",
            n_ctx=shape.n_ctx,
            d_vocab=len(words) + len(_SPECIAL),
            normalization_type="LN" if shape.normalize else None,
            default_prepend_bos=False,
            init_weights=False,
            device="cpu",
        )
        model = HookedTransformer(config, tokenizer=_word_tokenizer(words))
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for key, weight in sorted(model.named_parameters()):
            _, _, last = key.rpartition(".")
            if last.startswith("W_"):
                weight.normal_(0.0, init_scale, generator=generator)
            else:
                weight.fill_(1.0 if last == "w" else 0.0)
    return model


def _check_words(words: Sequence[str]) -> None:
    if isinstance(words, str) or not words:
        raise InvalidInput(f"words is a sequence of texts, not {words!r}")
    for word in words:
        if not word or word in _SPECIAL or word.split() != [word]:
            raise InvalidInput(f"{word!r} cannot be a word: it is empty, reserved, or holds white space")
    if len(set(words)) != len(words):
        raise InvalidInput("a word stands twice in the vocabulary")


def _word_tokenizer(words: Sequence[str]) -> Any:
    """One token for each word, words separated by white space."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    make: Any = PreTrainedTokenizerFast  # untyped in transformers
    vocabulary = {word: index for index, word in enumerate((*_SPECIAL, *words))}
    tokenizer = Tokenizer(models.WordLevel(vocab=vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return make(
        tokenizer_object=tokenizer,
        eos_token="<eos>",
        unk_token="<unk>",
        pad_token="<eos>",
        clean_up_tokenization_spaces=False,
    )
