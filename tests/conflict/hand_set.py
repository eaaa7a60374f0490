"""Transformers that compute a chosen linear function of the three features, head by head."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from cel_lens.conflict import ConflictSetting
from cel_lens.conflict.population import MEANINGS, WORDS, vocabulary
from cel_lens.models.small import SmallShape, small_transformer

N_POSITIONS = 5  # cue, three roles, question mark
N_WORDS = len(WORDS)
OUT = N_WORDS + N_POSITIONS  # the direction of the residual stream that holds the log-odds of "yes"


def shape(n_heads: int) -> SmallShape:
    return SmallShape(n_heads=n_heads, d_model=OUT + 1, d_head=2, n_ctx=N_POSITIONS + 1)


def hand_set(heads: Sequence[tuple[int, float]], setting: ConflictSetting) -> Any:
    """A model whose log-odds of "yes" are the sum over heads of strength times feature.

    Args:
        heads: For each head the role that it reads and the strength with which it writes.
        setting: Gives the vocabulary.
    """
    words = vocabulary(setting)
    model = small_transformer(words, shape(len(heads)), seed=0)
    encode = model.tokenizer.convert_tokens_to_ids
    with torch.no_grad():
        for weight in model.parameters():
            weight.zero_()
        model.embed.W_E[encode(list(WORDS)), :N_WORDS] = torch.eye(N_WORDS)
        model.pos_embed.W_pos[:N_POSITIONS, N_WORDS:OUT] = torch.eye(N_POSITIONS)
        model.unembed.W_U[OUT, encode("yes")] = 0.5
        model.unembed.W_U[OUT, encode("no")] = -0.5
        attention = model.blocks[0].attn
        for index, (role, strength) in enumerate(heads):
            attention.W_Q[index, OUT - 1, 0] = (
                100.0  # at the question mark, look at the word of the role alone
            )
            attention.W_K[index, N_WORDS + 1 + role, 0] = 1.0
            attention.W_V[index, :N_WORDS, 0] = torch.tensor(MEANINGS[role], dtype=torch.float32)
            attention.W_O[index, 0, OUT] = strength
    return model.eval().requires_grad_(False)
