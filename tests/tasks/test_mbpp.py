from __future__ import annotations

import sys

import pytest

from cel_lens.errors import EvaluationError, InvalidInput
from cel_lens.tasks import MBPP, Generate, Generation, get_task, judge_all, make_panels, prepare_task
from cel_lens.tasks.mbpp import assemble, extract_program
from cel_lens.tasks.sandbox import Limits, Sandbox
from tests.tasks.rows import own, read, real, write

RIGHT = "def plus(a, b):\n    return a + b\n"


def task(**options):
    return MBPP(data=own("mbpp"), allow_code_execution=True, limits=Limits(wall=3.0), **options)


def example(found, number):
    return next(one for one in found.examples() if one.id.endswith(f"{number:06d}"))


def block(text, tests):
    return (
        f"You are an expert Python programmer, and here is your task: {text} "
        f"Your code should pass these tests:\n\n{tests}\n[BEGIN]\n"
    )


def test_the_prompt_is_three_solved_tasks_and_the_task_byte_for_byte():
    found = task(style="completion")
    request = found.request(example(found, 11))
    rows = {row["task_id"]: row for row in read(own("mbpp"))}
    solved = [
        block(rows[number]["text"], "\n".join(rows[number]["test_list"]))
        + rows[number]["code"]
        + "\n[DONE]\n\n"
        for number in (2, 3, 4)
    ]
    asked = block("Write a function to add two numbers.", "\n".join(rows[11]["test_list"]))
    assert request == Generate(prompt="".join(solved) + asked, max_new_tokens=256, stop=("[DONE]",))
    assert request.prompt.count("[BEGIN]") == 4
    assert request.prompt.count("[DONE]") == 3
    assert "\r\n\treturn 2 * n" in request.prompt, "line ends and tabs of the rows stay as they are"


def test_the_chat_prompt_moves_the_last_mark_behind_the_header():
    raw = task(style="completion").request(example(task(), 15)).prompt
    request = task().request(example(task(), 15))
    assert request.prompt + "[BEGIN]\n" == raw
    assert (request.style, request.prefill) == ("chat", "[BEGIN]\n")
    assert request.prompt.endswith("assert squares([-3]) == [9]\n\n"), (
        "a test may end in a line end of its own"
    )


def test_set_up_code_is_not_shown():
    assert "chain = Link" not in task().request(example(task(), 14)).prompt


def test_panels_follow_the_published_splits():
    panels = make_panels(task().examples(), n_discovery=4, n_heldout=6)
    assert sorted(one.id[-3:] for one in panels.discovery) == ["601", "602", "603", "604"]
    assert sorted(one.id[-3:] for one in panels.heldout) == ["011", "012", "013", "014", "015", "016"]


VERDICTS = {
    "correct, then the mark": (RIGHT + "[DONE]", "passed", ()),
    "correct, then the end": (RIGHT, "passed", ()),
    "then a new task without the mark": (
        RIGHT + "\nYou are an expert Python programmer, and here",
        "syntax: SyntaxError",
        ("syntax",),
    ),
    "fenced": (f"```python\n{RIGHT}```", "syntax: SyntaxError", ("syntax", "code-fence")),
    "empty": ("", None, ("exception",)),
    "the mark at once": ("[DONE]\n" + RIGHT, None, ("exception",)),
    "endless": ("while True: pass", "timeout", ("timeout",)),
    "cut in the middle": ("def plus(a, b):\n    return (a +", "syntax: SyntaxError", ("syntax",)),
    "sys.exit(0)": ("import sys\nsys.exit(0)", "early-exit: SystemExit", ("early-exit",)),
    "os._exit(0)": ("import os\nos._exit(0)", "early-exit: exit status 0", ("early-exit",)),
    "raise SystemExit": ("raise SystemExit", "early-exit: SystemExit", ("early-exit",)),
    "input": (RIGHT + "input()", "exception: EOFError", ("exception",)),
    "a main block": ("if __name__ == '__main__':\n    " + RIGHT.replace("\n", "\n    "), "passed", ()),
    "wrong": ("def plus(a, b): return a - b", "assertion", ("assertion",)),
    "right for one test only": ("def plus(a, b): return 3", "assertion", ("assertion",)),
}


@pytest.mark.skipif(sys.platform != "linux", reason="programs are run in Linux sandboxes")
def test_verdicts_follow_the_table():
    found = task()
    one = example(found, 11)
    texts = [text for text, _, _ in VERDICTS.values()]
    verdicts = judge_all(found, [one] * len(texts), [Generation(text=text) for text in texts])
    for (name, (_, answer, flags)), verdict in zip(VERDICTS.items(), verdicts, strict=True):
        assert (verdict.answer, verdict.flags) == (answer, flags), name
        assert verdict.correct == (answer == "passed"), name


@pytest.mark.parametrize(
    ("text", "program"),
    [
        ("a\n[DONE]\nb[DONE]", "a\n"),
        ("a", "a"),
        ("if x:\n\ty\n        z\n", "if x:\n    y\n        z\n"),
        ("\n  a  \n", "\n  a  \n"),
    ],
)
def test_the_program_is_the_text_before_the_mark_with_tabs_as_four_spaces(text, program):
    assert extract_program(text) == program


