"""The exact prompt of one example, to be read by a person."""

from __future__ import annotations

from typing import Any

from cel_lens.evaluation.encoding import GenerationPrompt, encode_request, text_digest
from cel_lens.models import lens_of
from cel_lens.tasks import Example, Task

__all__ = ["show"]


def show(model: Any, task: Task, example: Example) -> str:
    """What a model is given for one example.

    Args:
        model: A loaded model.
        task: Says how to ask.
        example: One of its examples.

    Returns:
        The rendered prompt as it is, then a line of dashes and the facts about it: number of tokens, the first
        of them, the hash of the text, and the continuations or the limits of generation.

    Raises:
        InvalidInput: If the example cannot be asked of this model.
    """
    lens = lens_of(model)
    request = task.request(example)
    prompt = encode_request(lens, example, request)
    token_ids = prompt.token_ids if isinstance(prompt, GenerationPrompt) else prompt.context_ids
    facts = [
        f"example {example.id} of {task.name} ({task.protocol}, {task.metric}), right answer {example.target!r}",
        f"{len(token_ids)} tokens, the first {', '.join(map(str, token_ids[:4]))}; beginning-of-sequence token "
        + ("present" if token_ids[0] == lens.tokenizer.bos_token_id else "absent"),
        f"SHA-256 of the text: {text_digest([prompt.text])}",
    ]
    if isinstance(prompt, GenerationPrompt):
        facts.append(f"at most {prompt.max_new_tokens} new tokens, stop at {list(prompt.stop)}")
    else:
        pairs = zip(getattr(request, "choices", ()), prompt.continuation_ids, strict=True)
        facts += [f"continuation {text!r}: {len(ids)} tokens" for text, ids in pairs]
    return "\n".join([prompt.text, "-" * 40, *facts])
