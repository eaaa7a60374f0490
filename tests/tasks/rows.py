"""Files of rows for the tests: a few of our own writing, and real ones where the machine has them."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

OWN = Path(__file__).parent.parent / "data"


def own(name: str) -> Path:
    """Rows of our own writing in the columns of a benchmark."""
    return OWN / f"{name}.jsonl"


def real(name: str) -> Path:
    """Published rows, in the folder that CEL_LENS_DATA names; skips the test without them."""
    folder = os.environ.get("CEL_LENS_DATA")
    if not folder:
        pytest.skip("needs published benchmark rows: set CEL_LENS_DATA to a folder that holds them")
    return Path(folder) / f"{name}.jsonl"


def read(file: Path) -> list[dict[str, Any]]:
    """The rows of a file."""
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def write(file: Path, rows: Iterable[Mapping[str, Any]]) -> Path:
    """Write rows as JSON Lines."""
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return file
