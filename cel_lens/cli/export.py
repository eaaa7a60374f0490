"""``cel-lens export``: a checkpoint without the heads."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cel_lens.errors import InvalidInput

if TYPE_CHECKING:
    from cel_lens.heads import HeadSet
    from cel_lens.results import BeneficialHeads

__all__ = ["export"]


def export(
    to: Annotated[Path, typer.Option("--to", help="Folder for the checkpoint, new or empty.")],
    folder: Annotated[
        Path | None, typer.Argument(metavar="[DIR]", help="Folder of a finished search.", show_default=False)
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            help="Name, local folder or GGUF file; default: the model of the search.", show_default=False
        ),
    ] = None,
    heads: Annotated[
        str | None,
        typer.Option(
            help="Heads to remove, for example L3H7+L9H6; default: those of the search.", show_default=False
        ),
    ] = None,
) -> None:
    """Write a transformers checkpoint in which heads are removed for good."""
    from cel_lens.export import export_ablated
    from cel_lens.heads import HeadSet
    from cel_lens.results import BeneficialHeads

    if folder is None and (model is None or heads is None):
        raise InvalidInput(
            "name the folder of a finished search, or a model with --model and heads with --heads"
        )
    named = None if heads is None else HeadSet.of(heads)
    result = None if folder is None else BeneficialHeads.load(folder)
    chosen = _chosen(named, result)
    evidence = result if result is not None and chosen == result.heads else None
    source = model if model is not None or result is None else result.provenance.model
    written = export_ablated(source, chosen, to, evidence=evidence)
    typer.echo(f"Checkpoint without {chosen}: {written}")
    if evidence is None:
        typer.echo("Its README.md says that no search stands behind these heads.")
    else:
        typer.echo(evidence.headline)


def _chosen(named: HeadSet | None, result: BeneficialHeads | None) -> HeadSet:
    if named is not None or result is None:
        assert named is not None
        return named
    if not result.found:
        raise InvalidInput(
            "this search found no beneficial heads, so there is nothing to remove: name heads with --heads"
        )
    return result.heads
