"""How tasks reach a model: prompts shown, permission asked for, verdicts and flags collected."""

from __future__ import annotations

import sys

import pytest
from typer.testing import CliRunner

from cel_lens import evaluate_heads
from cel_lens.errors import EvaluationError, InvalidInput
from cel_lens.evaluation.answers import finish_generation
from cel_lens.evaluation.batches import Item
from cel_lens.evaluation.encoding import GenerationPrompt, encode_request
from cel_lens.evaluation.prompts import show
from cel_lens.models import lens_of
from cel_lens.tasks import (
    BoolQ,
    Example,
    Generate,
    Generation,
    HellaSwag,
    Verdict,
    get_task,
    judge_all,
    prepare_task,
)
from tests.models.tiny import tiny_folder, tiny_model
from tests.tasks.rows import own, write

EXAMPLE = Example(id="one", prompt="say it", target="it")


class Echo:
    """A task that asks for text."""

    name, protocol, metric = "echo", "completion", "exact"

    def examples(self):
        return (EXAMPLE,)

    def request(self, example):
        return Generate(prompt=example.prompt, max_new_tokens=3)

    def judge(self, example, response):
        return Verdict(correct=response.text == example.target, answer=response.text)


def test_a_task_judges_all_at_once_where_it_can_and_one_by_one_otherwise():
    class Together(Echo):
        def judge_all(self, examples, responses):
            return [Verdict(correct=True, answer="together") for _ in examples]

    answers = [Generation(text="it"), Generation(text="no")]
    assert [one.correct for one in judge_all(Echo(), [EXAMPLE] * 2, answers)] == [True, False]
    assert [one.answer for one in judge_all(Together(), [EXAMPLE] * 2, answers)] == ["together"] * 2
    assert evaluate_heads(tiny_model("llama"), Together(), "").details[0].answer == "together"


def test_verdicts_that_do_not_match_the_examples_are_refused():
    class Short(Echo):
        def judge_all(self, examples, responses):
            return []

    with pytest.raises(InvalidInput, match="gave 0 verdicts for 1 examples"):
        judge_all(Short(), [EXAMPLE], [Generation(text="it")])


def test_a_task_that_cannot_be_judged_is_refused_before_the_model_is_loaded():
    class Unready(Echo):
        def prepare(self):
            raise InvalidInput("not today")

    with pytest.raises(InvalidInput, match="not today"):
        prepare_task(Unready())
    with pytest.raises(InvalidInput, match="not today"):
        evaluate_heads("no such model", Unready(), "")


def test_what_verdicts_depend_on_is_in_the_provenance(tmp_path):
    from cel_lens import SearchConfig, find_beneficial_heads

    class Versioned(Echo):
        @property
        def versions(self):
            return {"sandbox": "a box of sand"}

        def examples(self):
            return tuple(Example(id=str(n), prompt=f"say {n}", target="it") for n in range(4))

    config = SearchConfig(n_discovery=2, n_heldout=2, max_heads=1, pool_size=2, layers=(0,))
    found = find_beneficial_heads(tiny_model("llama"), Versioned(), config, progress="silent")
    assert found.provenance.versions["sandbox"] == "a box of sand"


def test_a_thinking_mark_is_flagged_even_as_a_special_token():
    lens = lens_of(tiny_model("llama"))
    item = Item(
        place=0,
        example=EXAMPLE,
        prompt=GenerationPrompt(text="x", token_ids=(3,), max_new_tokens=64, stop=("5",)),
    )
    plain = tuple(lens.tokenizer.encode("<think>1</think>5", add_special_tokens=False))
    assert finish_generation(lens, item, plain).thinking
    assert not finish_generation(
        lens, item, tuple(lens.tokenizer.encode("15", add_special_tokens=False))
    ).thinking


def smollm3(ending, mode="/no_think"):
    return (
        "<|system|>Reasoning Mode: " + mode + "{% for message in messages %}<|user|>{{ message['content'] }}"
        "{% endfor %}<|assistant|>{{ '" + ending + "' }}"
    )


@pytest.mark.parametrize(
    ("template", "problem"),
    [
        (smollm3(r"<think>\n\n</think>\n"), None),
        (smollm3(r"<think>\n"), "opens a thinking block"),
        (smollm3(""), "does not switch thinking off"),
        (smollm3(r"<think>\n\n</think>\n", mode="/think"), "does not switch thinking off"),
    ],
)
def test_thinking_must_be_switched_off(template, problem, tmp_path):
    from cel_lens import load_model

    lens = lens_of(load_model(tiny_folder("llama", tmp_path / "m"), device="cpu"))
    lens.tokenizer.chat_template = template
    request = Generate(prompt="Reasoning Mode: is a phrase", style="chat")
    if problem is None:
        assert encode_request(lens, EXAMPLE, request).text.endswith("</think>\n")
    else:
        with pytest.raises(EvaluationError, match=problem):
            encode_request(lens, EXAMPLE, request)


