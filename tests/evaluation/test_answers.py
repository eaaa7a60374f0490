"""Where a generated answer ends, token by token."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from cel_lens.evaluation.answers import finish_generation, is_finished
from cel_lens.evaluation.batches import Item
from cel_lens.evaluation.encoding import GenerationPrompt
from cel_lens.tasks import Example, Generation
from tests.models.tiny import tiny_tokenizer

TOKENIZER = tiny_tokenizer()
EOS, END_OF_TURN = "<|eos|>", "<|user|>"


def lens(*ends: str) -> Any:
    tokens = TOKENIZER.convert_tokens_to_ids(list(ends or (EOS,)))
    return SimpleNamespace(tokenizer=TOKENIZER, eos_token_ids=tuple(tokens))


def item(*stop: str, cap: int = 99) -> Item:
    prompt = GenerationPrompt(text="", token_ids=(1,), max_new_tokens=cap, stop=stop)
    return Item(place=0, example=Example(id="a", prompt="", target=""), prompt=prompt)


def ids(tokens: str) -> tuple[int, ...]:
    """Ids of tokens that are written with spaces between them; Ġ is a space, Ċ a line end."""
    found = tuple(TOKENIZER.convert_tokens_to_ids(tokens.split()))
    assert None not in found
    return found


def outcome(generation: Generation) -> tuple[str, int, str]:
    flags = {"ended": generation.ended, "stopped": generation.stopped, "capped": generation.capped}
    return generation.text, len(generation.token_ids), " ".join(name for name, on in flags.items() if on)


DONE = "[DONE]"
CASES = {
    # tokens, stop markers, cap: text, tokens kept, flags
    "cut after the first end": (f"4 2 {EOS} 7 {EOS}", (), 99, ("42", 3, "ended")),
    "only an end": (EOS, (), 99, ("", 1, "ended")),
    "the cap": ("4 2 7", (), 3, ("427", 3, "capped")),
    "an end in the last place is no cap": (f"4 2 {EOS}", (), 3, ("42", 3, "ended")),
    "a marker in the last place is no cap": ("4 2 Ċ", ("\n",), 3, ("42", 3, "stopped")),
    "not over yet": ("4 2", ("\n",), 3, ("42", 2, "")),
    "a marker": ("4 2 Ċ 7", ("\n",), 99, ("42", 3, "stopped")),
    "a marker of many tokens": ("7 [ D O N E ] 8 9", (DONE,), 99, ("7", 7, "stopped")),
    "half a marker": ("7 [ D O N", (DONE,), 5, ("7[DON", 5, "capped")),
    "a marker inside a token": ("x and 7", ("n",), 99, ("xa", 2, "stopped")),
    "a marker over two tokens": ("x th is 7", ("hi",), 99, ("xt", 3, "stopped")),
    "the marker at once": ("Ċ 4", ("\n",), 99, ("", 1, "stopped")),
    "the marker before the end decides": (f"4 Ċ {EOS}", ("\n",), 99, ("4", 2, "stopped")),
    "padding behind a marker looks like an end": (f"4 Ċ {EOS} {EOS} {EOS}", ("\n",), 99, ("4", 2, "stopped")),
    "a marker behind the end does not count": (f"4 {EOS} Ċ", ("\n",), 99, ("4", 2, "ended")),
    "a marker cut by the end does not count": (f"[ D O {EOS} N E ]", (DONE,), 99, ("[DO", 4, "ended")),
    "the first of two markers": ("4 ; 5 Ċ 6", ("\n", ";"), 99, ("4", 2, "stopped")),
    "two markers in one token": ("x the 5", ("e", "h"), 99, ("xt", 2, "stopped")),
    "spaces stay": ("Ġ 4 Ġ Ġ . Ċ", ("\n",), 99, (" 4  .", 6, "stopped")),
    "other special tokens are not text": ("4 <|user|> 2", (), 3, ("42", 3, "capped")),
    "a special token as marker": ("4 <|user|> 2", ("<|user|>",), 99, ("4", 2, "stopped")),
    "the end token as marker": (f"4 {EOS} 2", (EOS,), 99, ("4", 2, "stopped")),
}


@pytest.mark.parametrize("name", CASES)
def test_an_answer_ends_where_the_rules_say(name: str) -> None:
    tokens, stop, cap, expected = CASES[name]
    assert outcome(finish_generation(lens(), item(*stop, cap=cap), ids(tokens))) == expected


@pytest.mark.parametrize("name", CASES)
def test_exactly_one_flag_says_why_a_finished_answer_ended(name: str) -> None:
    tokens, stop, cap, _ = CASES[name]
    asked, written = item(*stop, cap=cap), ids(tokens)
    lengths = [size for size in range(1, len(written) + 1) if is_finished(lens(), asked, written[:size])]
    found = finish_generation(lens(), asked, written[: lengths[0]] if lengths else written)
    assert found.ended + found.stopped + found.capped == bool(lengths)
    if lengths:
        assert found == finish_generation(lens(), asked, written) or found.capped
        assert len(found.token_ids) == lengths[0], "generation goes on exactly until its answer is over"


def test_each_of_several_end_tokens_ends_an_answer() -> None:
    many = lens(EOS, END_OF_TURN)
    assert outcome(finish_generation(many, item(), ids(f"4 {END_OF_TURN} 2 {EOS}"))) == ("4", 2, "ended")
    assert is_finished(many, item(), ids(f"4 {END_OF_TURN}"))
    assert is_finished(many, item(), ids(EOS))
    assert not is_finished(many, item(), ids("4"))


def test_without_an_end_token_only_the_cap_ends_an_answer() -> None:
    none = SimpleNamespace(tokenizer=TOKENIZER, eos_token_ids=())
    assert outcome(finish_generation(none, item(cap=2), ids(f"4 {EOS}"))) == ("4", 2, "capped")
    assert not is_finished(none, item(cap=2), ids(EOS))
    assert is_finished(none, item(cap=2), ids(f"{EOS} 4"))


def test_nothing_written_is_not_finished() -> None:
    assert not is_finished(lens(), item(), ())
