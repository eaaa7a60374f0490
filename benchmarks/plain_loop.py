"""The loop of a competent user of plain transformers: a pre-hook on the output projection and ``generate``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from cel_lens.evaluation.answers import collect, finish_generation
from cel_lens.evaluation.batches import Batch, choice_prompt, generation_prompt, make_batches, make_items
from cel_lens.heads import INTACT, HeadSet
from cel_lens.models import LensModel
from cel_lens.tasks import ChoiceScores, Example, Response, Task


class PlainLoop:
    """Evaluates one head set at a time on a Llama-like transformers model."""

    def __init__(self, hf_model: Any, lens: LensModel) -> None:
        self._model, self._lens = hf_model.eval(), lens

    def verdicts(self, task: Task, panel: Sequence[Example], heads: HeadSet) -> tuple[bool, ...]:
        """Right or wrong for every example, in panel order."""
        handles = [self._hook(layer, indices) for layer, indices in heads.by_layer().items()]
        responses: dict[int, Response] = {}
        try:
            with torch.inference_mode():
                for batch in make_batches(make_items(self._lens, task, panel), 32):
                    responses |= self._generate(batch) if batch.generates else self._score(batch)
        finally:
            for handle in handles:
                handle.remove()
        return collect(task, panel, responses, heads, INTACT).correct

    def _hook(self, layer: int, indices: tuple[int, ...]) -> Any:
        width = self._lens.d_head

        def zero(module: Any, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
            kept = inputs[0].clone()
            for index in indices:
                kept[..., index * width : (index + 1) * width] = 0
            return (kept, *inputs[1:])

        return self._model.model.layers[layer].self_attn.o_proj.register_forward_pre_hook(zero)

    def _generate(self, batch: Batch) -> dict[int, Response]:
        prompts = [generation_prompt(item) for item in batch.items]
        width = max(len(one.token_ids) for one in prompts)
        tokens = torch.zeros(len(prompts), width, dtype=torch.long)
        mask = torch.zeros_like(tokens)
        for row, one in enumerate(prompts):
            tokens[row, width - len(one.token_ids) :] = torch.tensor(one.token_ids)
            mask[row, width - len(one.token_ids) :] = 1
        stop = (
            {"stop_strings": list(prompts[0].stop), "tokenizer": self._lens.tokenizer}
            if prompts[0].stop
            else {}
        )
        written = self._model.generate(
            tokens,
            attention_mask=mask,
            max_new_tokens=prompts[0].max_new_tokens,
            do_sample=False,
            num_beams=1,
            repetition_penalty=1.0,
            pad_token_id=self._lens.eos_token_ids[0],
            **stop,
        )[:, width:].tolist()
        return {
            item.place: finish_generation(self._lens, item, row)
            for item, row in zip(batch.items, written, strict=True)
        }

    def _score(self, batch: Batch) -> dict[int, Response]:
        rows = [
            (choice_prompt(item).context_ids, continuation)
            for item in batch.items
            for continuation in choice_prompt(item).continuation_ids
        ]
        width = max(len(context) + len(continuation) for context, continuation in rows)
        tokens = torch.zeros(len(rows), width, dtype=torch.long)
        mask = torch.zeros_like(tokens)
        for row, (context, continuation) in enumerate(rows):
            tokens[row, : len(context) + len(continuation)] = torch.tensor(context + continuation)
            mask[row, : len(context) + len(continuation)] = 1
        hidden = self._model.model(tokens, attention_mask=mask).last_hidden_state
        scores = []
        for row, (context, continuation) in enumerate(rows):
            start = len(context) - 1
            logits = self._model.lm_head(hidden[row, start : start + len(continuation)]).float()
            wanted = torch.tensor(continuation)
            total = float(logits.log_softmax(-1).gather(1, wanted[:, None]).sum())
            scores.append((total, bool((logits.argmax(-1) == wanted).all())))
        found: dict[int, Response] = {}
        for item in batch.items:
            prompt = choice_prompt(item)
            mine, scores = scores[: len(prompt.continuation_ids)], scores[len(prompt.continuation_ids) :]
            found[item.place] = ChoiceScores(
                log_likelihoods=tuple(one[0] for one in mine),
                greedy=tuple(one[1] for one in mine),
                boundary_merge=prompt.boundary_merge,
            )
        return found
