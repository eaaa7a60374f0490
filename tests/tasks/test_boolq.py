from __future__ import annotations

from math import inf, nan

import pytest

from cel_lens.errors import EvaluationError, InvalidInput
from cel_lens.tasks import BoolQ, ChoiceScores, Choose, get_task, make_panels
from tests.tasks.rows import own, read, real, write

PASSAGE = "Tea is a drink."


def one_row(tmp_path, **changes):
    row = {"question": "is tea a drink", "passage": PASSAGE, "answer": True} | changes
    kept = {name: value for name, value in row.items() if value is not ...}
    return BoolQ(data=write(tmp_path / "rows.jsonl", [kept]))


def judged(tmp_path, scores, gold):
    task = one_row(tmp_path, answer=bool(gold))
    return task.judge(task.examples()[0], ChoiceScores(log_likelihoods=scores, greedy=(False, False)))


@pytest.mark.parametrize(
    ("scores", "gold", "answer", "correct", "flags"),
    [
        ((-1.0, -2.0), 0, "no", True, ()),
        ((-1.0, -2.0), 1, "no", False, ()),
        ((-2.5, -2.0), 1, "yes", True, ()),
        ((-1.5, -1.5), 0, "no", True, ("tie",)),
        ((-1.5, -1.5), 1, "no", False, ("tie",)),
    ],
)
def test_the_likelier_answer_wins_and_ties_say_no(tmp_path, scores, gold, answer, correct, flags):
    verdict = judged(tmp_path, scores, gold)
    assert (verdict.answer, verdict.correct, verdict.flags) == (answer, correct, flags)


@pytest.mark.parametrize("scores", [(nan, -1.0), (-inf, -1.0), (-1.0, nan)])
def test_a_score_that_is_not_finite_is_never_a_verdict(tmp_path, scores):
    with pytest.raises(EvaluationError, match="not finite"):
        judged(tmp_path, scores, 0)


@pytest.mark.parametrize(
    ("question", "shown"), [("is tea a drink", "is tea a drink?"), ("is it so?", "is it so??")]
)
def test_the_prompt_is_passage_question_with_a_mark_and_answer(tmp_path, question, shown):
    task = one_row(tmp_path, question=question)
    assert task.request(task.examples()[0]) == Choose(
        context=f"Tea is a drink.\nQuestion: {shown}\nAnswer:", choices=(" no", " yes")
    )


@pytest.mark.parametrize(
    ("columns", "target"),
    [
        ({"answer": True}, "yes"),
        ({"answer": False}, "no"),
        ({"answer": ..., "label": 1}, "yes"),
        ({"answer": ..., "label": 0}, "no"),
        ({"answer": ..., "label": "1"}, "yes"),
    ],
)
def test_both_published_column_sets_are_read(tmp_path, columns, target):
    assert one_row(tmp_path, **columns).examples()[0].target == target


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"answer": ..., "label": -1}, "rows.jsonl, line 1: column 'label' is 0 to 1, not -1"),
        ({"answer": "maybe"}, "rows.jsonl, line 1: column 'answer' is a whole number, not 'maybe'"),
        ({"answer": ...}, "rows.jsonl, line 1: column 'answer' or 'label' is missing"),
        ({"passage": " "}, "rows.jsonl, line 1: column 'passage' is empty"),
        ({"question": ""}, "rows.jsonl, line 1: column 'question' is empty"),
        ({"question": ...}, "rows.jsonl, line 1: column 'question' is missing"),
    ],
)
def test_a_bad_row_is_named(tmp_path, columns, message):
    with pytest.raises(InvalidInput) as caught:
        one_row(tmp_path, **columns).examples()
    assert str(caught.value).startswith(message)


def test_panels_share_no_passage_and_discovery_takes_each_once():
    examples = get_task("boolq", data=own("boolq")).examples()
    panels = make_panels(examples, n_discovery=4, n_heldout=5)
    discovery = [one.group for one in panels.discovery]
    assert len(set(discovery)) == 4
    assert not set(discovery) & {one.group for one in panels.heldout}


def test_ids_name_file_and_row_and_a_changed_file_is_read_again(tmp_path):
    file = write(tmp_path / "mine.jsonl", read(own("boolq")))
    task = BoolQ(data=file)
    assert task.examples()[3].id == "boolq/mine/000003"
    write(file, read(own("boolq"))[:2])
    assert len(task.examples()) == 2


def test_published_rows_read_completely():
    examples = BoolQ(data=real("boolq")).examples()
    assert len(examples) == 1200
    assert sum(one.target == "yes" for one in examples) / 1200 == pytest.approx(0.623, abs=5e-4)
    assert len({one.group for one in examples}) == 1065
