from __future__ import annotations

from math import inf, nan

import pytest

from cel_lens.errors import EvaluationError, InvalidInput
from cel_lens.tasks import ChoiceScores, Choose, Example, HellaSwag, get_task, prefer
from cel_lens.tasks.hellaswag import clean_text
from tests.tasks.rows import own, read, real, write


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ("Cooking: A person stirs. Then", "Cooking: A person stirs. Then"),
        (" x [title] [remove]  y ", "x.  y"),
        (
            "Personal Care and Style: [header] How to X [title] Do Y. [step] Z. ",
            "Personal Care and Style: How to X. Do Y. Z.",
        ),
        ("[title] Buy a charger. [step] It", " Buy a charger. It"),
        ("[title] Start", " Start"),
        ("by accident. [title] Avoid", "by accident.. Avoid"),
        ("x [a[b]c] y", "x c] y"),
        ("a [unclosed b", "a [unclosed b"),
        ("A    b", "A  b"),
        ("one [over\ntwo] lines", "one [over\ntwo] lines"),
    ],
)
def test_clean_up_follows_the_table(text, cleaned):
    assert clean_text(text) == cleaned


def verdict(metric, scores, lengths, gold):
    choices = tuple("x" * size for size in lengths)
    example = Example(id="one", prompt="A: b", target=choices[gold], choices=choices, fields={"label": gold})
    response = ChoiceScores(log_likelihoods=scores, greedy=(False,) * 4)
    return HellaSwag(metric=metric).judge(example, response)


RISING = ((-12.0, -20.0, -33.0, -40.0), (10, 20, 30, 40))
TIED = ((-10.0, -10.0, -30.0, -30.0), (5, 10, 30, 30))


@pytest.mark.parametrize(
    ("metric", "scores", "gold", "correct", "flags"),
    [
        ("acc", RISING, 1, False, ("right-by-acc_norm",)),
        ("acc_norm", RISING, 1, True, ("tie",)),
        ("acc", RISING, 3, False, ()),
        ("acc_norm", RISING, 3, False, ("tie",)),
        ("acc", TIED, 0, True, ("tie",)),
        ("acc_norm", TIED, 0, False, ("tie", "right-by-acc")),
    ],
)
def test_both_metrics_follow_the_table(metric, scores, gold, correct, flags):
    found = verdict(metric, *scores, gold)
    assert (found.correct, found.flags) == (correct, flags)


@pytest.mark.parametrize("bad", [nan, inf, -inf])
def test_a_score_that_is_not_finite_is_never_a_verdict(bad):
    with pytest.raises(EvaluationError, match="not finite"):
        verdict("acc_norm", (-1.0, bad, -2.0, -3.0), (1, 1, 1, 1), 0)


def test_the_margin_is_the_right_score_minus_the_best_other():
    found = prefer((-12.0, -20.0, -33.0, -40.0), (10, 20, 30, 40))
    assert found.margin(1) == 0.0
    assert found.margin(2) == pytest.approx(-0.1)
    assert prefer((-1.0, -3.5)).margin(0) == 2.5


def one_row(tmp_path, **changes):
    row = read(own("hellaswag"))[0] | changes
    return HellaSwag(data=write(tmp_path / "rows.jsonl", [row]))


def test_the_second_half_is_capitalised_and_every_other_letter_lowered():
    examples = get_task("hellaswag", data=own("hellaswag")).examples()
    assert examples[5].prompt.endswith("The one with the NASA cap moves a knight. Her opponent")


def test_a_cleaned_ending_may_begin_with_a_space_that_counts():
    examples = HellaSwag(data=own("hellaswag")).examples()
    assert examples[3].choices[0] == " Use pots with holes. Roots that stand in water rot."
    request = HellaSwag().request(examples[3])
    assert request == Choose(
        context="Home and Garden: How to keep herbs on a window sill. Choose a sunny window. "
        "Most herbs want six hours of light a day.",
        choices=tuple(f" {one}" for one in examples[3].choices),
    )


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"endings": ["a", "b", "c"]}, "rows.jsonl, line 1: column 'endings' holds 4 texts, not 3"),
        ({"endings": ["a", "b", "c", 4]}, "rows.jsonl, line 1: column 'endings' is a list of texts"),
        (
            {"endings": ["a", "[title]", "c", "d"]},
            "rows.jsonl, line 1: column 'endings': nothing is left of ending 2 after cleaning",
        ),
        ({"label": ""}, "rows.jsonl, line 1: column 'label' is a whole number, not ''"),
        ({"label": 4}, "rows.jsonl, line 1: column 'label' is 0 to 3, not 4"),
        ({"ctx_a": "[x]", "ctx_b": ""}, "rows.jsonl, line 1: columns 'ctx_a' and 'ctx_b': nothing is left"),
    ],
)
def test_a_bad_row_is_named(tmp_path, columns, message):
    with pytest.raises(InvalidInput) as caught:
        one_row(tmp_path, **columns).examples()
    assert str(caught.value).startswith(message)


def test_labels_may_be_numbers_or_text(tmp_path):
    assert one_row(tmp_path, label=2).examples()[0].target == "paints the tap with honey and leaves."
    assert one_row(tmp_path, label="2").examples()[0].target == "paints the tap with honey and leaves."


def test_a_file_with_both_published_splits_keeps_them_apart(tmp_path):
    rows = read(own("hellaswag"))
    for place, row in enumerate(rows):
        row["split"] = "train" if place in (0, 2, 3) else "val"
    examples = HellaSwag(data=write(tmp_path / "both.jsonl", rows)).examples()
    # row 0 comes from the same video as row 1, which is a validation row
    assert [one.id[-1] for one in examples if one.split == "discovery"] == ["2", "3"]
    assert [one.id[-1] for one in examples if one.split == "heldout"] == ["1", "4", "5", "6", "7"]


def test_an_unknown_metric_is_refused():
    with pytest.raises(InvalidInput, match="'acc_norm' or 'acc', not 'f1'"):
        get_task("hellaswag", metric="f1")


def test_published_rows_read_completely():
    examples = HellaSwag(data=real("hellaswag")).examples()
    labels = [one.fields["label"] for one in examples]
    assert [labels.count(label) for label in range(4)] == [167, 146, 181, 156]
    spaced = [choice for one in examples for choice in one.choices if choice.startswith(" ")]
    assert len(spaced) / 2600 == pytest.approx(0.27, abs=0.005)
