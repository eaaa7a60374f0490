"""Scores and verdicts equal those of lm-evaluation-harness, row by row."""

from __future__ import annotations

import contextlib
import functools
import tempfile
from pathlib import Path

import pytest

pytest.importorskip("lm_eval", reason="lm-evaluation-harness is an optional extra (cel-lens[lm-eval])")

from cel_lens import evaluate_heads, get_task, load_model
from cel_lens.errors import InvalidInput
from cel_lens.models.embedded import read_embedded
from cel_lens.tasks import MBPP
from tests.models.tiny import tiny_folder
from tests.tasks.harness import harness_object, run_harness
from tests.tasks.rows import own, read, real, write

# the harness and the packages it imports give warnings of their own
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

SUMS = [
    {"context": f"Question: What is {a} plus {b}?\nAnswer:", "completion": f" {a + b}"}
    for a, b in ((2, 3), (4, 4), (10, 7), (45, 32), (98, 45), (1, 1))
]


@functools.cache
def models(which: str):
    """One checkpoint, loaded here and by transformers."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    if which == "smollm2":
        checkpoint = read_embedded(torch.float32)
        return load_model("smollm2-135m-instruct", device="cpu"), checkpoint.hf_model, checkpoint.tokenizer
    folder = tiny_folder(which, Path(tempfile.mkdtemp()) / which, max_position_embeddings=1024)
    theirs = AutoModelForCausalLM.from_pretrained(folder).eval()
    return load_model(folder, device="cpu"), theirs, AutoTokenizer.from_pretrained(folder)


def compare(which, ours, name, rows, metric, **changes):
    """Evaluate the same rows twice and hold the results against each other."""
    model, theirs, tokenizer = models(which)
    outcomes = evaluate_heads(model, ours, "")
    expected = run_harness(name, rows, theirs, tokenizer, **changes)
    assert len(outcomes.details) == len(expected)
    for detail, correct, one in zip(outcomes.details, outcomes.correct, expected, strict=True):
        assert detail.log_likelihoods == pytest.approx(one.log_likelihoods, abs=1e-3)
        assert correct == (one.metrics[metric] == 1.0)
    return outcomes


MODELS = ["llama", "gpt_neox", "smollm2"]


def some(which, name, count):
    """Rows of our own writing; for the real model also published ones, where the machine has them."""
    rows = read(own(name)) if name != "arithmetic_2da" else SUMS
    if which == "smollm2":
        with contextlib.suppress(pytest.skip.Exception):
            rows = read(real(name))[:count]
    return rows


@pytest.mark.parametrize("which", MODELS)
def test_boolq(which, tmp_path):
    rows = [row | {"label": int(row["answer"])} for row in some(which, "boolq", 10)]
    rows = [{name: row[name] for name in ("question", "passage", "label")} for row in rows]
    compare(which, get_task("boolq", data=write(tmp_path / "rows.jsonl", rows)), "boolq", rows, "acc")


@pytest.mark.parametrize("metric", ["acc", "acc_norm"])
@pytest.mark.parametrize("which", MODELS)
def test_hellaswag(which, metric, tmp_path):
    rows = some(which, "hellaswag", 10)
    file = write(tmp_path / "rows.jsonl", rows)
    compare(which, get_task("hellaswag", data=file, metric=metric), "hellaswag", rows, metric)


@pytest.mark.parametrize("which", MODELS)
def test_arithmetic(which, tmp_path):
    # the last row is right for any model that can repeat, so that both verdicts occur
    rows = [*some(which, "arithmetic_2da", 20), {"context": "7, " * 12 + "7,", "completion": " 7"}]
    file = write(tmp_path / "rows.jsonl", rows)
    outcomes = compare(
        which, get_task("arithmetic", data=file, style="lm-eval"), "arithmetic_2da", rows, "acc"
    )
    if which == "smollm2":
        assert 0 < outcomes.n_correct < outcomes.n, "both verdicts occur"


def test_the_mbpp_prompt_without_a_template_is_the_harness_prompt():
    task = MBPP(data=own("mbpp"), style="completion")
    rows = {row["task_id"]: row for row in read(own("mbpp"))}
    shots = [rows[number] | {"is_fewshot": True} for number in (2, 3, 4)]
    config = {
        "metric_list": [{"metric": "exact_match", "aggregation": "mean", "higher_is_better": True}],
        "unsafe_code": False,
        "num_fewshot": 3,
        "fewshot_config": {"sampler": "first_n", "samples": shots},
    }
    # its own functions load a metric from the network
    theirs = harness_object("mbpp", [rows[11], rows[15]], functions=False, **config)
    for number, document in zip((11, 15), theirs.eval_docs, strict=True):
        example = next(one for one in task.examples() if one.id.endswith(f"{number:06d}"))
        assert task.request(example).prompt == theirs.fewshot_context(document, 3)


LETTERS = ["A", "B", "C", "D"]
HARNESS_ROWS = {
    "arc_easy": [
        {
            "id": str(n),
            "question": question,
            "choices": {"text": choices, "label": LETTERS},
            "answerKey": LETTERS[right],
        }
        for n, (question, choices, right) in enumerate(
            [
                ("What melts in the warm sun?", ["a stone", "an ice cube", "a nail", "sand"], 1),
                ("Which animal lays eggs?", ["a cow", "a dog", "a horse", "a hen"], 3),
                ("What do plants need to grow?", ["light", "paint", "music", "glue"], 0),
            ]
        )
    ],
    "piqa": [
        {"goal": "To open a jar", "sol1": "turn its lid", "sol2": "turn the table", "label": 0},
        {
            "goal": "To dry a wet shirt",
            "sol1": "put it in a bucket",
            "sol2": "hang it in the wind",
            "label": 1,
        },
    ],
    "sciq": [
        {
            "support": "Iron rusts when water and air reach it.",
            "question": "What does iron do in wet air?",
            "distractor1": "sing",
            "distractor2": "melt",
            "distractor3": "float",
            "correct_answer": "rust",
        },
        {
            "support": "",
            "question": "What falls from clouds?",
            "distractor1": "bread",
            "distractor2": "sand",
            "distractor3": "wool",
            "correct_answer": "rain",
        },
    ],
    "openbookqa": [
        {
            "id": "1",
            "question_stem": "A torch without a battery",
            "choices": {"text": ["stays dark", "shines", "rings", "swims"], "label": LETTERS},
            "answerKey": "A",
        },
        {
            "id": "2",
            "question_stem": "Bees fly to flowers for",
            "choices": {"text": ["coal", "shoes", "nectar", "letters"], "label": LETTERS},
            "answerKey": "C",
        },
    ],
    "lambada_openai": [
        {"text": "She put the key into the lock, turned it, and opened the door"},
        {"text": "He was thirsty, went to the tap and filled a glass with water"},
    ],
    "triviaqa": [
        {"question": "What is the capital of France", "answer": {"aliases": ["Paris", "Paris, France"]}},
        {"question": "How many days has a week", "answer": {"aliases": ["7", "seven"]}},
    ],
    "gsm8k": [
        {"question": "Tom has 2 pears and buys 3. How many has he?", "answer": "He has 2+3=5.\n#### 5"},
        {"question": "A box holds 6 eggs. How many hold 2 boxes?", "answer": "2*6=12.\n#### 12"},
    ],
}


@pytest.mark.parametrize("which", ["llama", "smollm2"])
@pytest.mark.parametrize("name", HARNESS_ROWS)
def test_tasks_by_name_give_the_verdicts_of_the_harness(which, name, tmp_path):
    rows = HARNESS_ROWS[name]
    file = write(tmp_path / "mine.jsonl", rows)
    task = get_task(f"lm-eval:{name}", data=file, num_fewshot=0)
    assert task.name == f"lm-eval:{name}"
    assert task.examples()[0].id == f"lm-eval:{name}/mine/000000"
    if task.metric != "exact_match":
        compare(which, task, name, rows, task.metric)
        return
    model, theirs, tokenizer = models(which)
    outcomes = evaluate_heads(model, task, "")
    expected = run_harness(name, rows, theirs, tokenizer)
    assert [one.text for one in outcomes.details] == [one.text for one in expected]
    assert list(outcomes.correct) == [one.metrics["exact_match"] == 1.0 for one in expected]


def test_both_metrics_of_a_task_can_be_named(tmp_path):
    file = write(tmp_path / "mine.jsonl", HARNESS_ROWS["arc_easy"])
    assert get_task("lm-eval:arc_easy", data=file).metric == "acc"
    assert get_task("lm-eval:arc_easy", data=file, metric="acc_norm").metric == "acc_norm"
    with pytest.raises(
        InvalidInput, match="the metrics of arc_easy that can be used are acc, acc_norm, not 'f1'"
    ):
        get_task("lm-eval:arc_easy", data=file, metric="f1")


def test_filters_extract_the_answer(tmp_path):
    from cel_lens.tasks import Generation

    file = write(tmp_path / "mine.jsonl", HARNESS_ROWS["gsm8k"])
    strict = get_task("lm-eval:gsm8k", data=file, num_fewshot=0)
    loose = get_task("lm-eval:gsm8k", data=file, num_fewshot=0, filter="flexible-extract")
    assert strict.protocol == "lm-eval version 3.0, 0-shot, filter strict-match"
    example = strict.examples()[0]
    for text, by_strict, by_loose in (
        (" #### 5", True, True),
        (" It is 5", False, True),
        (" none", False, False),
    ):
        verdicts = [task.judge(example, Generation(text=text)) for task in (strict, loose)]
        assert [one.correct for one in verdicts] == [by_strict, by_loose]
        assert (verdicts[0].answer is None) == (not by_strict), "what no filter finds is no answer"
    with pytest.raises(InvalidInput, match="filters of gsm8k are strict-match, flexible-extract, not 'x'"):
        get_task("lm-eval:gsm8k", data=file, num_fewshot=0, filter="x")


def test_solved_examples_come_from_a_file_of_their_own(tmp_path):
    file = write(tmp_path / "mine.jsonl", HARNESS_ROWS["gsm8k"])
    shots = write(tmp_path / "shots.jsonl", [{"question": "What is 1 and 1?", "answer": "#### 2"}])
    with pytest.raises(InvalidInput, match="holds 5 solved examples: give a file of them"):
        get_task("lm-eval:gsm8k", data=file)
    task = get_task("lm-eval:gsm8k", data=file, shots=shots, num_fewshot=1)
    assert task.examples()[0].prompt == (
        "Question: What is 1 and 1?\nAnswer: #### 2\n\n"
        "Question: Tom has 2 pears and buys 3. How many has he?\nAnswer:"
    )
    assert "1-shot" in task.protocol


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("wikitext", "'wikitext' of lm-evaluation-harness cannot be used here: it needs output of the type"),
        ("ifeval", "it needs a function that judges"),
        ("humaneval", "it needs"),
        ("mbpp", "it needs to run generated code"),
        ("truthfulqa_mc2", "it needs a function that judges"),
        ("mmlu", "'mmlu' is a group of tasks"),
        ("arc_eazy", "has no task 'arc_eazy': did you mean 'arc_easy'"),
    ],
)
def test_what_cannot_be_used_is_refused_by_name(name, message, tmp_path):
    with pytest.raises(InvalidInput) as caught:
        get_task(f"lm-eval:{name}", data=write(tmp_path / "mine.jsonl", HARNESS_ROWS["arc_easy"]))
    assert message in str(caught.value)


def test_a_task_with_a_context_for_each_choice_is_refused(tmp_path):
    row = {
        "sentence": "The cup did not fit the box because the _ was small.",
        "option1": "cup",
        "option2": "box",
    }
    file = write(tmp_path / "mine.jsonl", [row | {"answer": "2"}])
    with pytest.raises(InvalidInput, match=r"'winogrande'.*it needs a context for each choice"):
        get_task("lm-eval:winogrande", data=file)


def test_rows_with_other_columns_are_refused(tmp_path):
    file = write(tmp_path / "mine.jsonl", [{"prompt": "x"}])
    with pytest.raises(InvalidInput, match="the rows of lm-eval:arc_easy cannot be used"):
        get_task("lm-eval:arc_easy", data=file)
