"""Finished work on disk, so that an interrupted run goes on where it stopped.

One JSON object a line. The first line says what run the file belongs to; each further line is one
finished piece of work under a key. A line counts once it is complete and on the disk: opening cuts off
a last line without its line end, which a crash may leave behind.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Protocol

from cel_lens.errors import RunFolderError

__all__ = ["FileJournal", "Journal", "MemoryJournal", "open_journal"]

_FORMAT = "cel-lens-journal/1"


class Journal(Protocol):
    """Remembers finished pieces of work by key."""

    def get(self, key: str) -> Mapping[str, Any] | None:
        """The record under a key, or ``None``."""

    def put(self, key: str, record: Mapping[str, Any]) -> None:
        """Remember a record; a key is written once."""


class MemoryJournal:
    """Remembers for as long as the process lives."""

    def __init__(self) -> None:
        self._records: dict[str, Mapping[str, Any]] = {}

    def get(self, key: str) -> Mapping[str, Any] | None:
        """The record under a key."""
        return self._records.get(key)

    def put(self, key: str, record: Mapping[str, Any]) -> None:
        """Remember a record."""
        if key in self._records:
            raise RunFolderError(f"{key} was recorded twice")
        self._records[key] = record


class FileJournal:
    """Remembers in a file, each record safely on the disk before :meth:`put` returns.

    Args:
        path: The file; made if it does not exist.
        fingerprint: What the run depends on; a file of another run is refused.

    Raises:
        RunFolderError: If the file belongs to another run, is damaged or cannot be written.
    """

    def __init__(self, path: Path, fingerprint: Mapping[str, Any]) -> None:
        self._path = path
        self._records: dict[str, Mapping[str, Any]] = {}
        head = {"format": _FORMAT, "fingerprint": json.loads(json.dumps(fingerprint))}
        try:
            lines = _complete_lines(path)
            if lines:
                self._read(lines, head)
            self._stream: BinaryIO = path.open("ab")
            if not lines:
                self._write(head)
        except OSError as error:
            raise RunFolderError(f"{path} cannot be used ({error.strerror or error})") from error

    def __enter__(self) -> FileJournal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(OSError):  # records are on the disk already; what a full disk refused stays refused
            self._stream.close()

    def get(self, key: str) -> Mapping[str, Any] | None:
        """The record under a key."""
        return self._records.get(key)

    def put(self, key: str, record: Mapping[str, Any]) -> None:
        """Write a record and wait until the disk has it."""
        if key in self._records:
            raise RunFolderError(f"{key} was recorded twice in {self._path}")
        try:
            self._write({"key": key, "record": record})
        except OSError as error:
            raise RunFolderError(f"{self._path} cannot be written ({error.strerror or error})") from error
        self._records[key] = record

    def _read(self, lines: list[bytes], head: Mapping[str, Any]) -> None:
        try:
            first, *rest = [json.loads(line) for line in lines]
            if first["format"] != _FORMAT:
                raise RunFolderError(f"{self._path} has format {first['format']!r}, expected {_FORMAT!r}")
            self._refuse_other_run(first["fingerprint"], head["fingerprint"])
            for entry in rest:
                if entry["key"] in self._records:
                    raise RunFolderError(f"{self._path} holds {entry['key']} twice")
                self._records[entry["key"]] = entry["record"]
        except (ValueError, KeyError, TypeError) as error:
            raise RunFolderError(f"{self._path} is damaged ({error}); start in a new folder") from error

    def _refuse_other_run(self, found: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
        if found == wanted:
            return
        found, wanted = _flat(found), _flat(wanted)
        names = [name for name in sorted({*found, *wanted}) if found.get(name) != wanted.get(name)]
        raise RunFolderError(
            f"{self._path.parent} holds another run: {', '.join(names)} differ"
            f"{'s' if len(names) == 1 else ''} ({names[0]} was {_short(found.get(names[0]))}, "
            f"now {_short(wanted.get(names[0]))}); give a new folder"
        )

    def _write(self, entry: Mapping[str, Any]) -> None:
        line = json.dumps(entry, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
        self._stream.write(line.encode() + b"\n")
        self._stream.flush()
        os.fsync(self._stream.fileno())


@contextmanager
def open_journal(folder: Path | None, fingerprint: Mapping[str, Any]) -> Iterator[Journal]:
    """The journal of a run folder, held for this process alone; ``None``: in memory.

    Raises:
        RunFolderError: If another process works in the folder, it belongs to another run, or it
            cannot be written.
    """
    if folder is None:
        yield MemoryJournal()
        return
    from filelock import FileLock, Timeout

    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / "run.lock")
        lock.acquire(timeout=0)
    except Timeout as error:
        raise RunFolderError(f"another process is working in {folder}; give another folder") from error
    except OSError as error:
        raise RunFolderError(f"{folder} cannot be used ({error.strerror or error})") from error
    try:
        with FileJournal(folder / "journal.jsonl", fingerprint) as journal:
            yield journal
    finally:
        lock.release()


def _complete_lines(path: Path) -> list[bytes]:
    """The complete lines of a file; an unfinished last one is cut off."""
    if not path.exists():
        return []
    content = path.read_bytes()
    end = content.rfind(b"\n") + 1
    if end < len(content):
        with path.open("r+b") as stream:
            stream.truncate(end)
            os.fsync(stream.fileno())
    return content[:end].splitlines()


def _flat(nested: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Entries of nested mappings under dotted names, so that a message can name the very setting."""
    entries: dict[str, Any] = {}
    for name, value in nested.items():
        entries |= (
            _flat(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {f"{prefix}{name}": value}
        )
    return entries


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else text[:57] + "..."
