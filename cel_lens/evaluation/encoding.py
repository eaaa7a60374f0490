"""From requests to token ids: encoded once, with one rule for special tokens.

Raw text is encoded without special tokens and gets the beginning-of-sequence token in front exactly
when the checkpoint's own tokenizer would put it there. A rendered chat template already holds its
special tokens, so nothing is added to it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from typing import Any

from jinja2 import TemplateError

from cel_lens.errors import EvaluationError, InvalidInput
from cel_lens.models.protocol import LensModel
from cel_lens.tasks import Choose, Example, Generate, Request

__all__ = [
    "FROZEN_DATE",
    "ChoicePrompt",
    "GenerationPrompt",
    "Prompt",
    "decode",
    "encode_request",
    "render",
    "text_digest",
]

FROZEN_DATE = "24 Sep 2026"
"""The date that a chat template is told, so that results do not change from day to day."""

_CLOCK = re.compile(r"""strftime_now\s*\(\s*(["'])([^"'\\]*)\1\s*\)""")


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationPrompt:
    """A prompt to be continued.

    Attributes:
        text: The rendered prompt.
        token_ids: Its tokens.
        max_new_tokens: Cap on generated tokens.
        stop: Stop markers.
    """

    text: str
    token_ids: tuple[int, ...]
    max_new_tokens: int
    stop: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChoicePrompt:
    """A context with continuations to be scored.

    Attributes:
        text: The context, trailing white space removed.
        context_ids: Its tokens.
        continuation_ids: The tokens of each continuation.
        boundary_merge: A token spans the border between context and a continuation.
    """

    text: str
    context_ids: tuple[int, ...]
    continuation_ids: tuple[tuple[int, ...], ...]
    boundary_merge: bool


Prompt = GenerationPrompt | ChoicePrompt


def encode_request(lens: LensModel, example: Example, request: Request) -> Prompt:
    """Encode what a task asks for one example.

    Raises:
        InvalidInput: If nothing is left to encode, the prompt and its answer exceed the context, or
            the model has no tokenizer or no chat template where one is needed.
    """
    if lens.tokenizer is None:
        raise InvalidInput("the model has no tokenizer, so it cannot be asked in text: give it one first")
    if isinstance(request, Generate):
        return _generation(lens, example, request)
    if isinstance(request, Choose):
        return _choice(lens, example, request)
    raise InvalidInput(
        f"the task's request for {example.id} is a {type(request).__name__}, not a Generate or Choose"
    )


def render(lens: LensModel, request: Request) -> str:
    """The exact text that the model is given for a request, without a raw prompt's first special token."""
    if isinstance(request, Choose):
        return request.context.rstrip()
    if request.style == "completion":
        return request.prompt + request.prefill
    return _chat(lens.tokenizer, request.prompt) + request.prefill


def decode(lens: LensModel, token_ids: tuple[int, ...], *, special: bool = False) -> str:
    """Token ids as text, spaces left alone.

    Args:
        lens: The model.
        token_ids: Tokens.
        special: Whether special tokens are kept in the text.
    """
    text: str = lens.tokenizer.decode(
        list(token_ids), skip_special_tokens=not special, clean_up_tokenization_spaces=False
    )
    return text


def text_digest(texts: list[str]) -> str:
    """SHA-256 over texts, in order."""
    digest = sha256()
    for text in texts:
        digest.update(f"{len(text)}\n{text}\n".encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


def _generation(lens: LensModel, example: Example, request: Generate) -> GenerationPrompt:
    text = render(lens, request)
    token_ids = _encode(lens, text, special=request.style == "completion")
    if not token_ids:
        raise InvalidInput(f"the prompt of {example.id} is empty")
    _check_length(lens, example, len(token_ids) + request.max_new_tokens)
    return GenerationPrompt(
        text=text, token_ids=token_ids, max_new_tokens=request.max_new_tokens, stop=request.stop
    )


def _choice(lens: LensModel, example: Example, request: Choose) -> ChoicePrompt:
    context = request.context.rstrip()
    space = request.context[len(context) :]
    context_ids = _encode(lens, context, special=True)
    if not context_ids:
        raise InvalidInput(f"the context of {example.id} is empty")
    continuations, merged = [], False
    for choice in request.choices:
        together = _encode(lens, context + space + choice, special=True)
        continuation = together[len(context_ids) :]
        if not continuation:
            raise InvalidInput(f"{example.id}: the continuation {choice!r} has no tokens of its own")
        merged = merged or together[: len(context_ids)] != context_ids
        _check_length(lens, example, len(context_ids) + len(continuation))
        continuations.append(continuation)
    return ChoicePrompt(
        text=context,
        context_ids=context_ids,
        continuation_ids=tuple(continuations),
        boundary_merge=merged,
    )


def _encode(lens: LensModel, text: str, *, special: bool) -> tuple[int, ...]:
    found = tuple(lens.tokenizer.encode(text, add_special_tokens=False))
    return (lens.tokenizer.bos_token_id, *found) if special and lens.prepends_bos else found


def _check_length(lens: LensModel, example: Example, length: int) -> None:
    if length > lens.n_ctx:
        raise InvalidInput(
            f"{example.id} needs {length} tokens with its answer, but the model's context is {lens.n_ctx}; "
            "prompts are never cut"
        )


def _chat(tokenizer: Any, turn: str) -> str:
    if not getattr(tokenizer, "chat_template", None):
        raise InvalidInput(
            "the model's tokenizer has no chat template: use a completion style, or an instruction-tuned model"
        )
    template = tokenizer.get_chat_template()  # the default one where there are several
    try:
        text: str = tokenizer.apply_chat_template(
            [{"role": "user", "content": turn}],
            chat_template=_without_clock(template),
            tokenize=False,
            add_generation_prompt=True,
            enable_thinking=False,
            date_string=FROZEN_DATE,
        )
    except (TemplateError, TypeError) as error:
        raise InvalidInput(f"the model's chat template cannot render a single user turn: {error}") from error
    behind = (
        text.rpartition(turn.strip())[2] if turn.strip() else text
    )  # the question itself may speak of <think>
    if "<think>" in behind and "</think>" not in behind.rpartition("<think>")[2]:
        raise EvaluationError("the chat template opens a thinking block although thinking is switched off")
    # SmolLM3 states the mode in its system block and, without thinking, begins the answer with an empty block
    switched_off = "Reasoning Mode: /no_think" in text and text.endswith("<think>\n\n</think>\n")
    if "Reasoning Mode:" in template and not switched_off:
        raise EvaluationError("the chat template does not switch thinking off although it was asked to")
    return text


def _without_clock(template: str) -> str:
    """Write the frozen date in place of calls for today's; transformers hands no function to a template."""
    frozen = datetime.strptime(FROZEN_DATE, "%d %b %Y")
    found = _CLOCK.sub(lambda call: repr(frozen.strftime(call[2])), template)
    if re.search(r"strftime_now\s*\(", found):
        raise InvalidInput(
            "the chat template asks for today's date in a way that cannot be replaced by a fixed one"
        )
    return found
