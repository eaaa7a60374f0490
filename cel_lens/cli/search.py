"""``cel-lens search`` and ``cel-lens report``: find heads, and show what a finished search found."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cel_lens.cli.options import (
    AllowCode,
    AttributionSample,
    AttributionTop,
    BatchSize,
    Data,
    Device,
    DiscoveryCount,
    Dtype,
    Engine,
    HeldoutCount,
    Metric,
    Model,
    Screening,
    Seed,
    Settings,
    Style,
    TaskName,
    one_of,
    ready,
    task_of,
)

if TYPE_CHECKING:
    from cel_lens.results import BeneficialHeads

__all__ = ["report", "search"]


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
    screening: Screening = "exhaustive",
    attribution_top: AttributionTop = None,
    attribution_sample: AttributionSample = 0.1,
    layers: Annotated[
        str | None, typer.Option(help="Screen only these layers, for example 0-5 or 0-2,7.")
    ] = None,
    seed: Seed = 0,
    batch_size: BatchSize = 32,
    engine: Engine = "sweep",
    device: Device = "auto",
    dtype: Dtype = "auto",
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
        screening=one_of("screening", screening, ("exhaustive", "eliminate", "attribution")),
        attribution_top=attribution_top,
        attribution_sample=attribution_sample,
        seed=seed,
        batch_size=batch_size,
        engine=one_of("engine", engine, ("sweep", "reference")),
    )
    asked = ready(task_of(task, data, style, metric, allow_code_execution, settings))
    loaded = load_model(model, dtype=dtype, device=device)
    result = find_beneficial_heads(loaded, asked, config, run_dir=out)
    result.save(out)
    report_file = write_report(result, out / "report.html")
    typer.echo(_summary(result))
    typer.echo(f"Report: {report_file}")
    typer.echo(f"Also in {out}: result.json, outcomes.npz, heads.csv")


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


def _summary(result: BeneficialHeads) -> str:
    held, provenance = result.heldout, result.provenance
    n_all = provenance.n_layers * provenance.n_heads
    n_screened = len(result.screening) + len(result.eliminated)
    stopped = f" ({len(result.eliminated)} stopped early by their bound)" if result.eliminated else ""
    stopped_subsets = f" ({len(result.eliminated_subsets)} stopped)" if result.eliminated_subsets else ""
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
        f"Screened         {n_screened} of {n_all} heads{stopped}, then {result.n_subsets} subsets of the "
        f"best {result.config.pool_size}{stopped_subsets}",
    ]
    if result.attribution is not None:
        lines.append(f"Attribution      {result.attribution}")
    if provenance.seconds:
        total = sum(provenance.seconds.values()) or 1.0
        shares = ", ".join(f"{name} {value / total:.0%}" for name, value in provenance.seconds.items())
        lines.append(f"Time             {total:.0f} s: {shares}")
    return "\n".join(lines)
