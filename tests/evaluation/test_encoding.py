"""What exactly a model is given: special tokens once, borders between tokens, chat templates."""

from __future__ import annotations

import copy
from types import SimpleNamespace
from typing import Any

import pytest

from cel_lens.errors import CelLensError, EvaluationError, InvalidInput
from cel_lens.evaluation import evaluate_heads
from cel_lens.evaluation.encoding import ChoicePrompt, GenerationPrompt, encode_request, render, text_digest
from cel_lens.models import lens_of
from cel_lens.tasks import Choose, Example, Generate, Request
from tests.evaluation.asks import Asks
from tests.models.templates import LLAMA_LIKE, QWEN_LIKE, SMOLLM3_LIKE
from tests.models.tiny import tiny_model, tiny_tokenizer

BOS = 0

ALWAYS_THINKS = "{{ messages[0]['content'] }}<|assistant|><think>\n"

USER = "  2 plus 2?\nAnswer:  "


def lens(**changes: Any) -> Any:
    values = {"tokenizer": tiny_tokenizer(), "prepends_bos": True, "n_ctx": 256, "eos_token_ids": (1,)}
    return SimpleNamespace(**(values | changes))


def encode(request: Request, **changes: Any) -> Any:
    return encode_request(lens(**changes), Example(id="some/id", prompt="", target=""), request)


def chosen(context: str, *choices: str, **changes: Any) -> ChoicePrompt:
    return encode(Choose(context=context, choices=choices), **changes)


def tokens(*pieces: str) -> tuple[int, ...]:
    return tuple(tiny_tokenizer().convert_tokens_to_ids(list(pieces)))


def templated(template: Any) -> Any:
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = template
    return SimpleNamespace(tokenizer=tokenizer)


# Special tokens.


def test_raw_prompts_get_one_bos_where_the_checkpoint_puts_it() -> None:
    with_bos, without = encode(Generate(prompt="7 7")), encode(Generate(prompt="7 7"), prepends_bos=False)
    assert with_bos.token_ids == (BOS, *tokens("7", "Ġ", "7"))
    assert without.token_ids == tokens("7", "Ġ", "7")
    assert with_bos.text == without.text == "7 7"


@pytest.mark.parametrize("family", ["llama", "qwen2"])
def test_raw_prompts_are_encoded_as_the_checkpoints_tokenizer_does(family: str) -> None:
    model = tiny_model(family)
    original = tiny_tokenizer(add_bos=family == "llama")
    found = encode_request(
        lens_of(model), Example(id="a", prompt="", target=""), Generate(prompt="in the end 1 + 1 =")
    )
    assert list(found.token_ids) == original.encode("in the end 1 + 1 =")
    assert found.token_ids.count(BOS) == (family == "llama")


def test_a_rendered_template_is_given_no_second_bos() -> None:
    prompt = encode(Generate(prompt="7", style="chat", prefill="8"))
    assert prompt.text == "<|bos|><|user|>7<|eos|><|assistant|>8"
    assert prompt.token_ids == tokens("<|bos|>", "<|user|>", "7", "<|eos|>", "<|assistant|>", "8")


def test_contexts_get_one_bos_and_continuations_none() -> None:
    prompt = chosen("7", "8", " 9")
    assert prompt.context_ids == (BOS, *tokens("7"))
    assert prompt.continuation_ids == (tokens("8"), tokens("Ġ", "9"))


def test_an_empty_context_is_the_bos_alone_or_refused() -> None:
    assert chosen("", "8").context_ids == (BOS,)
    for context in ("", " \n"):
        with pytest.raises(InvalidInput, match="the context of some/id is empty"):
            chosen(context, "8", prepends_bos=False)
    with pytest.raises(InvalidInput, match="the prompt of some/id is empty"):
        encode(Generate(prompt=""), prepends_bos=False)


# The border between context and continuation.


@pytest.mark.parametrize("space", [" ", "\n", "\n\n", " \n \n ", "  "])
def test_trailing_white_space_moves_to_the_continuation(space: str) -> None:
    moved, already = chosen("1 + 1 =" + space, "2", "3"), chosen("1 + 1 =", space + "2", space + "3")
    assert moved == already
    assert moved.text == "1 + 1 ="
    assert tiny_tokenizer().decode(moved.continuation_ids[0]) == space + "2"


def test_continuations_are_cut_from_the_encoding_of_the_whole() -> None:
    prompt = chosen("x", " in the", " q")
    assert prompt.continuation_ids == (tokens("Ġ", "in", "Ġ", "the"), tokens("Ġ", "q"))
    assert not prompt.boundary_merge


def test_a_token_over_the_border_is_flagged() -> None:
    # "a" + "n d": behind "x" the whole reads as one token "and" where the context alone has "a".
    prompt = chosen("xa", "nd 7")
    assert prompt.context_ids == (BOS, *tokens("x", "a"))
    assert prompt.continuation_ids == (tokens("Ġ", "7"),)
    assert prompt.boundary_merge
    assert not chosen("xa", "qd 7").boundary_merge
    assert chosen("xa", "qd 7", "nd 7").boundary_merge, "one merged choice is enough"


