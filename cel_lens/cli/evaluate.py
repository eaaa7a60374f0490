"""``cel-lens evaluate`` and ``cel-lens show-prompt``: one head set measured, one prompt printed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from cel_lens.cli.options import (
    AllowCode,
    BatchSize,
    Data,
    Device,
    DiscoveryCount,
    Dtype,
    Engine,
    HeldoutCount,
    Metric,
    Model,
    Seed,
    Settings,
    Style,
    TaskName,
    one_of,
    ready,
    task_of,
)
from cel_lens.errors import InvalidInput

if TYPE_CHECKING:
    from cel_lens.results import Outcomes

__all__ = ["evaluate", "show_prompt"]


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
    dtype: Dtype = "auto",
) -> None:
    """Measure one head set against the intact model on the same examples."""
    from cel_lens.evaluation import evaluate_heads
    from cel_lens.heads import HeadSet
    from cel_lens.models import load_model
    from cel_lens.results import SearchConfig

    if split not in (None, "discovery", "heldout"):
        raise InvalidInput(f"a split is 'discovery' or 'heldout', not {split!r}")
    chosen = HeadSet.of(heads)
    asked = ready(task_of(task, data, style, metric, allow_code_execution, settings))
    loaded = load_model(model, dtype=dtype, device=device)
    chosen.check_within(loaded.cfg.n_layers, loaded.cfg.n_heads)  # before minutes of asking the intact model
    config = SearchConfig(
        n_discovery=discovery,
        n_heldout=heldout,
        seed=seed,
        batch_size=batch_size,
        engine=one_of("engine", engine, ("sweep", "reference")),
    )
    panel: Any = split
    intact = evaluate_heads(loaded, asked, "", panel=panel, n=n, config=config)
    _print_outcomes(intact)
    if chosen.heads:
        ablated = evaluate_heads(loaded, asked, chosen, panel=panel, n=n, config=config)
        _print_outcomes(ablated)
        _print_gain(intact, ablated)


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
    dtype: Dtype = "auto",
) -> None:
    """Print the exact text that a model is given for one example, and how many tokens it is."""
    from cel_lens.evaluation.prompts import show
    from cel_lens.models import load_model

    asked = task_of(task, data, style, metric, False, settings)
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
