"""One self-contained HTML page of a verification."""

from __future__ import annotations

from pathlib import Path

from cel_lens.errors import InvalidInput
from cel_lens.theory.verification import Verdict, Verification

__all__ = ["write_report"]

_TEMPLATES = Path(__file__).parent / "templates"


def write_report(verification: Verification, path: str | Path) -> Path:
    """Write the table of claims and a plot for every statement as one page that needs no network.

    The page follows the reader's light or dark preference and reads on a narrow phone. It holds the plotting
    library once, about 4.7 MB.

    Args:
        verification: What to show.
        path: HTML file to write; its folder must exist.

    Returns:
        The path written.

    Raises:
        InvalidInput: If the folder does not exist or the path is a folder.
    """
    target = Path(path)
    if target.is_dir() or not target.parent.is_dir():
        raise InvalidInput(
            f"the report cannot be written to {str(path)!r}: give a file in an existing folder"
        )
    target.write_text(_render(verification), encoding="utf-8")
    return target


def _render(verification: Verification) -> str:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from plotly.offline import get_plotlyjs

    from cel_lens.theory.figures import draw

    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    options = {"responsive": True, "displaylogo": False, "displayModeBar": False}
    plots = {
        statement.key: draw(statement.plot).to_html(
            full_html=False, include_plotlyjs=False, config=options, div_id=f"plot-{statement.key}"
        )
        for statement in verification.statements
    }
    counts = {verdict.value: verification.count(verdict) for verdict in Verdict}
    return environment.get_template("verification.html").render(
        verification=verification,
        plots=plots,
        counts=counts,
        classes={
            Verdict.CONFIRMED.value: "good",
            Verdict.NOT_CONFIRMED.value: "bad",
            Verdict.OUTSIDE.value: "outside",
        },
        plotly=get_plotlyjs(),
        style=(_TEMPLATES / "verification.css").read_text(encoding="utf-8"),
    )
