"""A transformer whose every logit can be worked out by hand, and a task for it.

Attention is uniform, there are no MLPs, norms or positions, and every head is a table from words to words:
at the last position of a prompt, a head adds to the logit of each word the mean of its table's rows over the
words of the prompt. Nothing else reaches the logits, so a model without heads answers word 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from cel_lens.heads import Head, HeadSet
from cel_lens.models.quiet import quiet
from cel_lens.tasks import ChoiceScores, Choose, Example, Generate, Verdict

COLOURS = ("red", "green", "blue")
WORDS = ("<eos>", "<unk>", *COLOURS, "wrong", "x", "y", "o", "boom", "?")

Table = Mapping[str, Mapping[str, float]]
"""Word read to word written to strength."""

COPY: Table = {colour: {colour: 4.0} for colour in COLOURS}
"""Names the colour of the prompt: the only source of right answers."""

# Panels of the planted task: (words of the mark, how many). Marks decide what the heads do.
DISCOVERY = {"o": 8, "x": 5, "y": 2}
HELDOUT = {"o": 9, "x": 8, "y": 3}


def build_tokenizer() -> Any:
    """One token for each of ``WORDS``."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    vocabulary = {word: index for index, word in enumerate(WORDS)}
    tokenizer = Tokenizer(models.WordLevel(vocab=vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="<eos>",
        unk_token="<unk>",
        pad_token="<eos>",
        clean_up_tokenization_spaces=False,
    )


def build_planted(tables: Mapping[str, Table], *, n_layers: int = 2, n_heads: int = 3) -> Any:
    """A ``HookedTransformer`` whose heads are these tables; heads that are left out write nothing.

    Args:
        tables: Name of a head to its table.
        n_layers: Number of layers.
        n_heads: Heads in each layer.
    """
    from transformer_lens import HookedTransformer, HookedTransformerConfig

    size = len(WORDS)
    with quiet():
        config = HookedTransformerConfig(
            n_layers=n_layers,
            d_model=2 * size,
            n_ctx=32,
            d_head=size,
            n_heads=n_heads,
            d_vocab=size,
            attn_only=True,
            normalization_type=None,
            default_prepend_bos=False,
            device="cpu",
            seed=0,
        )
        model = HookedTransformer(config, tokenizer=build_tokenizer())
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        # The first half of the residual stream holds the word read, the second half the logits.
        model.embed.W_E[:, :size] = torch.eye(size)
        model.unembed.W_U[size:] = torch.eye(size)
        for layer in range(n_layers):
            attention = model.blocks[layer].attn
            for index in range(n_heads):
                attention.W_V[index, :size] = torch.eye(size)
                table = tables.get(str(Head(layer, index)), {})
                attention.W_O[index, :, size:] = torch.tensor(_as_array(table), dtype=torch.float32)
    return model.eval().requires_grad_(False)


def logits_by_hand(tables: Mapping[str, Table], removed: str, prompt: str) -> np.ndarray[Any, Any]:
    """The logits behind a prompt, from the tables alone."""
    read = [WORDS.index(word) for word in prompt.split()]
    gone = HeadSet.of(removed)
    kept = [_as_array(table) for name, table in tables.items() if Head.parse(name) not in gone]
    return sum((table[read].mean(axis=0) for table in kept), start=np.zeros(len(WORDS)))


@dataclass(frozen=True)
class NameTheColour:
    """``"red x ?"`` is answered by ``red``, as generated text or as a choice among the colours."""

    generates: bool = True
    discovery: Mapping[str, int] | None = None
    heldout: Mapping[str, int] | None = None
    name: str = "name-the-colour"
    protocol: str = "bare"
    metric: str = "match"

    def examples(self) -> Sequence[Example]:
        panels = {"discovery": self.discovery or DISCOVERY, "heldout": self.heldout or HELDOUT}
        return tuple(
            Example(
                id=f"{split}/{mark.replace(' ', '-')}/{place}",
                prompt=f"{COLOURS[place % 3]} {mark} ?",
                target=COLOURS[place % 3],
                stratum=mark,
                split=split,  # type: ignore[arg-type]
            )
            for split, marks in panels.items()
            for mark, count in marks.items()
            for place in range(count)
        )

    def request(self, example: Example) -> Generate | Choose:
        if self.generates:
            return Generate(prompt=example.prompt, max_new_tokens=1)
        return Choose(context=example.prompt, choices=tuple(f" {one}" for one in (*COLOURS, "wrong")))

    def judge(self, example: Example, response: Any) -> Verdict:
        if isinstance(response, ChoiceScores):
            scores = response.log_likelihoods
            answer = (*COLOURS, "wrong")[scores.index(max(scores))]
            return Verdict(correct=answer == example.target, answer=answer)
        text = response.text.strip()
        return Verdict(correct=text == example.target, answer=text or None)


def sizes(task: NameTheColour) -> dict[str, int]:
    """The panel sizes that take every example, for a ``SearchConfig``."""
    splits = [one.split for one in task.examples()]
    return {"n_discovery": splits.count("discovery"), "n_heldout": splits.count("heldout")}


def _as_array(table: Table) -> np.ndarray[Any, Any]:
    found = np.zeros((len(WORDS), len(WORDS)))
    for read, written in table.items():
        for word, strength in written.items():
            found[WORDS.index(read), WORDS.index(word)] = strength
    return found
