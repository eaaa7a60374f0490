"""Arithmetic: the problems are right, the prompts exact, and the verdicts those of the published tables."""

from __future__ import annotations

import json
import re
from collections import Counter
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cel_lens.errors import InvalidInput
from cel_lens.tasks import (
    Arithmetic,
    ChoiceScores,
    Choose,
    Example,
    Generate,
    Generation,
    Verdict,
    make_panels,
)
from cel_lens.tasks.arithmetic import DEFAULT_INSTRUCTION, clean_context, parse_integer

WORDS = {"plus": "+", "minus": "-", "times": "*"}
SHOT_LINES = 3 * 6  # question, answer and an empty line


def solve(question: str) -> int:
    """The answer to a question, by Python's own arithmetic."""
    match = re.search(r"What is (-?\d+) (plus|minus|times) (-?\d+)\?", question)
    assert match is not None
    first, word, second = match.groups()
    return int(eval(f"({first}) {WORDS[word]} ({second})"))


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def problem(question: str, completion: str) -> dict[str, str]:
    return {"context": f"Question: {question}\nAnswer:", "completion": completion}


# Generated problems.


def test_every_generated_answer_is_right() -> None:
    examples = Arithmetic().examples()
    for one in examples:
        assert int(one.target) == solve(one.prompt)
        assert one.fields["completion"] == f" {one.target}"
    assert len({one.id for one in examples}) == len({one.group for one in examples}) == len(examples)


def test_strata_hold_what_they_say() -> None:
    examples = Arithmetic().examples()
    assert Counter(one.stratum for one in examples) == {
        "1-digit sum": 99,  # of 100, one is a solved problem of the prompt; so below
        "1-digit difference": 54,
        "1-digit product": 99,
        "2-digit sum": 500,
        "2-digit by 1-digit product": 359,
    }
    for one in examples:
        first, second = map(int, re.findall(r"\d+", one.prompt))
        word = {"sum": "plus", "difference": "minus", "product": "times"}[one.stratum.split()[-1]]
        assert f" {word} " in one.prompt
        assert (first >= 10, second >= 10) == {
            "1": (False, False),
            "2": (True, one.stratum == "2-digit sum"),
        }[one.stratum[0]]
        assert int(one.target) >= 0


def test_generated_problems_are_always_the_same() -> None:
    first, second = Arithmetic().examples(), Arithmetic(style="chat").examples()
    assert first == second
    assert first[0].id == "arithmetic/1-digit-sum/000000"


# Prompts.


def test_the_completion_prompt_is_six_solved_problems_and_the_question() -> None:
    task = Arithmetic()
    example = task.examples()[0]
    request = task.request(example)
    assert isinstance(request, Generate)
    assert (request.style, request.stop, request.max_new_tokens) == ("completion", ("\n",), 12)
    assert request.prompt.endswith("\n\n" + example.prompt)
    lines = request.prompt.split("\n")
    assert len(lines) == SHOT_LINES + 2
    for start in range(0, SHOT_LINES, 3):
        assert lines[start].startswith("Question: What is ")
        assert lines[start + 1] == f"Answer: {solve(lines[start])}"
        assert lines[start + 2] == ""
    assert re.fullmatch(r"Question: What is \d+ \w+ \d+\?", lines[-2])
    assert lines[-1] == "Answer:"
    assert task.protocol == "completion-6shot"


def test_solved_problems_of_the_prompt_are_never_asked() -> None:
    task = Arithmetic()
    request = task.request(task.examples()[0])
    assert isinstance(request, Generate)
    shots = set(re.findall(r"Question: (.*)", request.prompt)[:6])
    assert len(shots) == 6
    panels = make_panels(task.examples(), n_discovery=300, n_heldout=700)
    for one in (*panels.discovery, *panels.heldout):
        assert re.search(r"Question: (.*)", one.prompt)[1] not in shots  # type: ignore[index]


def test_the_chat_prompt_is_the_instruction_and_the_bare_question() -> None:
    task = Arithmetic(style="chat")
    example = task.examples()[0]
    assert task.request(example) == Generate(
        prompt=f"{DEFAULT_INSTRUCTION}\n\n{example.prompt}", max_new_tokens=32, style="chat"
    )
    assert example.prompt.endswith("\nAnswer:")
    assert task.protocol == "chat"


