"""Files of rows: read completely, or refused with the place of the mistake."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from cel_lens.errors import InvalidInput
from cel_lens.tasks.rows import Row, read_rows

GOOD = '{"a": "x", "b": 1}'


def write(folder: Path, content: str | bytes, name: str = "rows.jsonl") -> Path:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def test_rows_are_read_in_order(tmp_path: Path) -> None:
    found = read_rows(write(tmp_path, '{"a": "x"}\n\n  \n{"a": "y", "more": [1]}\n'), ["a"])
    assert [(one.place, one.index, one.values) for one in found] == [
        ("rows.jsonl, line 1", 0, {"a": "x"}),
        ("rows.jsonl, line 4", 1, {"a": "y", "more": [1]}),
    ]


@pytest.mark.parametrize("end", ["\n", "\r\n", ""])
def test_a_byte_order_mark_and_any_line_ends_are_read_over(tmp_path: Path, end: str) -> None:
    lines = f"{GOOD}\n{GOOD}{end}".replace("\n", end or "\n")
    found = read_rows(write(tmp_path, b"\xef\xbb\xbf" + lines.encode()), ["a", "b"])
    assert [dict(one.values) for one in found] == [{"a": "x", "b": 1}] * 2


def test_only_a_line_feed_ends_a_line(tmp_path: Path) -> None:
    text = "one\u2028two\u2029three\x85four"
    found = read_rows(write(tmp_path, json.dumps({"a": text}, ensure_ascii=False) + "\n" + GOOD), ["a"])
    assert [one.text("a") for one in found] == [text, "x"]
    assert found[1].place == "rows.jsonl, line 2"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"a": ', "rows.jsonl, line 3: not JSON (Expecting value at character 7)"),
        ("a,b", "rows.jsonl, line 3: not JSON (Expecting value at character 1)"),
        ('{"a": "x"} {"a": "y"}', "rows.jsonl, line 3: not JSON (Extra data at character 12)"),
        ('["x"]', "rows.jsonl, line 3: expected an object with columns, not list"),
        ("7", "rows.jsonl, line 3: expected an object with columns, not int"),
        ('{"b": 1}', "rows.jsonl, line 3: column 'a' is missing (expected a, b; found b)"),
        ("{}", "rows.jsonl, line 3: column 'a' is missing (expected a, b; found none)"),
        ('{"a": "x", "b": 1' + "0" * 5000 + "}", "rows.jsonl, line 3: not JSON"),
        ('{"a":' * 100_000, "rows.jsonl, line 3: not JSON"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, line: str, message: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        read_rows(write(tmp_path, f"{GOOD}\n\n{line}\n{GOOD}\n"), ["a", "b"])
    assert message in str(caught.value)


@pytest.mark.parametrize("content", ["", "\n\n", "\ufeff", "  \n"])
def test_a_file_without_rows_is_refused(tmp_path: Path, content: str) -> None:
    with pytest.raises(InvalidInput, match=r"rows\.jsonl holds no rows"):
        read_rows(write(tmp_path, content), ["a"])


def test_files_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"there is no file .*absent\.jsonl"):
        read_rows(tmp_path / "absent.jsonl", ["a"])
    with pytest.raises(InvalidInput, match=r"cannot be read \(Is a directory\)"):
        read_rows(tmp_path, ["a"])
    with pytest.raises(InvalidInput, match=r"cannot be read \(Not a directory\)"):
        read_rows(write(tmp_path, GOOD) / "below.jsonl", ["a"])


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16"])
def test_other_encodings_are_refused(tmp_path: Path, encoding: str) -> None:
    path = write(tmp_path, json.dumps({"a": "é" * 3}, ensure_ascii=False).encode(encoding))
    with pytest.raises(InvalidInput, match=r"is not UTF-8 text \(byte \d+\)"):
        read_rows(path, ["a"])


@pytest.mark.parametrize("name", ["rows.parquet", "rows.PARQUET"])
def test_parquet_is_read_like_json_lines(tmp_path: Path, name: str) -> None:
    rows = [{"a": "é\u2028", "b": 1, "c": ["p", "q"]}, {"a": "y", "b": 2, "c": []}]
    pd.DataFrame(rows).to_parquet(tmp_path / name)
    found = read_rows(tmp_path / name, ["a", "b"])
    assert [dict(one.values) for one in found] == rows
    assert [one.place for one in found] == [f"{name}, row 1", f"{name}, row 2"]
    with pytest.raises(InvalidInput, match=rf"{name}, row 1: column 'd' is missing"):
        read_rows(tmp_path / name, ["d"])


def test_a_file_that_only_looks_like_parquet_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"rows\.parquet is not a readable Parquet file"):
        read_rows(write(tmp_path, GOOD, "rows.parquet"), ["a"])
    with pytest.raises(InvalidInput, match=r"there is no file .*absent\.parquet"):
        read_rows(tmp_path / "absent.parquet", ["a"])


def test_a_column_of_text_is_text_and_not_empty() -> None:
    row = Row(
        place="rows.jsonl, line 9", index=8, values={"text": " x ", "number": 7, "empty": " \n", "null": None}
    )
    assert row.text("text") == " x "
    assert row.text("empty", empty=True) == " \n"
    for column, message in (
        ("number", "is text, not 7"),
        ("null", "is text, not None"),
        ("empty", "is empty"),
    ):
        with pytest.raises(InvalidInput, match=rf"rows\.jsonl, line 9: column '{column}' {message}"):
            row.text(column)
