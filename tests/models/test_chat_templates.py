"""Templates built like the three models' own, on loaded models: the text, the tokens and the hash they give."""

from __future__ import annotations

import hashlib
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from cel_lens.errors import EvaluationError
from cel_lens.evaluation.encoding import FROZEN_DATE, encode_request, render, text_digest
from cel_lens.evaluation.prompts import show
from cel_lens.models import lens_of, load_model, model_facts
from cel_lens.tasks import Choose, Example, Generate, get_task
from tests.models.templates import LLAMA_LIKE, QWEN_LIKE, SMOLLM3_LIKE, ChatTemplate
from tests.models.tiny import tiny_folder, tiny_tokenizer

TEMPLATES = {"llama": LLAMA_LIKE, "qwen2": QWEN_LIKE, "smollm3": SMOLLM3_LIKE}
FAMILIES = tuple(TEMPLATES)
TURN = "  What is 98 plus 45?\nAnswer:\n"
EXAMPLE = Example(id="x", prompt="", target="")


def write(family: str, folder: Path, template: ChatTemplate) -> Path:
    tiny_folder(family, folder, max_position_embeddings=1024)
    tokenizer = tiny_tokenizer(add_bos=template.bos is not None, chat=template)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    root = tmp_path_factory.mktemp("chat")
    return {
        family: load_model(write(family, root / family, template), device="cpu")
        for family, template in TEMPLATES.items()
    }


def expected(family: str, turn: str = TURN) -> str:
    template = TEMPLATES[family]
    return template.expected.replace("{turn}", turn.strip() if template.trims else turn)


def chat(turn: str = TURN, **more: Any) -> Generate:
    return Generate(prompt=turn, style="chat", **more)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_text_of_one_turn(models: dict[str, Any], family: str) -> None:
    lens = lens_of(models[family])
    assert render(lens, chat()) == expected(family)
    assert render(lens, chat(prefill="[BEGIN]\n")) == expected(family) + "[BEGIN]\n"


@pytest.mark.parametrize("family", FAMILIES)
def test_special_tokens_are_single_tokens_and_bos_stands_once(models: dict[str, Any], family: str) -> None:
    lens, template = lens_of(models[family]), TEMPLATES[family]
    ids = list(encode_request(lens, EXAMPLE, chat()).token_ids)  # type: ignore[union-attr]
    words = lens.tokenizer.convert_ids_to_tokens(ids)
    assert lens.tokenizer.bos_token == template.bos
    if template.bos is None:
        assert lens.tokenizer.bos_token_id is None
        assert not lens.prepends_bos
    else:
        assert lens.prepends_bos, "raw prompts get it from the tokenizer, rendered ones must not"
        assert words[0] == template.bos
        assert words.count(template.bos) == 1
    for mark in template.marks:
        assert words.count(mark) == expected(family).count(mark) > 0
    assert lens.tokenizer.decode(ids, clean_up_tokenization_spaces=False) == expected(family)


@pytest.mark.parametrize("family", FAMILIES)
def test_raw_prompts_know_no_template(models: dict[str, Any], family: str) -> None:
    lens = lens_of(models[family])
    for request in (Generate(prompt="1 + 1"), Choose(context="1 + 1", choices=(" 2", " 3"))):
        assert render(lens, request) == "1 + 1"
        found: Any = encode_request(lens, EXAMPLE, request)
        ids = found.context_ids if isinstance(request, Choose) else found.token_ids
        words = lens.tokenizer.convert_ids_to_tokens(list(ids))
        assert words == [*([TEMPLATES[family].bos] if TEMPLATES[family].bos else []), "1", "Ġ+", "Ġ", "1"]


@pytest.mark.parametrize("family", FAMILIES)
def test_the_date_is_not_todays(models: dict[str, Any], family: str) -> None:
    text = render(lens_of(models[family]), chat())
    frozen = datetime.strptime(FROZEN_DATE, "%d %b %Y")
    dates = {"llama": frozen.strftime("%d %b %Y"), "smollm3": frozen.strftime("%d %B %Y")}
    assert text.count("Today Date: ") == (family in dates)
    if family in dates:
        assert f"Today Date: {dates[family]}\n" in text


