"""The ``cel-lens`` command: every subcommand in one place. A wrong input ends with one sentence and exit code 2."""

from __future__ import annotations

import sys

import typer

from cel_lens.cli.doctor import doctor
from cel_lens.cli.evaluate import evaluate, show_prompt
from cel_lens.cli.export import export
from cel_lens.cli.search import report, search
from cel_lens.cli.theory import theory
from cel_lens.errors import CelLensError

__all__ = ["app", "main"]

app = typer.Typer(
    name="cel-lens",
    help="Find attention heads whose removal makes a language model better at a task.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command()(search)
app.command()(evaluate)
app.command()(show_prompt)
app.command()(report)
app.command()(export)
app.command()(doctor)
app.add_typer(theory, name="theory")

_INTERRUPTED = 130


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
        kept = "; what is finished is kept, and the same command goes on" if "search" in sys.argv[1:2] else ""
        typer.echo(f"cel-lens: interrupted{kept}", err=True)
        sys.exit(_INTERRUPTED)
