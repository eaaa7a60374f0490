"""Where a benchmark's rows come from: a local file, or its pinned revision on the Hugging Face Hub."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

from cel_lens.errors import InvalidInput
from cel_lens.tasks.base import Example
from cel_lens.tasks.rows import Row, read_rows

__all__ = ["BenchmarkSource", "Origin", "Side", "as_data_set", "drop_shared_groups", "load_rows", "origin_of"]

Side: TypeAlias = Literal["discovery", "heldout"] | None
"""The panel that an origin fixes; ``None``: free."""


@dataclass(frozen=True, kw_only=True, eq=False)
class BenchmarkSource:
    """A data set on the Hub.

    Attributes:
        path: ``owner/name``.
        revision: Full commit hash: the same rows for everybody.
        configs: Its configurations to read, in order.
        splits: Its splits to read, in order, and the panel that each fixes.
        rows: Number of rows of each split, checked after loading.
        files: Where the file of a configuration and a split lies, for a revision that does not say so itself.
    """

    path: str
    revision: str
    configs: tuple[str, ...]
    splits: Mapping[str, Side]
    rows: Mapping[str, int] = field(default_factory=dict)
    files: str = ""


class Origin(NamedTuple):
    """Where rows come from, comparable, so that what was read once is not read again.

    Attributes:
        file: The local file; empty: the Hub.
        stamp: Time of its last change in nanoseconds, and its size in bytes.
    """

    file: str = ""
    stamp: tuple[int, int] = (0, 0)


def origin_of(data: str | os.PathLike[str] | None) -> Origin:
    """The origin that the ``data`` option of a task names."""
    if data is None:
        return Origin()
    file = os.fspath(data)
    try:
        status = Path(file).stat()
    except OSError:
        return Origin(file)  # reading it gives the message
    return Origin(file, (status.st_mtime_ns, status.st_size))


def load_rows(origin: Origin, source: BenchmarkSource, columns: Sequence[str]) -> tuple[Row, ...]:
    """Read all rows of a benchmark.

    Args:
        origin: A file, or the Hub.
        source: The data set on the Hub.
        columns: Columns that every row must have.

    Raises:
        InvalidInput: If the file cannot be used, or the data set can neither be downloaded nor found in
            the cache.
    """
    if origin.file:
        return read_rows(origin.file, columns)
    return tuple(_from_hub(source, columns))


def drop_shared_groups(examples: Sequence[Example]) -> tuple[Example, ...]:
    """Leave out discovery examples whose group the benchmark's held-out split holds too.

    The held-out panel then never depends on which examples discovery took.
    """
    heldout = {one.group for one in examples if one.split == "heldout"} - {""}
    return tuple(one for one in examples if one.split != "discovery" or one.group not in heldout)


def as_data_set(rows: Sequence[Row]) -> Any:
    """Rows as a ``datasets.Dataset``.

    Raises:
        InvalidInput: If a column holds values of different types.
    """
    import datasets

    try:
        return datasets.Dataset.from_list([dict(row.values) for row in rows])
    except (ValueError, TypeError) as error:
        raise InvalidInput(f"the rows of {rows[0].source} do not form a table ({error})") from error


def _from_hub(source: BenchmarkSource, columns: Sequence[str]) -> Iterator[Row]:
    for config in source.configs:
        for split, side in source.splits.items():
            found = _load_split(source, config, split)
            missing = [name for name in columns if name not in found.column_names]
            if missing:
                raise InvalidInput(
                    f"{source.path} ({config}, {split}) has no column {missing[0]!r}, "
                    f"but {', '.join(found.column_names)}"
                )
            if len(found) != source.rows.get(split, len(found)):
                raise InvalidInput(
                    f"{source.path} ({config}, {split}) has {len(found)} rows instead of {source.rows[split]}: "
                    "the copy in the cache is incomplete"
                )
            name = split if len(source.configs) == 1 else config
            for index, values in enumerate(found):
                yield Row(
                    place=f"{source.path} ({config}, {split}), row {index + 1}",
                    index=index,
                    values=values,
                    source=name,
                    split=side,
                )


def _load_split(source: BenchmarkSource, config: str, split: str) -> Any:
    try:
        import datasets
    except ImportError as error:
        raise InvalidInput(
            f"{source.path} is read with the datasets package (pip install datasets); "
            "or give the rows as a local file (data=..., --data FILE)"
        ) from error
    where: dict[str, Any] = {"name": config}
    if source.files:
        where = {"data_files": {split: source.files.format(config=config, split=split)}}
    try:
        return datasets.load_dataset(source.path, split=split, revision=source.revision, **where)
    except Exception as error:  # the package raises errors of its own, of huggingface_hub and of the network
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise InvalidInput(
            f"{source.path} ({config}, {split}) can neither be downloaded nor found in the cache ({reason}): "
            "give the rows as a local JSONL or Parquet file (data=..., --data FILE)"
        ) from error
