"""How work is carried out, remembered and shown; knows nothing of heads or tasks."""

from cel_lens.runtime.executors import Executor, SerialExecutor
from cel_lens.runtime.journal import FileJournal, Journal, MemoryJournal, open_journal
from cel_lens.runtime.progress import (
    BarProgress,
    LineProgress,
    Progress,
    ProgressChoice,
    SilentProgress,
    choose_progress,
)

__all__ = [
    "BarProgress",
    "Executor",
    "FileJournal",
    "Journal",
    "LineProgress",
    "MemoryJournal",
    "Progress",
    "ProgressChoice",
    "SerialExecutor",
    "SilentProgress",
    "choose_progress",
    "open_journal",
]
