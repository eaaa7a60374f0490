from __future__ import annotations

from types import SimpleNamespace

import pytest

from cel_lens.errors import InvalidInput
from cel_lens.tasks import Arithmetic, BoolQ, HellaSwag, arithmetic, make_panels, sources
from cel_lens.tasks import boolq as boolq_module
from cel_lens.tasks.rows import read_rows
from tests.tasks.rows import own, read, write


class Split(list):
    """Rows as the datasets package gives them."""

    @property
    def column_names(self):
        return list(self[0])


@pytest.fixture
def hub(monkeypatch):
    """A Hub with a small BoolQ; returns what was asked of it."""
    rows = [
        {"question": one["question"], "passage": one["passage"], "label": int(one["answer"]), "idx": place}
        for place, one in enumerate(read(own("boolq")))
    ]
    splits = {"train": Split(rows), "validation": Split(rows[7:])}
    asked = []

    def load_dataset(path, *, name, split, revision):
        asked.append((path, name, split, revision))
        return splits[split]

    source = sources.BenchmarkSource(
        path="aps/super_glue",
        revision=boolq_module._SOURCE.revision,
        configs=("boolq",),
        splits=boolq_module._SOURCE.splits,
    )
    monkeypatch.setattr(boolq_module, "_SOURCE", source)
    monkeypatch.setitem(__import__("sys").modules, "datasets", SimpleNamespace(load_dataset=load_dataset))
    boolq_module._examples.cache_clear()
    yield asked
    boolq_module._examples.cache_clear()


def test_the_hub_is_asked_for_a_full_commit(hub):
    BoolQ().examples()
    assert [(path, config, split) for path, config, split, _ in hub] == [
        ("aps/super_glue", "boolq", "train"),
        ("aps/super_glue", "boolq", "validation"),
    ]
    assert all(len(revision) == 40 for *_, revision in hub)


def test_discovery_is_training_rows_whose_passage_validation_never_shows(hub):
    examples = BoolQ().examples()
    panels = make_panels(examples, n_discovery=3, n_heldout=5)
    assert all(one.id.startswith("boolq/train/") for one in panels.discovery)
    assert all(one.id.startswith("boolq/validation/") for one in panels.heldout)
    heldout = [one for one in examples if one.split == "heldout"]
    assert len(heldout) == 5, "every validation row stays"
    assert not {one.group for one in heldout} & {one.group for one in examples if one.split == "discovery"}


def test_an_incomplete_copy_is_refused(hub, monkeypatch):
    monkeypatch.setattr(
        boolq_module,
        "_SOURCE",
        sources.BenchmarkSource(
            path="aps/super_glue",
            revision="0" * 40,
            configs=("boolq",),
            splits={"train": "discovery"},
            rows={"train": 9427},
        ),
    )
    with pytest.raises(InvalidInput, match="has 12 rows instead of 9427"):
        BoolQ().examples()


@pytest.mark.parametrize("task", [BoolQ(), HellaSwag()])
def test_without_network_and_cache_the_file_option_is_named(task, monkeypatch):
    def load_dataset(*args, **options):
        raise ConnectionError("no route to the Hub")

    monkeypatch.setitem(__import__("sys").modules, "datasets", SimpleNamespace(load_dataset=load_dataset))
    with pytest.raises(InvalidInput, match=r"no route to the Hub.*local JSONL.*\(data=\.\.\., --data FILE\)"):
        task.examples()


def test_parquet_and_json_lines_give_the_same_examples(tmp_path):
    import pandas as pd

    rows = read(own("hellaswag"))
    pd.DataFrame(rows).to_parquet(tmp_path / "rows.parquet")
    write(tmp_path / "rows.jsonl", rows)
    assert (
        HellaSwag(data=tmp_path / "rows.parquet").examples()
        == HellaSwag(data=tmp_path / "rows.jsonl").examples()
    )


@pytest.mark.parametrize(
    ("value", "found"), [(3, 3), ("3", 3), (True, 1), (2.0, 2), ("x", None), (1.5, None), (None, None)]
)
def test_whole_numbers_are_read_from_numbers_and_digits(tmp_path, value, found):
    row = read_rows(write(tmp_path / "rows.jsonl", [{"n": value}]), ["n"])[0]
    if found is None:
        with pytest.raises(InvalidInput, match="line 1: column 'n' is a whole number"):
            row.number("n")
    else:
        assert row.number("n") == found


def test_arithmetic_from_the_hub_has_a_stratum_for_each_configuration(monkeypatch):
    asked = []

    def load_dataset(path, *, split, revision, data_files):
        asked.append(data_files[split])
        first = len(asked)
        return Split(
            {"context": f"\n\nQ: What is {first} plus {n}?\n\nA:", "completion": f" {first + n}"}
            for n in range(2000)
        )

    monkeypatch.setitem(__import__("sys").modules, "datasets", SimpleNamespace(load_dataset=load_dataset))
    arithmetic._read.cache_clear()
    examples = Arithmetic(style="lm-eval", data="hub").examples()
    arithmetic._read.cache_clear()
    assert asked[1] == "arithmetic_2da/validation/0000.parquet"
    assert [name.removeprefix("arithmetic_") for name in dict.fromkeys(one.stratum for one in examples)] == [
        *("1dc", "2da", "2dm", "2ds", "3da", "3ds", "4da", "4ds", "5da", "5ds")
    ]
    panels = make_panels(examples, n_discovery=30, n_heldout=20)
    assert [one.stratum for one in panels.discovery[:3]] == [
        "arithmetic_1dc",
        "arithmetic_2da",
        "arithmetic_2dm",
    ]
    assert examples[0].prompt == "Question: What is 1 plus 0?\nAnswer:"
    assert examples[0].id == "arithmetic/arithmetic_1dc/000000"
