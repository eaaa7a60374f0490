"""``cel-lens theory``: the statements of the theory, measured."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cel_lens.errors import InvalidInput

if TYPE_CHECKING:
    from cel_lens.theory import Verification

__all__ = ["theory"]

theory = typer.Typer(help="The simplified three-head model: its statements, measured.", no_args_is_help=True)


@theory.command()
def verify(
    seeds: Annotated[int | None, typer.Option(help="Initialisations of the main runs, at least 100.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of all draws.")] = 0,
    quick: Annotated[
        bool, typer.Option("--quick", help="Smaller runs: seconds in place of a minute.")
    ] = False,
    out: Annotated[Path, typer.Option(help="HTML report.")] = Path("theory.html"),
) -> None:
    """Measure every statement, print claimed against measured, and write a report with plots."""
    from cel_lens.theory import verify as run
    from cel_lens.theory import write_report

    if not out.absolute().parent.is_dir():
        raise InvalidInput(f"the report cannot be written to {out}: its folder does not exist")
    found = run(seeds=seeds, seed=seed, quick=quick, progress=lambda line: typer.echo(line, err=True))
    _print(found)
    typer.echo(f"Report: {write_report(found, out)}")
    if not found.holds:
        raise typer.Exit(1)


@theory.command()
def transformer(
    seeds: Annotated[int, typer.Option(help="How many small transformers are trained and searched.")] = 10,
    first: Annotated[int, typer.Option(help="Seed of the first one.")] = 0,
    out: Annotated[Path | None, typer.Option(help="CSV file for one row of each transformer.")] = None,
) -> None:
    """Train small transformers on two tasks in conflict and search each for heads that hurt task A."""
    from cel_lens.conflict import study_conflict

    if seeds < 1 or first < 0:
        raise InvalidInput("--seeds is a whole number from 1 and --first one from 0")
    if out is not None and not out.absolute().parent.is_dir():
        raise InvalidInput(f"the rows cannot be written to {out}: its folder does not exist")
    found = study_conflict(
        seeds=range(first, first + seeds), progress=lambda line: typer.echo(line, err=True)
    )
    typer.echo(found.summary)
    if out is not None:
        found.to_frame().to_csv(out, index=False)
        typer.echo(f"Rows: {out}")


def _print(found: Verification) -> None:
    from rich.console import Console
    from rich.table import Table

    from cel_lens.theory import Verdict

    console = Console()
    for statement in found.statements:
        table = Table(title=statement.title, title_justify="left", expand=True)
        for name in ("statement", "claimed", "measured", "interval", "verdict"):
            table.add_column(name, overflow="fold", ratio={"statement": 5, "verdict": 3}.get(name, 2))
        for row in statement.rows:
            table.add_row(*row.cells())
        console.print(table)
    counts = ", ".join(f"{found.count(verdict)} {verdict.value}" for verdict in Verdict)
    console.print(f"{counts} ({found.seeds:,} initialisations, seed {found.seed})")
