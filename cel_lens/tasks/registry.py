"""Tasks by name."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from difflib import get_close_matches
from functools import partial
from typing import Any

from cel_lens.errors import InvalidInput
from cel_lens.tasks.arithmetic import Arithmetic
from cel_lens.tasks.base import Task, check_task
from cel_lens.tasks.boolq import BoolQ
from cel_lens.tasks.from_rows import rows_task
from cel_lens.tasks.hellaswag import HellaSwag
from cel_lens.tasks.lm_eval import PREFIX, harness_task
from cel_lens.tasks.mbpp import MBPP

__all__ = ["get_task", "register_task", "task_names"]

_FACTORIES: dict[str, Callable[..., Task]] = {
    "arithmetic": Arithmetic,
    "boolq": BoolQ,
    "hellaswag": HellaSwag,
    "mbpp": MBPP,
    "rows": rows_task,
}


def task_names() -> tuple[str, ...]:
    """Names that :func:`get_task` knows."""
    return tuple(sorted(_FACTORIES))


def register_task(name: str, factory: Callable[..., Task]) -> None:
    """Make a task of yours known by name.

    Args:
        name: A new name.
        factory: Called with the options that :func:`get_task` is given.

    Raises:
        InvalidInput: If the name is taken.
    """
    if name in _FACTORIES:
        raise InvalidInput(f"a task named {name!r} exists already")
    _FACTORIES[name] = factory


def get_task(name: str, *, data: str | os.PathLike[str] | None = None, **options: Any) -> Task:
    """Make a task by name.

    Args:
        name: One of :func:`task_names`; or ``lm-eval:`` and the name of a task of lm-evaluation-harness.
        data: Rows of the benchmark in a local file, in its published columns.
        **options: Settings of that task, for example ``style="chat"``.

    Raises:
        InvalidInput: If the name or an option is unknown (the message gives the known ones), or the
            file cannot be used.
    """
    if isinstance(name, str) and name.startswith(PREFIX):
        return _make(name, partial(harness_task, name.removeprefix(PREFIX)), data, options)
    if name not in _FACTORIES:
        near = get_close_matches(str(name).lower(), _FACTORIES, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise InvalidInput(
            f"there is no task {name!r}: {hint}known tasks are {', '.join(task_names())} "
            f"and, with lm-evaluation-harness, {PREFIX}NAME"
        )
    return _make(name, _FACTORIES[name], data, options)


def _make(
    name: str, factory: Callable[..., Task], data: str | os.PathLike[str] | None, options: dict[str, Any]
) -> Task:
    given = dict(options) if data is None else {"data": data, **options}
    parameters = inspect.signature(factory).parameters
    missing = [
        option
        for option, one in parameters.items()
        if one.default is inspect.Parameter.empty and option not in given and one.kind is one.KEYWORD_ONLY
    ]
    if missing:
        raise InvalidInput(f"task {name!r} needs {missing[0]}=... (--{missing[0]})")
    open_ended = any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters.values())
    unknown = [] if open_ended else [option for option in given if option not in parameters]
    if unknown:
        raise InvalidInput(
            f"task {name!r} has no option {unknown[0]!r}: it takes {', '.join(parameters) or 'none'}"
        )
    return check_task(factory(**given))