def test_a_program_that_mixes_tabs_and_spaces_runs():
    found = task()
    text = "def plus(a, b):\n\tx = a\n    return x + b\n"
    assert found.judge(example(found, 11), Generation(text=text)).correct


@pytest.mark.parametrize(
    ("order", "right", "protocol"),
    [
        ("program-setup-tests", True, "chat-prefill-3shot"),
        ("setup-program-tests", False, "chat-prefill-3shot, setup-program-tests"),
        ("program-tests", False, "chat-prefill-3shot, program-tests"),
    ],
)
def test_set_up_code_needs_what_the_program_defines(order, right, protocol):
    found = task(order=order)
    one = example(found, 14)
    verdict = found.judge(one, Generation(text=one.fields["code"]))
    assert (verdict.correct, found.protocol) == (right, protocol)
    assert right or verdict.answer == "exception: NameError"


def test_the_parts_are_joined_by_line_ends():
    fields = {"setup": "S", "tests": ("T1", "T2")}
    for order, whole in (
        ("program-setup-tests", "P\nS\nT1\nT2"),
        ("setup-program-tests", "S\nP\nT1\nT2"),
        ("program-tests", "P\nT1\nT2"),
    ):
        found = assemble("P", fields, order)
        assert f"{found.code}\n{found.checks}" == whole


def test_own_reference_programs_pass():
    found = task()
    examples = found.examples()
    answers = [Generation(text=one.fields["code"] + "\n[DONE]") for one in examples]
    assert all(one.correct for one in judge_all(found, examples, answers))


def test_without_permission_prompts_are_shown_but_nothing_is_judged():
    found = get_task("mbpp", data=own("mbpp"))
    assert found.request(found.examples()[0]).max_new_tokens == 256
    for refused in (
        lambda: prepare_task(found),
        lambda: found.judge(found.examples()[0], Generation(text="x")),
    ):
        with pytest.raises(InvalidInput, match=r"allow_code_execution=True \(--allow-code-execution\)"):
            refused()


def test_a_search_refuses_before_the_model_is_loaded():
    from cel_lens import evaluate_heads, find_beneficial_heads

    found = get_task("mbpp", data=own("mbpp"))
    for refused in (evaluate_heads, find_beneficial_heads):
        arguments = ("no such model", found, "") if refused is evaluate_heads else ("no such model", found)
        with pytest.raises(InvalidInput, match="allow_code_execution=True"):
            refused(*arguments)


def test_how_programs_run_is_recorded():
    recorded = task().versions
    assert recorded["sandbox"] in ("namespaces", "bubblewrap", "limits")
    assert "wall 3" in recorded["sandbox limits"]
    assert "standard library only" in recorded["sandbox python"]


def test_a_broken_sandbox_stops_the_run(monkeypatch):
    def fail(self, programs):
        raise EvaluationError("the sandbox for generated programs failed: no more processes")

    monkeypatch.setattr(Sandbox, "run", fail)
    found = task()
    with pytest.raises(EvaluationError, match="no more processes"):
        found.judge(example(found, 11), Generation(text=RIGHT))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda rows: rows[1:], "has no row with task_id 2: rows 2, 3 and 4 are the solved tasks"),
        (lambda rows: rows[:3], "has no row with a task_id from 11 to 510 or from 601 to 974"),
        (
            lambda rows: [*rows, rows[3]],
            "rows.jsonl, line 15: task_id 11 stands in rows.jsonl, line 4 already",
        ),
        (
            lambda rows: [*rows[:3], {**rows[3], "test_list": []}],
            "line 4: column 'test_list' holds at least 1",
        ),
        (lambda rows: [*rows[:3], {**rows[3], "task_id": "x"}], "line 4: column 'task_id' is a whole number"),
        (lambda rows: [*rows[:3], {"task_id": 11}], "line 4: column 'text' is missing"),
    ],
)
def test_a_bad_file_is_named(tmp_path, change, message):
    file = write(tmp_path / "rows.jsonl", change(read(own("mbpp"))))
    with pytest.raises(InvalidInput) as caught:
        MBPP(data=file).examples()
    assert message in str(caught.value)


@pytest.mark.parametrize("option", [{"style": "poem"}, {"order": "tests-first"}])
def test_unknown_options_are_refused(option):
    with pytest.raises(InvalidInput, match="not '"):
        MBPP(**option)


def test_published_rows_read_completely():
    examples = MBPP(data=real("mbpp")).examples()
    assert sum(one.split == "heldout" for one in examples) == 500
    assert sum(one.split == "discovery" for one in examples) == 374
    assert [one.id[-3:] for one in examples if one.fields["setup"]] == ["367", "927"]


@pytest.mark.slow
def test_published_reference_programs_pass():
    found = MBPP(data=real("mbpp"), allow_code_execution=True, limits=Limits(wall=20.0, cpu=20))
    examples = found.examples()
    verdicts = judge_all(found, examples, [Generation(text=one.fields["code"]) for one in examples])
    assert [one.id for one, verdict in zip(examples, verdicts, strict=True) if not verdict.correct] == []