def test_another_instruction_is_another_protocol() -> None:
    other = Arithmetic(style="chat", instruction="Solve it.")
    assert other.protocol == f"chat, instruction {sha256(b'Solve it.').hexdigest()[:8]}"
    assert other.request(other.examples()[0]).prompt.startswith("Solve it.\n\nQuestion:")  # type: ignore[union-attr]
    assert Arithmetic(instruction="Solve it.").protocol == "completion-6shot", "it is not part of this prompt"


def test_the_teacher_forced_prompt_is_the_question_and_the_stored_completion() -> None:
    task = Arithmetic(style="lm-eval")
    example = task.examples()[0]
    assert task.request(example) == Choose(context=example.prompt, choices=(f" {example.target}",))
    assert (task.protocol, task.metric) == ("lm-eval", "acc")
    assert Arithmetic().metric == Arithmetic(style="chat").metric == "integer-match"


def test_another_style_is_refused() -> None:
    with pytest.raises(InvalidInput, match="style is 'completion', 'chat' or 'lm-eval', not 'few-shot'"):
        Arithmetic(style="few-shot")  # type: ignore[arg-type]


# Verdicts.

ANSWERS = [
    # text, gold, right, answer
    ("7", 7, True, "7"),
    (" 7\n", 7, True, "7"),
    ("+7", 7, True, "7"),
    ("007", 7, True, "7"),
    ("-0", 0, True, "0"),
    ("-55", -55, True, "-55"),
    ("55", -55, False, "55"),
    ("８", 7, False, "8"),
    ("７", 7, True, "7"),
    ("٧", 7, True, "7"),
    ("7.", 7, False, None),
    ("7.0", 7, False, None),
    ("1,234", 1234, False, None),
    ("7 8", 7, False, None),
    ("7\n\n8", 7, False, None),
    ("", 7, False, None),
    (" \n", 7, False, None),
    ("− 7", -7, False, None),
    ("- 7", -7, False, None),
    ("−7", -7, False, None),
    ("--7", 7, False, None),
    ("= 7", 7, False, None),
    ("**7**", 7, False, None),
    ("The answer is 7", 7, False, None),
    ("²", 2, False, None),
    ("7_0", 70, False, None),
    ("1e2", 100, False, None),
    ("9" * 5000, 7, False, None),
]


@pytest.mark.parametrize("style", ["chat", "completion"])
@pytest.mark.parametrize(("text", "gold", "right", "answer"), ANSWERS)
def test_the_whole_answer_must_be_the_integer(
    style: Any, text: str, gold: int, right: bool, answer: str | None
) -> None:
    example = Example(id="a", prompt="", target=str(gold))
    found = Arithmetic(style=style).judge(example, Generation(text=text))
    assert found == Verdict(correct=right, answer=answer)


@pytest.mark.parametrize("text", ["<think>7</think>", "<think>", "</think>\n7"])
def test_thinking_is_flagged_and_never_stripped(text: str) -> None:
    found = Arithmetic(style="chat").judge(Example(id="a", prompt="", target="7"), Generation(text=text))
    assert found == Verdict(correct=False, answer=None, flags=("thinking",))


@pytest.mark.parametrize("greedy", [True, False])
def test_the_teacher_forced_verdict_is_the_greedy_path(greedy: bool) -> None:
    example = Example(id="a", prompt="", target="143")
    found = Arithmetic(style="lm-eval").judge(
        example, ChoiceScores(log_likelihoods=(-0.1,), greedy=(greedy,))
    )
    assert found.correct == greedy
    assert (found.answer == "143") == greedy


@given(st.integers(), st.sampled_from(["", "+"]), st.integers(0, 3), st.text(" \t\n", max_size=3))
def test_every_way_to_write_an_integer_reads_back(number: int, plus: str, zeros: int, space: str) -> None:
    sign = "-" if number < 0 else plus
    assert parse_integer(f"{space}{sign}{'0' * zeros}{abs(number)}{space}") == number
    assert parse_integer(f"{number}.") is parse_integer(f"{number} {number}") is None


# Published rows.


def test_published_contexts_become_questions_and_answers() -> None:
    raw = "\n\nQ: What is 98 plus 45?\n\nA:"
    assert clean_context(raw) == "Question: What is 98 plus 45?\nAnswer:"
    assert clean_context(" Q: What is (9 + 8) * 2?\n\nA: ") == "Question: What is (9 + 8) * 2?\nAnswer:"


