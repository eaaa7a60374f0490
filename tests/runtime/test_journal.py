"""Finished work survives a crash at any byte, and belongs to one run and one process."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cel_lens.errors import RunFolderError
from cel_lens.runtime import FileJournal, MemoryJournal, open_journal

RUN = {"config": {"seed": 0, "layers": (1, 2)}, "weights": "aa", "versions": {"torch": "2.1"}}
RECORDS = {"intact": {"correct": "01"}, "L0H1": {"correct": "11", "flags": {"ü\u2028": 1}}, "empty": {}}


def fill(path: Path, records: dict[str, Any] = RECORDS) -> bytes:
    with FileJournal(path, RUN) as journal:
        for key, record in records.items():
            journal.put(key, record)
    return path.read_bytes()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.jsonl"


def test_records_are_read_back(path: Path) -> None:
    content = fill(path)
    with FileJournal(path, RUN) as journal:
        assert {key: journal.get(key) for key in RECORDS} == RECORDS
        assert journal.get("other") is None
    assert path.read_bytes() == content, "reading changes nothing"


def test_a_record_is_on_the_disk_before_put_returns(path: Path) -> None:
    with FileJournal(path, RUN) as journal:
        for count, (key, record) in enumerate(RECORDS.items(), start=2):
            journal.put(key, record)
            lines = path.read_bytes().splitlines()
            assert len(lines) == count
            assert json.loads(lines[-1]) == {"key": key, "record": record}


def test_a_file_cut_at_any_byte_keeps_its_complete_records(tmp_path: Path) -> None:
    content = fill(tmp_path / "whole")
    for size in range(len(content) + 1):
        path = tmp_path / "cut"
        path.write_bytes(content[:size])
        complete = max(0, content[:size].count(b"\n") - 1)
        with FileJournal(path, RUN) as journal:
            known = [key for key in RECORDS if journal.get(key) is not None]
            assert known == list(RECORDS)[:complete]
            for key, record in RECORDS.items():
                if key not in known:
                    journal.put(key, record)
        assert path.read_bytes() == content
        path.unlink()


@settings(max_examples=25, deadline=None)
@given(
    st.dictionaries(
        st.text(),
        st.dictionaries(
            st.text(), st.none() | st.booleans() | st.integers() | st.text() | st.lists(st.text())
        ),
        max_size=5,
    )
)
def test_whatever_json_can_hold_comes_back(records: dict[str, Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        fill(Path(folder, "journal"), records)
        with FileJournal(Path(folder, "journal"), RUN) as journal:
            assert {key: journal.get(key) for key in records} == records


@pytest.mark.parametrize("kind", ["file", "memory"])
def test_a_key_is_written_once(path: Path, kind: str) -> None:
    journal = FileJournal(path, RUN) if kind == "file" else MemoryJournal()
    journal.put("a", {"x": 1})
    with pytest.raises(RunFolderError, match="a was recorded twice"):
        journal.put("a", {"x": 1})
    assert journal.get("a") == {"x": 1}
    assert journal.get("b") is None
    if isinstance(journal, FileJournal):
        journal.__exit__(None, None, None)
        assert path.read_bytes().count(b'"a"') == 1


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"weights": "bb"}, 'weights differs (weights was "aa", now "bb")'),
        ({"config": {"seed": 1, "layers": (1, 2)}}, "config.seed differs (config.seed was 0, now 1)"),
        (
            {"config": {"seed": 0, "layers": (1, 3)}},
            "config.layers differs (config.layers was [1, 2], now [1, 3])",
        ),
        ({"config": {"seed": 0}}, "config.layers differs (config.layers was [1, 2], now null)"),
        ({"new": "z" * 99}, 'new differs (new was null, now "zzz'),
        (
            {"weights": "bb", "versions": {"torch": "2.2"}},
            "versions.torch, weights differ (versions.torch was ",
        ),
    ],
)
def test_a_file_of_another_run_is_refused_with_the_difference(
    path: Path, changed: dict[str, Any], message: str
) -> None:
    content = fill(path)
    with pytest.raises(RunFolderError) as caught:
        FileJournal(path, RUN | changed)
    assert message in str(caught.value)
    assert len(str(caught.value)) < 300 + len(str(path))
    assert path.read_bytes() == content


@pytest.mark.parametrize(
    "damage",
    [
        b"{\n",
        b"\n",
        b"5\n",
        b"null\n",
        b'{"key":"x"}\n',
        b'{"record":{}}\n',
        b"\xff\xfe\n",
        b'{"key":[],"record":{}}\n',
    ],
)
@pytest.mark.parametrize("place", [0, 2, 4])
def test_a_damaged_line_is_refused_and_left_alone(path: Path, damage: bytes, place: int) -> None:
    lines = fill(path).splitlines(keepends=True)
    lines[place : place + 1] = [damage]
    path.write_bytes(b"".join(lines))
    with pytest.raises(RunFolderError, match=r"is damaged .*start in a new folder"):
        FileJournal(path, RUN)
    assert path.read_bytes() == b"".join(lines)


def test_a_repeated_record_is_refused(path: Path) -> None:
    content = fill(path)
    path.write_bytes(content + content.splitlines(keepends=True)[1])
    with pytest.raises(RunFolderError, match="holds intact twice"):
        FileJournal(path, RUN)


def test_another_format_is_refused(path: Path) -> None:
    path.write_bytes(fill(path).replace(b"cel-lens-journal/1", b"cel-lens-journal/9"))
    with pytest.raises(
        RunFolderError, match="has format 'cel-lens-journal/9', expected 'cel-lens-journal/1'"
    ):
        FileJournal(path, RUN)


def test_a_folder_in_place_of_the_file_is_refused(path: Path) -> None:
    path.mkdir()
    with pytest.raises(RunFolderError, match=r"journal\.jsonl cannot be used"):
        FileJournal(path, RUN)


def test_a_full_disk_is_one_of_our_errors(path: Path) -> None:
    resource = pytest.importorskip("resource", reason="only POSIX can limit the size of files")
    content = fill(path)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    journal = FileJournal(path, RUN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(content) + 5, limits[1]))
    try:
        with pytest.raises(RunFolderError, match=r"journal\.jsonl cannot be written"), journal:
            journal.put("a", {"x": "y" * 100})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    with FileJournal(path, RUN) as journal:
        assert journal.get("a") is None
        assert journal.get("intact") == RECORDS["intact"]
        journal.put("a", {})


def test_not_a_number_is_never_written(path: Path) -> None:
    with FileJournal(path, RUN) as journal, pytest.raises(ValueError, match="not JSON compliant"):
        journal.put("a", {"x": float("nan")})


def test_without_a_folder_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with open_journal(None, RUN) as journal:
        journal.put("a", {"x": 1})
        assert journal.get("a") == {"x": 1}
    assert list(tmp_path.iterdir()) == []


def test_a_folder_is_made_and_used_again(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    with open_journal(folder, RUN) as journal:
        journal.put("a", {"x": 1})
    with open_journal(folder, RUN) as journal:
        assert journal.get("a") == {"x": 1}


@pytest.mark.parametrize("error", [None, ValueError, KeyboardInterrupt])
def test_a_folder_is_free_again_however_its_use_ended(
    tmp_path: Path, error: type[BaseException] | None
) -> None:
    if error is None:
        with open_journal(tmp_path, RUN):
            pass
    else:
        with pytest.raises(error), open_journal(tmp_path, RUN):
            raise error
    with pytest.raises(RunFolderError, match="holds another run"), open_journal(tmp_path, {"other": 1}):
        pass
    with open_journal(tmp_path, RUN) as journal:
        journal.put("a", {})


OTHER_PROCESS = """
import sys
from pathlib import Path
from cel_lens.errors import RunFolderError
from cel_lens.runtime import open_journal
try:
    with open_journal(Path(sys.argv[1]), {"run": 1}) as journal:
        print("entered", flush=True)
        sys.stdin.read()
except RunFolderError as error:
    print(error)
"""


def test_a_second_process_is_refused_at_once_and_let_in_after_a_kill(tmp_path: Path) -> None:
    def start() -> subprocess.Popen[str]:
        command = [sys.executable, "-c", OTHER_PROCESS, str(tmp_path)]
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    with start() as first:
        assert first.stdout is not None
        assert first.stdout.readline() == "entered\n"
        with (
            pytest.raises(RunFolderError, match="another process is working in"),
            open_journal(tmp_path, {"run": 1}),
        ):
            pass
        with start() as second:
            found, _ = second.communicate(timeout=60)
        assert "another process is working in" in found
        first.kill()
    with open_journal(tmp_path, {"run": 1}) as journal:
        journal.put("a", {})
