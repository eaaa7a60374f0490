"""The command line. A mistake in what was given ends with one sentence and exit code 2."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cel_lens.cli_theory import theory
from cel_lens.errors import CelLensError, InvalidInput

if TYPE_CHECKING:
    from cel_lens.results import BeneficialHeads, Outcomes
    from cel_lens.tasks import Task

__all__ = ["app", "main"]

app = typer.Typer(
    name="cel-lens",
    help="Find attention heads whose removal makes a language model better at a task.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(theory, name="theory")

_INTERRUPTED = 130

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
BatchSize = Annotated[int, typer.Option(help="Examples run together.")]
Engine = Annotated[
    str, typer.Option(help="sweep (shares work) or reference (one condition at a time); same answers.")
]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")]
Dtype = Annotated[str, typer.Option(help="float32, bfloat16 or float16.")]
DiscoveryCount = Annotated[int, typer.Option("--discovery", help="Examples on which heads are chosen.")]
HeldoutCount = Annotated[int, typer.Option("--heldout", help="Examples on which the choice is measured.")]


@app.command()
def search(
    model: Model,
    task: TaskName,
    out: Annotated[Path, typer.Option(help="Folder for the result; an interrupted search goes on there.")],
    data: Data = None,
    style: Style = None,
    metric: Metric = None,
    settings: Settings = None,
    allow_code_execution: AllowCode = False,
    discovery: DiscoveryCount = 64,
    heldout: HeldoutCount = 200,
    k: Annotated[int, typer.Option("--k", help="Largest number of heads removed together.")] = 3,
    pool: Annotated[int, typer.Option(help="Best single heads that enter the joint search.")] = 10,
    screening: Annotated[
        str, typer.Option(help="exhaustive, or eliminate: stops heads that cannot reach the pool; same pool.")
    ] = "exhaustive",
    layers: Annotated[
        str | None, typer.Option(help="Screen only these layers, for example 0-5 or 0-2,7.")
    ] = None,
    seed: Seed = 0,
    batch_size: BatchSize = 32,
    engine: Engine = "sweep",
    device: Device = "auto",
    dtype: Dtype = "float32",
) -> None:
    """Search for beneficial heads and measure them on held-out examples."""
    from cel_lens.heads import parse_layers
    from cel_lens.models import load_model
    from cel_lens.results import SearchConfig
    from cel_lens.search import find_beneficial_heads
    from cel_lens.viz import write_report

    config = SearchConfig(
        n_discovery=discovery,
        n_heldout=heldout,
        max_heads=k,
        pool_size=pool,
        layers=None if layers is None else parse_layers(layers),
        screening=_one_of("screening", screening, ("exhaustive", "eliminate")),
        seed=seed,
        batch_size=batch_size,
        engine=_one_of("engine", engine, ("sweep", "reference")),
    )
    asked = _ready(_task(task, data, style, metric, allow_code_execution, settings))
    loaded = load_model(model, dtype=dtype, device=device)
    result = find_beneficial_heads(loaded, asked, config, run_dir=out)
    result.save(out)
    report_file = write_report(result, out / "report.html")
    typer.echo(_summary(result))
    typer.echo(f"Report: {report_file}")
    typer.echo(f"Also in {out}: result.json, outcomes.npz, heads.csv")


@app.command()
def evaluate(
    model: Model,
    task: TaskName,
    heads: Annotated[str, typer.Option(help="Heads to remove, for example L3H7+L9H6; intact for none.")],
    data: Data = None,
    style: Style = None,
    metric: Metric = None,
    settings: Settings = None,
    allow_code_execution: AllowCode = False,
    split: Annotated[
        str | None, typer.Option(help="discovery or heldout, as a search draws them; default: all.")
    ] = None,
    n: Annotated[int | None, typer.Option("--n", help="Only so many examples.")] = None,
    discovery: DiscoveryCount = 64,
    heldout: HeldoutCount = 200,
    seed: Seed = 0,
    batch_size: BatchSize = 32,
    engine: Engine = "sweep",
    device: Device = "auto",
    dtype: Dtype = "float32",
) -> None:
    """Measure one head set against the intact model on the same examples."""
    from cel_lens.evaluation import evaluate_heads
    from cel_lens.heads import HeadSet
    from cel_lens.models import load_model
    from cel_lens.results import SearchConfig

    if split not in (None, "discovery", "heldout"):
        raise InvalidInput(f"a split is 'discovery' or 'heldout', not {split!r}")
    chosen = HeadSet.of(heads)
    asked = _ready(_task(task, data, style, metric, allow_code_execution, settings))
    loaded = load_model(model, dtype=dtype, device=device)
    chosen.check_within(loaded.cfg.n_layers, loaded.cfg.n_heads)  # before minutes of asking the intact model
    config = SearchConfig(
        n_discovery=discovery,
        n_heldout=heldout,
        seed=seed,
        batch_size=batch_size,
        engine=_one_of("engine", engine, ("sweep", "reference")),
    )
    panel: Any = split
    intact = evaluate_heads(loaded, asked, "", panel=panel, n=n, config=config)
    _print_outcomes(intact)
    if chosen.heads:
        ablated = evaluate_heads(loaded, asked, chosen, panel=panel, n=n, config=config)
        _print_outcomes(ablated)
        _print_gain(intact, ablated)


@app.command()
def show_prompt(
    model: Model,
    task: TaskName,
    data: Data = None,
    style: Style = None,
    metric: Metric = None,
    settings: Settings = None,
    example: Annotated[str | None, typer.Option(help="Id of the example.")] = None,
    index: Annotated[int, typer.Option(help="Position of the example among the task's, from 0.")] = 0,
    device: Device = "auto",
    dtype: Dtype = "float32",
) -> None:
    """Print the exact text that a model is given for one example, and how many tokens it is."""
    from cel_lens.evaluation.prompts import show
    from cel_lens.models import load_model

    asked = _task(task, data, style, metric, False, settings)
    found = asked.examples()
    if example is not None:
        index = next((place for place, one in enumerate(found) if one.id == example), -1)
        if index < 0:
            raise InvalidInput(
                f"the task {asked.name} has no example {example!r}; its first is {found[0].id!r}"
            )
    if not 0 <= index < len(found):
        raise InvalidInput(f"--index is 0 to {len(found) - 1} for the task {asked.name}, not {index}")
    typer.echo(show(load_model(model, dtype=dtype, device=device), asked, found[index]))


@app.command()
def report(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of a finished search.")],
) -> None:
    """Write report.html of a finished search again and print its summary."""
    from cel_lens.results import BeneficialHeads
    from cel_lens.viz import write_report

    result = BeneficialHeads.load(folder)
    file = write_report(result, folder / "report.html")
    typer.echo(_summary(result))
    typer.echo(f"Report: {file}")


def main() -> None:
    """Entry point of the ``cel-lens`` command."""
    try:
        app()
    except CelLensError as error:
        typer.echo(f"cel-lens: {error}", err=True)
        sys.exit(2)
    except (KeyboardInterrupt, SystemExit) as end:
        # typer turns an interrupt into exit code 130 and says nothing
        if isinstance(end, SystemExit) and end.code != _INTERRUPTED:
            raise
        typer.echo("cel-lens: interrupted; what is finished is kept, and the same command goes on", err=True)
        sys.exit(_INTERRUPTED)


def _one_of(name: str, value: str, known: tuple[str, ...]) -> Any:
    if value not in known:
        raise InvalidInput(f"--{name} is {' or '.join(known)}, not {value!r}")
    return value


def _task(
    name: str,
    data: Path | None,
    style: str | None,
    metric: str | None,
    allow_code_execution: bool,
    settings: list[str] | None,
) -> Task:
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


def _ready(task: Task) -> Task:
    """Refuse a task that cannot be judged before a model is loaded; say how programs will be run."""
    from cel_lens.tasks import prepare_task

    for name, text in getattr(prepare_task(task), "versions", {}).items():
        typer.echo(f"{name}: {text}")
    return task


def _summary(result: BeneficialHeads) -> str:
    held, provenance = result.heldout, result.provenance
    n_all = provenance.n_layers * provenance.n_heads
    n_screened = len(result.screening) + len(result.eliminated)
    stopped = f" ({len(result.eliminated)} stopped early by their bound)" if result.eliminated else ""
    lines = [
        "",
        result.headline,
        "",
        f"Chosen heads     {result.heads.label if result.found else 'none'}",
        f"Intact           {held.intact_correct}/{held.n} = {100 * held.intact_accuracy:.1f} % held-out",
        f"Ablated          {held.ablated_correct}/{held.n} = {100 * held.ablated_accuracy:.1f} % held-out",
        f"Gain             {100 * held.gain:+.1f} points, {100 * held.confidence:.0f} % interval "
        f"{100 * held.ci_low:+.1f} to {100 * held.ci_high:+.1f}, exact McNemar p = {held.p_value:.2g}",
        f"Discovery        {100 * result.discovery.gain:+.1f} points on {result.discovery.n} examples "
        f"({result.discovery.note})",
        f"Screened         {n_screened} of {n_all} heads{stopped}, then {len(result.subsets)} subsets of the "
        f"best {result.config.pool_size}",
    ]
    if provenance.seconds:
        total = sum(provenance.seconds.values()) or 1.0
        shares = ", ".join(f"{name} {value / total:.0%}" for name, value in provenance.seconds.items())
        lines.append(f"Time             {total:.0f} s: {shares}")
    return "\n".join(lines)


def _print_outcomes(outcomes: Outcomes) -> None:
    flags = sorted({flag for one in outcomes.details for flag in one.flags})
    counts = "".join(f", {flag} {outcomes.count(flag)}" for flag in flags)
    typer.echo(
        f"{outcomes.heads.label}: {outcomes.n_correct}/{outcomes.n} = {100 * outcomes.accuracy:.1f} % "
        f"({outcomes.task}, {outcomes.protocol}, {outcomes.metric}{counts})"
    )


def _print_gain(intact: Outcomes, ablated: Outcomes) -> None:
    import numpy as np

    from cel_lens.stats import estimate_gain

    split: Any = "heldout"
    gain = estimate_gain(np.array(intact.correct), np.array(ablated.correct), split=split)
    typer.echo(
        f"gain {100 * gain.gain:+.1f} points ({gain.rescued} rescued, {gain.damaged} damaged; "
        f"{100 * gain.confidence:.0f} % interval {100 * gain.ci_low:+.1f} to {100 * gain.ci_high:+.1f}, "
        f"exact McNemar p = {gain.p_value:.2g})"
    )