@given(
    st.lists(
        st.sampled_from(["Q:", "A:", "\n", "\n\n", "7", " ", "QA:", "Question:", "x\n"]), max_size=8
    ).map("".join)
)
def test_cleaning_twice_changes_nothing_more(text: str) -> None:
    if "\n\n\n" not in text:  # in no published row
        assert clean_context(clean_context(text)) == clean_context(text)


def test_rows_in_published_columns_become_examples(tmp_path: Path) -> None:
    file = write(
        tmp_path / "two_digit_addition.jsonl",
        [
            {"context": "\n\nQ: What is 98 plus 45?\n\nA:", "completion": " 143"},
            problem("What is 33 minus 88?", " -55"),
            problem("What is (9 + 8) * 2?", " 34"),
            problem("What is 23  plus\n1?", " 024"),
        ],
    )
    found = Arithmetic(data=file).examples()
    assert [(one.id.split("/")[-1], one.target, one.stratum) for one in found] == [
        ("000000", "143", "2-digit sum"),
        ("000001", "-55", "2-digit difference"),
        ("000002", "34", "other"),
        ("000003", "24", "other"),
    ]
    assert all(one.id.startswith("arithmetic/two_digit_addition/") for one in found)
    assert found[0].prompt == "Question: What is 98 plus 45?\nAnswer:"
    assert found[3].group == "Question: What is 23 plus 1? Answer:"
    forced = Arithmetic(style="lm-eval", data=file)
    assert forced.request(found[3]) == Choose(context=found[3].prompt, choices=(" 024",))


def test_a_problem_that_occurs_twice_stands_on_one_panel(tmp_path: Path) -> None:
    rows = [problem(f"What is {place} plus 1?", f" {place + 1}") for place in range(10, 14)] * 2
    task = Arithmetic(data=write(tmp_path / "rows.jsonl", rows))
    panels = make_panels(task.examples(), n_discovery=2, n_heldout=4)
    texts = [{one.prompt for one in panel} for panel in (panels.discovery, panels.heldout)]
    assert len(texts[0]) == 2
    assert not texts[0] & texts[1]


def test_solved_problems_of_the_prompt_are_left_out_of_files(tmp_path: Path) -> None:
    rows = [problem("What is 47 plus 36?", " 83"), problem("What is 47 plus 37?", " 84")]
    file = write(tmp_path / "rows.jsonl", rows)
    assert [(one.id, one.target) for one in Arithmetic(data=file).examples()] == [
        ("arithmetic/rows/000001", "84")
    ]
    with pytest.raises(InvalidInput, match=r"only\.jsonl holds no problem besides the six solved ones"):
        Arithmetic(data=write(tmp_path / "only.jsonl", rows[:1])).examples()


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (problem("What is 1 plus 1?", " two"), "line 2: column 'completion' is an integer, not ' two'"),
        (problem("What is 1 plus 1?", ""), "line 2: column 'completion' is empty"),
        ({"context": "", "completion": " 2"}, "line 2: column 'context' is empty"),
        ({"context": 7, "completion": " 2"}, "line 2: column 'context' is text, not 7"),
        ({"context": "x", "completion": 2}, "line 2: column 'completion' is text, not 2"),
        ({"question": "x", "completion": " 2"}, "line 2: column 'context' is missing"),
    ],
)
def test_a_bad_row_is_named(tmp_path: Path, row: dict[str, Any], message: str) -> None:
    file = write(tmp_path / "rows.jsonl", [problem("What is 1 plus 2?", " 3"), row])
    with pytest.raises(InvalidInput) as caught:
        Arithmetic(data=file).examples()
    assert f"rows.jsonl, {message}" in str(caught.value)


def test_a_file_is_read_again_when_it_changes(tmp_path: Path) -> None:
    file = write(tmp_path / "rows.jsonl", [problem("What is 1 plus 2?", " 3")])
    assert len(Arithmetic(data=file).examples()) == 1
    write(file, [problem("What is 1 plus 2?", " 3"), problem("What is 1 plus 3?", " 4")])
    assert len(Arithmetic(data=file).examples()) == 2


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="there is no file"):
        Arithmetic(data=tmp_path / "absent.jsonl").examples()
