"""One self-contained HTML page about a search, readable offline."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from cel_lens.errors import InvalidInput
from cel_lens.results import OPTIMISTIC, BeneficialHeads
from cel_lens.results.storage import write_text
from cel_lens.viz.answers import AnswerFlags, answer_flags
from cel_lens.viz.gain_map import GainMap, draw_gain_map, gain_map, pool_heads
from cel_lens.viz.panel import PanelGains, draw_panel_gains, panel_gains
from cel_lens.viz.subsets import BestSubsets, best_subsets, draw_subsets
from cel_lens.viz.theme import theme_json
from cel_lens.viz.wording import UNIT, p_value_text, percent, plural, points, points_range

if TYPE_CHECKING:
    import plotly.graph_objects as go

__all__ = ["Fact", "PoolRow", "ReportContent", "report_content", "write_report"]

_PLOT_OPTIONS = {"displayModeBar": False, "displaylogo": False, "responsive": True, "scrollZoom": False}


class Fact(NamedTuple):
    """One line of the configuration or the provenance.

    Attributes:
        name: What it is.
        value: Its value as text.
        code: Whether the value is a digest or an identifier, shown in fixed width.
    """

    name: str
    value: str
    code: bool = False


class PoolRow(NamedTuple):
    """One head of the pool.

    Attributes:
        rank: Place in the screening, from 1.
        head: Name of the head.
        rescued: Discovery examples that became right.
        damaged: Discovery examples that became wrong.
        gain: Change of accuracy on discovery, a fraction from -1 to 1.
        chosen: Whether it belongs to the chosen set.
    """

    rank: int
    head: str
    rescued: int
    damaged: int
    gain: float
    chosen: bool


class ReportContent(NamedTuple):
    """Everything the page says, before it is drawn.

    Attributes:
        title: Title of the page.
        map: The heat map of screening gains.
        panels: Both panels with their intervals; ``None`` if nothing was found.
        subsets: The best head sets.
        pool: The heads of the joint search, best first.
        answers: Flag counts, held-out first.
        settings: The settings of the search.
        origin: Model, task, protocol and how the answers were computed.
        digests: Fingerprints.
        versions: Versions of the packages.
        seconds: Wall time of each stage and in all.
    """

    title: str
    map: GainMap
    panels: PanelGains | None
    subsets: BestSubsets
    pool: tuple[PoolRow, ...]
    answers: tuple[AnswerFlags, AnswerFlags]
    settings: tuple[Fact, ...]
    origin: tuple[Fact, ...]
    digests: tuple[Fact, ...]
    versions: tuple[Fact, ...]
    seconds: tuple[Fact, ...]


def report_content(result: BeneficialHeads) -> ReportContent:
    """Collect what the report of a result says."""
    pool = set(pool_heads(result))
    provenance = result.provenance
    return ReportContent(
        title=f"Beneficial heads of {provenance.model} on {provenance.task}",
        map=gain_map(result),
        panels=panel_gains(result) if result.found else None,
        subsets=best_subsets(result),
        pool=tuple(
            PoolRow(rank, str(one.head), one.rescued, one.damaged, one.gain, one.head in result.heads)
            for rank, one in enumerate(result.screening, start=1)
            if one.head in pool
        ),
        answers=answer_flags(result),
        settings=_settings(result),
        origin=_origin(result),
        digests=(
            Fact("Weights (fixed sample of every tensor)", provenance.weights_digest, True),
            Fact("Rendered prompts of both panels", provenance.prompt_digest, True),
            Fact("Example ids of both panels", provenance.panel_digest, True),
            Fact("The choice, before held-out was read", provenance.freeze_digest, True),
        ),
        versions=tuple(Fact(name, value, True) for name, value in sorted(provenance.versions.items())),
        seconds=_seconds(provenance.seconds),
    )


def write_report(result: BeneficialHeads, path: str | os.PathLike[str]) -> Path:
    """Write the report of a result as one HTML file.

    The file holds its styles, its script and plotly.js (about 5 MB); it loads nothing from elsewhere.

    Args:
        result: A finished search.
        path: The file; replaced if it exists, its folder is made.

    Returns:
        The file.

    Raises:
        InvalidInput: If the file cannot be written.
    """
    target = Path(path)
    page = _render(result)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        write_text(target, page)
    except OSError as error:
        raise InvalidInput(f"{target} cannot be written ({error.strerror or error})") from error
    return target


def _render(result: BeneficialHeads) -> str:
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup
    from plotly.offline import get_plotlyjs

    environment = Environment(
        loader=PackageLoader("cel_lens.viz"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(points=points, percent=percent, p_value=p_value_text, figure_json=_figure_json)
    content = report_content(result)
    return environment.get_template("report.html.j2").render(
        result=result,
        held=result.heldout,
        found_on=result.discovery,
        content=content,
        figures=_figures(content),
        plot_options=_PLOT_OPTIONS,
        theme=theme_json(),
        plotly_js=Markup(get_plotlyjs()),
        optimistic=OPTIMISTIC,
        unit=UNIT,
        plural=plural,
        points_range=points_range,
    )


def _figures(content: ReportContent) -> dict[str, go.Figure]:
    figures = {"gain-map": draw_gain_map(content.map), "best-subsets": draw_subsets(content.subsets)}
    if content.panels is not None:
        figures["panel-gains"] = draw_panel_gains(content.panels)
    return figures


def _figure_json(figure: go.Figure) -> Any:
    """The figure as JSON that can stand inside a script element: plotly escapes ``<``, ``>`` and ``/``."""
    from markupsafe import Markup

    return Markup(figure.to_json())


def _settings(result: BeneficialHeads) -> tuple[Fact, ...]:
    config = result.config
    layers = "all" if config.layers is None else ", ".join(map(str, config.layers))
    return (
        Fact("Discovery examples", f"{config.n_discovery}"),
        Fact("Held-out examples", f"{config.n_heldout}"),
        Fact("Heads removed together, at most", f"{config.max_heads}"),
        Fact("Heads in the pool", f"{config.pool_size}"),
        Fact("Finalists written down", f"{config.n_finalists}"),
        Fact("Screened layers", layers),
        Fact("Seed of the panels", f"{config.seed}"),
        Fact("Batch size (examples)", f"{config.batch_size}"),
    )


def _origin(result: BeneficialHeads) -> tuple[Fact, ...]:
    one = result.provenance
    grouping = (
        f"; {plural(one.n_key_value_heads, 'key/value head')} in each layer, never touched"
        if one.n_key_value_heads != one.n_heads
        else ""
    )
    return (
        Fact("Model", one.model),
        Fact("Shape", f"{plural(one.n_layers, 'layer')} of {plural(one.n_heads, 'query head')}{grouping}"),
        Fact("Task", one.task),
        Fact("Protocol", one.protocol),
        Fact("Metric", one.metric),
        Fact(
            "Beginning-of-sequence token",
            "put before every prompt" if one.prepends_bos else "not put before prompts",
        ),
        Fact("Number format", one.dtype),
        Fact("Device", one.device),
        Fact("Model class", one.backend),
        Fact("Engine", one.engine),
        Fact("Started", one.started),
        Fact("Screened heads with zero output everywhere", ", ".join(one.inactive) or "none"),
    )


def _seconds(seconds: dict[str, float]) -> tuple[Fact, ...]:
    if not seconds:
        return ()
    total = sum(seconds.values())
    stages = tuple(
        Fact(name, f"{value:,.1f} s" + (f" ({percent(value / total)})" if total else ""))
        for name, value in seconds.items()
    )
    return (*stages, Fact("in all", f"{total:,.1f} s"))
