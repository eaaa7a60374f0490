"""``cel-lens doctor``: whether a model is fit for the removal of heads, measured."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from cel_lens.cli.options import Device, Dtype

__all__ = ["doctor"]


def doctor(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="Name, local folder or GGUF file.")],
    backend: Annotated[
        str, typer.Option(help="auto, hooked (HookedTransformer) or bridge (TransformerBridge).")
    ] = "auto",
    device: Device = "auto",
    dtype: Dtype = "auto",
) -> None:
    """Compare a model with transformers, intact and with heads removed; exit code 1 if anything differs."""
    from cel_lens.models import parity_report

    chosen: Any = backend
    report = parity_report(model, backend=chosen, dtype=dtype, device=device)
    typer.echo(str(report))
    if not report.passed:
        failed = sum(not row.passed for row in report.rows)
        typer.echo(
            f"{failed} of {len(report.rows)} comparisons failed: do not trust results of this model here"
        )
        raise typer.Exit(1)
    typer.echo(f"all {len(report.rows)} comparisons passed")
