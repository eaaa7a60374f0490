"""The options that commands share, and what is read from them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cel_lens.errors import InvalidInput

if TYPE_CHECKING:
    from cel_lens.tasks import Task

Model = Annotated[
    str, typer.Option(help="Name, local folder or GGUF file; smollm2-135m-instruct is embedded.")
]
TaskName = Annotated[str, typer.Option("--task", help="Name of the task, for example arithmetic.")]
Data = Annotated[Path | None, typer.Option(help="Rows of the benchmark in a local JSONL or Parquet file.")]
Style = Annotated[
    str | None, typer.Option(help="How the task asks: completion, chat or lm-eval (arithmetic).")
]
Metric = Annotated[
    str | None,
    typer.Option(help="How right and wrong are told apart, for example acc or acc_norm (hellaswag)."),
]
AllowCode = Annotated[
    bool,
    typer.Option("--allow-code-execution", help="Run programs that the model writes (mbpp), in a sandbox."),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="NAME=VALUE", help="A further option of the task, as text or JSON; repeatable."
    ),
]
Seed = Annotated[int, typer.Option(help="Decides which examples form the panels.")]
BatchSize = Annotated[int, typer.Option(help="Examples run together by the reference engine.")]
Engine = Annotated[
    str, typer.Option(help="sweep (shares work) or reference (one condition at a time); same answers.")
]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")]
Dtype = Annotated[
    str, typer.Option(help="auto (bfloat16 on cuda, else float32), float32, bfloat16 or float16.")
]
DiscoveryCount = Annotated[int, typer.Option("--discovery", help="Examples on which heads are chosen.")]
HeldoutCount = Annotated[int, typer.Option("--heldout", help="Examples on which the choice is measured.")]

Screening = Annotated[
    str,
    typer.Option(
        help="exhaustive; eliminate: stops what cannot be among the best, same choice; attribution: measures the "
        "heads that a prediction puts first, not exact."
    ),
]
AttributionTop = Annotated[
    int | None,
    typer.Option(help="Heads that attribution chooses; by default a quarter, at least four pools."),
]
AttributionSample = Annotated[
    float, typer.Option(help="Share of the other heads measured at random, to estimate what was missed.")
]


def one_of(name: str, value: str, known: tuple[str, ...]) -> Any:
    """The value, if it is one of the known ones."""
    if value not in known:
        raise InvalidInput(f"--{name} is {' or '.join(known)}, not {value!r}")
    return value


def task_of(
    name: str,
    data: Path | None,
    style: str | None,
    metric: str | None,
    allow_code_execution: bool,
    settings: list[str] | None,
) -> Task:
    """The task that the options name."""
    from cel_lens.tasks import get_task

    options: dict[str, Any] = {} if style is None else {"style": style}
    if metric is not None:
        options["metric"] = metric
    if allow_code_execution:
        options["allow_code_execution"] = True
    for setting in settings or ():
        option, equals, value = setting.partition("=")
        if not equals or not option.isidentifier():
            raise InvalidInput(f"--set takes NAME=VALUE, not {setting!r}")
        try:
            options[option] = json.loads(value)
        except json.JSONDecodeError:
            options[option] = value
    return get_task(name, data=data, **options)


def ready(task: Task) -> Task:
    """Refuse a task that cannot be judged before a model is loaded; say how programs will be run."""
    from cel_lens.tasks import prepare_task

    for name, text in getattr(prepare_task(task), "versions", {}).items():
        typer.echo(f"{name}: {text}")
    return task
