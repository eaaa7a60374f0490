"""Tasks by name: known ones, near misses, options, and factories of one's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cel_lens.errors import InvalidInput
from cel_lens.tasks import Arithmetic, get_task, register_task, registry, task_names
from tests.models.planted import NameTheColour


@pytest.fixture(autouse=True)
def own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_FACTORIES", dict(registry._FACTORIES))


def test_a_task_is_made_by_name_with_its_options() -> None:
    assert get_task("arithmetic") == Arithmetic()
    assert get_task("arithmetic", style="chat", instruction="x") == Arithmetic(style="chat", instruction="x")
    assert get_task("arithmetic", data=Path("rows.jsonl")) == Arithmetic(data=Path("rows.jsonl"))
    assert "arithmetic" in task_names()


@pytest.mark.parametrize("name", ["arithmetics", "Arithmetic", "aritmetic"])
def test_a_near_miss_is_answered_with_the_name(name: str) -> None:
    with pytest.raises(
        InvalidInput, match=rf"there is no task '{name}': did you mean 'arithmetic'\? known tasks are"
    ):
        get_task(name)


@pytest.mark.parametrize("name", ["", "zzz", 7, None])
def test_an_unknown_name_is_answered_with_the_known_ones(name: Any) -> None:
    with pytest.raises(InvalidInput) as caught:
        get_task(name)
    assert f"there is no task {name!r}: known tasks are arithmetic" in str(caught.value)
    assert all(known in str(caught.value) for known in task_names())


def test_an_unknown_option_is_answered_with_the_known_ones() -> None:
    with pytest.raises(
        InvalidInput, match="'arithmetic' has no option 'shots': it takes style, data, instruction"
    ):
        get_task("arithmetic", shots=6)
    with pytest.raises(InvalidInput, match="style is 'completion'"):
        get_task("arithmetic", style="x")


def test_a_factory_of_ones_own_is_called_with_the_options() -> None:
    register_task("colours", NameTheColour)
    assert get_task("colours", generates=False) == NameTheColour(generates=False)
    assert "colours" in task_names()
    with pytest.raises(InvalidInput, match="'colours' has no option 'data': it takes generates, "):
        get_task("colours", data="rows.jsonl")


def test_a_factory_that_takes_anything_gets_everything() -> None:
    seen: dict[str, Any] = {}

    def make(**options: Any) -> NameTheColour:
        seen.update(options)
        return NameTheColour()

    register_task("open", make)
    get_task("open", data="rows.jsonl", x=1)
    assert seen == {"data": "rows.jsonl", "x": 1}


def test_a_factory_without_options_says_so() -> None:
    def make() -> NameTheColour:
        return NameTheColour()

    register_task("closed", make)
    with pytest.raises(InvalidInput, match="'closed' has no option 'x': it takes none"):
        get_task("closed", x=1)


def test_what_a_factory_makes_must_be_a_task() -> None:
    register_task("broken", object)  # type: ignore[arg-type,return-value]
    with pytest.raises(
        InvalidInput, match="object is not a task: it has no name, protocol, metric, examples"
    ):
        get_task("broken")


def test_a_name_is_taken_once() -> None:
    with pytest.raises(InvalidInput, match="a task named 'arithmetic' exists already"):
        register_task("arithmetic", NameTheColour)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": ""}, "the task's name is a non-empty text, not ''"),
        ({"protocol": 7}, "the task's protocol is a non-empty text, not 7"),
        ({"metric": None}, "the task's metric is a non-empty text, not None"),
    ],
)
def test_names_of_a_task_are_text(change: dict[str, Any], message: str) -> None:
    register_task("odd", lambda: NameTheColour(**change))
    with pytest.raises(InvalidInput, match=message):
        get_task("odd")