def test_boolq_and_hellaswag_are_scored_with_their_flags(tmp_path):
    model = tiny_model("llama")
    outcomes = evaluate_heads(model, BoolQ(data=own("boolq")), "", n=4)
    assert all(len(one.log_likelihoods) == 2 for one in outcomes.details)
    norm, plain = (
        evaluate_heads(model, HellaSwag(data=own("hellaswag"), metric=metric), "")
        for metric in ("acc_norm", "acc")
    )
    assert [one.log_likelihoods for one in norm.details] == [one.log_likelihoods for one in plain.details]
    assert norm.count("right-by-acc") == plain.n_correct
    assert plain.count("right-by-acc_norm") == norm.n_correct
    assert norm.metric != plain.metric


def test_a_shown_prompt_is_what_the_model_is_given():
    model = tiny_model("llama")
    task = BoolQ(data=own("boolq"))
    text = show(model, task, task.examples()[0])
    prompt, _, facts = text.partition("\n" + "-" * 40 + "\n")
    lens = lens_of(model)
    encoded = encode_request(lens, task.examples()[0], task.request(task.examples()[0]))
    assert prompt == encoded.text
    assert f"{len(encoded.context_ids)} tokens, the first 0, " in facts
    assert "beginning-of-sequence token present" in facts
    assert "continuation ' yes'" in facts


@pytest.fixture
def run(tmp_path):
    """The command line on a tiny model."""
    from cel_lens.cli import app

    folder = tiny_folder("llama", tmp_path / "model", max_position_embeddings=2048)

    def command(*arguments):
        return CliRunner().invoke(app, [arguments[0], "--model", str(folder), *arguments[1:]])

    return command


def test_show_prompt_prints_any_example(run):
    options = ("show-prompt", "--task", "mbpp", "--data", str(own("mbpp")))
    shown = run(*options, "--example", "mbpp/mbpp/000016").stdout
    assert shown.startswith("<|bos|><|user|>You are an expert Python programmer")
    assert "<|assistant|>[BEGIN]\n" in shown
    assert "at most 256 new tokens, stop at ['[DONE]']" in shown
    assert "mbpp/mbpp/000012" in run(*options, "--index", "1").stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--index", "99"), "--index is 0 to 9 for the task mbpp, not 99"),
        (("--example", "mbpp/1"), "has no example 'mbpp/1'; its first is 'mbpp/mbpp/000011'"),
        (("--set", "order"), "--set takes NAME=VALUE, not 'order'"),
        (("--set", "order=tests"), "order is 'program-setup-tests' or"),
        (("--metric", "acc"), "task 'mbpp' has no option 'metric'"),
    ],
)
def test_show_prompt_refuses_what_it_cannot_show(run, arguments, message):
    found = run("show-prompt", "--task", "mbpp", "--data", str(own("mbpp")), *arguments)
    assert isinstance(found.exception, InvalidInput)
    assert message in str(found.exception)


@pytest.mark.slow
def test_code_runs_only_with_permission_on_the_command_line(run):
    options = ("evaluate", "--task", "mbpp", "--data", str(own("mbpp")), "--heads", "", "--n", "2")
    assert isinstance(run(*options).exception, InvalidInput)
    if sys.platform == "linux":
        found = run(*options, "--allow-code-execution")
        assert found.exit_code == 0, found.exception
        assert "sandbox: " in found.stdout
        assert "intact: 0/2 = 0.0 % (mbpp, chat-prefill-3shot, pass@1" in found.stdout


def test_settings_are_read_as_json_or_text(run, tmp_path):
    file = write(tmp_path / "sums.jsonl", [{"prompt": "1 + 1 =", "target": "2"}])
    found = run(
        *("evaluate", "--task", "rows", "--data", str(file), "--heads", ""),
        *("--set", "max_new_tokens=2", "--set", 'stop=["x"]', "--set", r"extract=\d"),
    )
    assert found.exit_code == 0, found.exception
    assert "(rows/sums, completion, at most 2 tokens, stop ['x'], extract " in found.stdout


def test_an_unknown_task_is_answered_with_the_known_ones():
    with pytest.raises(InvalidInput, match="did you mean 'hellaswag'") as caught:
        get_task("helaswag")
    assert "arithmetic, boolq, hellaswag, mbpp, rows and, with lm-evaluation-harness, lm-eval:NAME" in str(
        caught.value
    )