def test_the_llama_template_would_give_another_date_unless_it_is_handed_one(models: dict[str, Any]) -> None:
    own = models["llama"].tokenizer.apply_chat_template(
        [{"role": "user", "content": "x"}], tokenize=False, add_generation_prompt=True
    )
    assert "Today Date: " in own
    assert FROZEN_DATE not in own


def test_the_default_system_prompt_stands_where_none_is_given(models: dict[str, Any]) -> None:
    assert render(lens_of(models["qwen2"]), chat()).startswith(
        "<|im_start|>system\nYou are a helpful assistant, named by these tests.<|im_end|>\n<|im_start|>user\n"
    )


def test_thinking_is_on_by_default_and_off_in_our_prompts(models: dict[str, Any]) -> None:
    source = SMOLLM3_LIKE.source.replace("strftime_now('%d %B %Y')", "'a day'")
    own = models["smollm3"].tokenizer.apply_chat_template(
        [{"role": "user", "content": TURN}], chat_template=source, tokenize=False, add_generation_prompt=True
    )
    assert "Reasoning Mode: /think\n" in own
    assert own.endswith("<|im_start|>assistant\n")
    ours = render(lens_of(models["smollm3"]), chat())
    assert "Reasoning Mode: /no_think\n" in ours
    assert ours.endswith("<|im_start|>assistant\n<think>\n\n</think>\n")
    assert ours.count("<|im_end|>") == 1, "the system block stays open, as the model was trained"


@pytest.mark.parametrize(
    ("whole", "part"),
    [
        ("if enable_thinking is defined else true", "if false else true"),
        ("'/think' if thinks else '/no_think'", "'/think'"),
        ("{%- if not thinks %}{{- '<think>\\n\\n</think>\\n' }}{%- endif %}", ""),
        ("<think>\\n\\n</think>\\n' }}", "<think>\\n' }}"),
    ],
    ids=["switch not heeded", "header still on", "no empty block", "open block"],
)
def test_a_template_that_still_thinks_is_refused(tmp_path: Path, whole: str, part: str) -> None:
    assert whole in SMOLLM3_LIKE.source
    changed = SMOLLM3_LIKE._replace(source=SMOLLM3_LIKE.source.replace(whole, part))
    model = load_model(write("smollm3", tmp_path / "m", changed), device="cpu")
    with pytest.raises(EvaluationError, match="think"):
        render(lens_of(model), chat())


@pytest.mark.parametrize("family", FAMILIES)
def test_hashes_stay(models: dict[str, Any], family: str, tmp_path: Path) -> None:
    again = load_model(write(family, tmp_path / "m", TEMPLATES[family]), device="cpu")
    facts = model_facts(models[family])
    assert facts.template == hashlib.sha256(TEMPLATES[family].source.encode()).hexdigest()
    assert facts.template == model_facts(again).template
    texts = [[render(lens_of(model), chat())] for model in (models[family], again)]
    assert text_digest(texts[0]) == text_digest(texts[1]) == text_digest([expected(family)])
    changed = TEMPLATES[family]._replace(source=TEMPLATES[family].source + " ")
    other = load_model(write(family, tmp_path / "n", changed), device="cpu")
    assert model_facts(other).template != facts.template


@pytest.mark.parametrize("family", FAMILIES)
def test_a_task_in_chat_style(models: dict[str, Any], family: str) -> None:
    task = get_task("arithmetic", style="chat")
    example = task.examples()[0]
    request = task.request(example)
    assert isinstance(request, Generate)
    shown = show(models[family], task, example)
    text, _, facts = shown.rpartition("-" * 40)
    assert text == expected(family, request.prompt) + "\n"
    present = "present" if TEMPLATES[family].bos else "absent"
    assert f"beginning-of-sequence token {present}" in facts
    assert f"SHA-256 of the text: {text_digest([text[:-1]])}" in facts
