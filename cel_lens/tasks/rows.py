"""Rows of a benchmark file: read completely or refused with the line and the column."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from cel_lens.errors import InvalidInput

__all__ = ["Row", "read_rows"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row of a file.

    Attributes:
        place: Where it stands, for messages: ``"rows.jsonl, line 12"``.
        index: Position among the rows, from 0.
        values: Column to value.
        source: Name of the file without its ending, or of the split; ids of examples hold it.
        split: The panel that the row's origin fixes, if any.
    """

    place: str
    index: int
    values: Mapping[str, Any]
    source: str = ""
    split: Literal["discovery", "heldout"] | None = None

    def text(self, column: str, *, empty: bool = False) -> str:
        """A column that holds text.

        Raises:
            InvalidInput: If it holds something else, or nothing unless ``empty`` allows it.
        """
        value = self.values[column]
        if not isinstance(value, str):
            raise InvalidInput(f"{self.place}: column {column!r} is text, not {value!r}")
        if not value.strip() and not empty:
            raise InvalidInput(f"{self.place}: column {column!r} is empty")
        return value

    def texts(self, column: str, *, count: int | None = None) -> tuple[str, ...]:
        """A column that holds a list of texts.

        Args:
            column: The column.
            count: How many texts there must be; ``None``: at least one.

        Raises:
            InvalidInput: If it holds something else.
        """
        value = self.values[column]
        if not isinstance(value, list | tuple) or not all(isinstance(one, str) for one in value):
            raise InvalidInput(f"{self.place}: column {column!r} is a list of texts, not {value!r}")
        if not value or (count is not None and len(value) != count):
            raise InvalidInput(
                f"{self.place}: column {column!r} holds {count or 'at least 1'} texts, not {len(value)}"
            )
        return tuple(value)

    def number(self, column: str, among: range | None = None) -> int:
        """A column that holds a whole number, as a number, a truth value or digits.

        Args:
            column: The column.
            among: The numbers it may be.

        Raises:
            InvalidInput: If it holds something else.
        """
        value = self.values[column]
        digits = isinstance(value, str) and value.strip().isdecimal()
        if not (digits or isinstance(value, int) or (isinstance(value, float) and value.is_integer())):
            raise InvalidInput(f"{self.place}: column {column!r} is a whole number, not {value!r}")
        found = int(value)
        if among is not None and found not in among:
            raise InvalidInput(
                f"{self.place}: column {column!r} is {among.start} to {among.stop - 1}, not {value!r}"
            )
        return found


def read_rows(file: str | os.PathLike[str], columns: Sequence[str]) -> tuple[Row, ...]:
    """Read a JSON Lines file (UTF-8, one object in each line) or a Parquet file (``.parquet``).

    Args:
        file: The file.
        columns: Columns that every row must have.

    Raises:
        InvalidInput: If the file is missing, empty or unreadable, a line is not a JSON object or a
            column is missing; the message names line and column.
    """
    path = Path(file)
    try:
        found = _parquet(path) if path.suffix.lower() == ".parquet" else _json_lines(path)
    except FileNotFoundError as error:
        raise InvalidInput(f"there is no file {path}") from error
    except OSError as error:
        raise InvalidInput(f"{path} cannot be read ({error.strerror or error})") from error
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{path} is not UTF-8 text (byte {error.start})") from error
    if not found:
        raise InvalidInput(f"{path} holds no rows")
    for row in found:
        missing = [name for name in columns if name not in row.values]
        if missing:
            raise InvalidInput(
                f"{row.place}: column {missing[0]!r} is missing (expected {', '.join(columns)}; "
                f"found {', '.join(map(str, row.values)) or 'none'})"
            )
    return found


def _json_lines(path: Path) -> tuple[Row, ...]:
    rows: list[Row] = []
    # only a line feed ends a line: JSON strings may hold the other Unicode line ends
    for number, line in enumerate(path.read_text(encoding="utf-8-sig").split("\n"), start=1):
        if not line.strip():
            continue
        place = f"{path.name}, line {number}"
        try:
            values = json.loads(line)
        except json.JSONDecodeError as error:
            raise InvalidInput(f"{place}: not JSON ({error.msg} at character {error.colno})") from error
        except (ValueError, RecursionError) as error:  # a number of thousands of digits, or endless nesting
            raise InvalidInput(f"{place}: not JSON that can be read ({error})") from error
        if not isinstance(values, dict):
            raise InvalidInput(f"{place}: expected an object with columns, not {type(values).__name__}")
        rows.append(Row(place=place, index=len(rows), values=values, source=path.stem))
    return tuple(rows)


def _parquet(path: Path) -> tuple[Row, ...]:
    import pandas as pd

    try:
        frame = pd.read_parquet(path)
    except (ValueError, ImportError) as error:
        raise InvalidInput(f"{path} is not a readable Parquet file ({error})") from error
    records = json.loads(frame.to_json(orient="records", force_ascii=False))
    return tuple(
        Row(place=f"{path.name}, row {index + 1}", index=index, values=values, source=path.stem)
        for index, values in enumerate(records)
    )
