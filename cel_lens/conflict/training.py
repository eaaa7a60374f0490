"""Train a small transformer on both tasks at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from cel_lens.conflict.population import ANSWERS, population, prompt_of, vocabulary
from cel_lens.conflict.setting import ConflictSetting
from cel_lens.errors import EvaluationError
from cel_lens.models.small import small_transformer

if TYPE_CHECKING:
    from cel_lens.models.small import HookedTransformer

__all__ = ["train_conflict_model"]


def train_conflict_model(setting: ConflictSetting | None = None, seed: int = 0) -> HookedTransformer:
    """Train a transformer from random weights on tasks A and B mixed half and half.

    Every step takes a batch of prompts and lowers the cross-entropy of the next word against how often "yes"
    and "no" follow that prompt over both tasks. This is the mean of the loss over sampled tasks and answers,
    so it has the same optimum and less noise.

    Args:
        setting: The tasks, sizes and steps.
        seed: Decides the initial weights and the batches; the same seed gives the same model on one machine.

    Returns:
        The trained model in evaluation mode, with its tokenizer.

    Raises:
        EvaluationError: If the loss stops being finite.
    """
    chosen = setting or ConflictSetting()
    everything = population(chosen)
    model = small_transformer(
        vocabulary(chosen),
        chosen.shape,
        seed=seed,
        init_scale=chosen.init_scale,
        name=f"conflict-seed-{seed}",
    )
    tokenizer: Any = model.tokenizer
    texts = [
        prompt_of(chosen, words, int(cue))
        for words, cue in zip(everything.words, everything.cue, strict=True)
    ]
    prompts = torch.tensor([tokenizer.convert_tokens_to_ids(text.split()) for text in texts])
    p_yes = torch.tensor(everything.p_yes, dtype=torch.float32)
    answers = tokenizer.convert_tokens_to_ids(list(ANSWERS))
    optimizer = _optimizer(model, chosen)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / chosen.steps)
    generator = torch.Generator().manual_seed(seed)
    for step in range(chosen.steps):
        rows = torch.randint(len(prompts), (chosen.batch_size,), generator=generator)
        logits = model(prompts[rows], prepend_bos=False)[:, -1]  # [batch, vocabulary]
        yes, no = logits.log_softmax(dim=-1)[:, answers].unbind(dim=1)
        loss = -(p_yes[rows] * yes + (1 - p_yes[rows]) * no).mean()
        if not bool(loss.isfinite()):
            raise EvaluationError(
                f"training with seed {seed} diverged at step {step}: lower the learning rate"
            )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    return model.eval().requires_grad_(False)


def _optimizer(model: HookedTransformer, setting: ConflictSetting) -> torch.optim.Optimizer:
    if setting.optimizer == "adam":
        return torch.optim.Adam(model.parameters(), lr=setting.learning_rate)
    return torch.optim.SGD(model.parameters(), lr=setting.learning_rate)
