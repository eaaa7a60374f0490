from __future__ import annotations

import pytest

from cel_lens.errors import InvalidInput
from cel_lens.tasks import ChoiceScores, Choose, Generate, Generation, get_task, make_panels
from tests.tasks.rows import write

CHOICES = [
    {"prompt": "The sky is", "choices": ["green", "blue"], "answer": "blue"},
    {"prompt": "Two and two make", "choices": ["3", "4", "0"], "answer": 1},
    {"prompt": "A digit that is a choice:", "choices": ["1", "0"], "answer": "0"},
]
TARGETS = [{"prompt": "France:", "target": "Paris"}, {"prompt": "6 + 7 =", "target": 13}]


def rows(tmp_path, values, **options):
    return get_task("rows", data=write(tmp_path / "mine.jsonl", values), **options)


def test_choices_are_asked_behind_a_space_and_answers_are_texts_or_places(tmp_path):
    task = rows(tmp_path, CHOICES)
    assert task.request(task.examples()[0]) == Choose(context="The sky is", choices=(" green", " blue"))
    assert [one.target for one in task.examples()] == ["blue", "4", "0"]
    assert (task.name, task.protocol, task.metric) == ("rows/mine", "choices", "acc")


@pytest.mark.parametrize(
    ("metric", "scores", "answer", "flags"),
    [
        ("acc", (-2.0, -1.0), "blue", ()),
        ("acc", (-1.0, -1.0), "green", ("tie",)),
        ("acc_norm", (-2.5, -2.4), "green", ()),
        ("acc", (-2.5, -2.4), "blue", ()),
    ],
)
def test_the_likeliest_choice_is_the_answer(tmp_path, metric, scores, answer, flags):
    task = rows(tmp_path, CHOICES, metric=metric)
    verdict = task.judge(task.examples()[0], ChoiceScores(log_likelihoods=scores, greedy=(False, False)))
    assert (verdict.answer, verdict.correct, verdict.flags) == (answer, answer == "blue", flags)


@pytest.mark.parametrize(
    ("text", "extract", "answer", "correct"),
    [
        (" 13", "", "13", True),
        ("13 apples", "", "13 apples", False),
        ("13 apples", r"\d+", "13", True),
        ("It is <13>.", r"<(\d+)>", "13", True),
        ("none", r"\d+", None, False),
        ("  ", "", None, False),
    ],
)
def test_a_target_is_compared_with_what_is_extracted(tmp_path, text, extract, answer, correct):
    task = rows(tmp_path, TARGETS, extract=extract)
    verdict = task.judge(task.examples()[1], Generation(text=text))
    assert (verdict.answer, verdict.correct) == (answer, correct)


def test_generation_settings_are_options_and_named_in_the_protocol(tmp_path):
    task = rows(tmp_path, TARGETS, style="chat", max_new_tokens=5, stop=["\n", "."])
    assert task.request(task.examples()[0]) == Generate(
        prompt="France:", max_new_tokens=5, stop=("\n", "."), style="chat"
    )
    assert task.protocol == "chat, at most 5 tokens, stop ['\\n', '.']"
    assert rows(tmp_path, TARGETS).protocol != rows(tmp_path, TARGETS, extract=r"\d").protocol


def test_groups_strata_and_splits_reach_the_panels(tmp_path):
    values = [
        {**TARGETS[0], "group": "a", "split": "discovery"},
        {**TARGETS[1], "group": "b", "split": "heldout", "stratum": "sum"},
    ]
    panels = make_panels(rows(tmp_path, values).examples(), n_discovery=1, n_heldout=1)
    assert panels.discovery[0].prompt == "France:"
    assert panels.heldout[0].stratum == "sum"


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"prompt": "x"}, "line 1: column 'target' is missing"),
        ({"prompt": "x", "choices": ["a", "b"]}, "line 1: column 'answer' is missing"),
        ({"prompt": "x", "choices": ["a"], "answer": "b"}, "is one of the choices, or its index from 0 to 0"),
        ({"prompt": "x", "choices": ["a"], "answer": 1}, "is one of the choices, or its index from 0 to 0"),
        ({"prompt": "x", "choices": ["a", ""], "answer": 0}, "line 1: column 'choices' holds an empty text"),
        ({"prompt": "x", "choices": "ab", "answer": 0}, "line 1: column 'choices' is a list of texts"),
        ({"prompt": " ", "target": "x"}, "line 1: column 'prompt' is empty"),
        ({"prompt": "x", "target": 1.5}, "line 1: column 'target' is text"),
        ({"prompt": "x", "target": "y", "split": "test"}, "column 'split' is 'discovery' or 'heldout'"),
        ({"target": "y"}, "line 1: column 'prompt' is missing"),
    ],
)
def test_a_bad_row_is_named(tmp_path, row, message):
    with pytest.raises(InvalidInput) as caught:
        rows(tmp_path, [row])
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("values", "options", "message"),
    [
        (
            CHOICES,
            {"metric": "exact-match"},
            "have choices, so metric is 'acc' or 'acc_norm', not 'exact-match'",
        ),
        (TARGETS, {"metric": "acc"}, "have a target, so metric is 'exact-match', not 'acc'"),
        (TARGETS, {"extract": "("}, "extract is not a regular expression"),
        (TARGETS, {"stop": "\n"}, "stop is a list of texts"),
        (TARGETS, {"max_new_tokens": 0}, "max_new_tokens is at least 1"),
        (TARGETS, {"colour": "red"}, "task 'rows' has no option 'colour'"),
    ],
)
def test_options_that_do_not_fit_are_refused(tmp_path, values, options, message):
    with pytest.raises(InvalidInput) as caught:
        rows(tmp_path, values, **options)
    assert message in str(caught.value)


def test_a_file_is_needed():
    with pytest.raises(InvalidInput, match=r"task 'rows' needs data=\.\.\. \(--data\)"):
        get_task("rows")