def test_the_flag_of_a_merge_is_counted_in_outcomes() -> None:
    task = Asks(
        {"merged": Choose(context="xa", choices=("nd 7",)), "clean": Choose(context="xa", choices=("q",))}
    )
    found = evaluate_heads(tiny_model("gpt2"), task, "")
    assert found.count("boundary-merge") == 1
    assert found.details[0].flags == ("boundary-merge",)


def test_a_continuation_that_melts_into_the_context_is_refused() -> None:
    with pytest.raises(InvalidInput, match="some/id: the continuation 'nd' has no tokens of its own"):
        chosen("a", "nd")


# Lengths.


def test_prompts_are_never_cut() -> None:
    assert len(encode(Generate(prompt="7" * 9, max_new_tokens=6), n_ctx=16).token_ids) == 10
    with pytest.raises(InvalidInput, match=r"some/id needs 17 tokens with its answer.*context is 16"):
        encode(Generate(prompt="7" * 10, max_new_tokens=6), n_ctx=16)
    assert len(chosen("7" * 9, "8" * 6, n_ctx=16).continuation_ids[0]) == 6
    with pytest.raises(InvalidInput, match="some/id needs 17 tokens"):
        chosen("7" * 9, "8", "8" * 7, n_ctx=16)


# Templates.


def test_a_template_that_asks_for_the_time_gets_the_frozen_date() -> None:
    asks_always = LLAMA_LIKE.source.replace("{%- if date_string is not defined %}", "{%- if true %}")
    found = render(templated(asks_always), Generate(prompt=USER, style="chat"))
    assert "Today Date: 24 Sep 2026\n" in found


def test_a_date_that_cannot_be_frozen_is_refused() -> None:
    for call in ("strftime_now(format)", "strftime_now('%d' ~ '%b')"):
        with pytest.raises(InvalidInput, match="today's date"):
            render(
                templated("{% set format = '%d' %}{{ " + call + " }}"), Generate(prompt=USER, style="chat")
            )


def test_a_template_among_several_is_the_default_one() -> None:
    several = {"default": SMOLLM3_LIKE.source, "tool_use": LLAMA_LIKE.source}
    one, among = (
        render(templated(t), Generate(prompt=USER, style="chat")) for t in (several["default"], several)
    )
    assert among == one


def test_a_template_that_thinks_whatever_it_is_told_is_refused() -> None:
    with pytest.raises(EvaluationError, match="opens a thinking block"):
        render(templated(ALWAYS_THINKS), Generate(prompt=USER, style="chat"))


def test_a_template_among_several_that_does_not_heed_the_switch_is_refused() -> None:
    heedless = SMOLLM3_LIKE.source.replace("if enable_thinking is defined else true", "if false else true")
    for template in (heedless, {"default": heedless, "tool_use": QWEN_LIKE.source}):
        with pytest.raises(EvaluationError, match="does not switch thinking off"):
            render(templated(template), Generate(prompt=USER, style="chat"))


def test_a_question_about_thinking_is_not_taken_for_a_thinking_block() -> None:
    found = render(templated(QWEN_LIKE.source), Generate(prompt="What does <think> mean?", style="chat"))
    assert "What does <think> mean?" in found


@pytest.mark.parametrize("template", [None, ""])
def test_a_model_without_a_template_cannot_chat(template: str | None) -> None:
    with pytest.raises(InvalidInput, match="no chat template"):
        render(templated(template), Generate(prompt=USER, style="chat"))


def test_a_template_that_refuses_the_turn_is_one_of_our_errors() -> None:
    with pytest.raises(CelLensError, match="chat template"):
        render(
            templated("{{ raise_exception('a system turn is needed') }}"), Generate(prompt="x", style="chat")
        )


def test_rendering_is_what_is_encoded() -> None:
    model = copy.deepcopy(tiny_model("llama", max_position_embeddings=512))
    model.tokenizer.chat_template = SMOLLM3_LIKE.source
    seen = lens_of(model)
    for request in (
        Generate(prompt="1 + 1 =", prefill=" 2"),
        Generate(prompt="1 + 1", style="chat", prefill="is "),
        Choose(context="1 + 1 = ", choices=("2",)),
    ):
        found = encode_request(seen, Example(id="a", prompt="", target=""), request)
        assert found.text == render(seen, request)
        ids = found.token_ids if isinstance(found, GenerationPrompt) else found.context_ids
        assert model.tokenizer.decode(ids).removeprefix("<|bos|>") == found.text


def test_digests_tell_texts_and_their_borders_apart() -> None:
    digests = {
        text_digest(texts) for texts in (["ab"], ["a", "b"], ["b", "a"], ["a\nb"], ["a", ""], ["a"], [])
    }
    assert len(digests) == 7
    assert text_digest(["a", "é\ud800"]) == text_digest(["a", "é\ud800"])
