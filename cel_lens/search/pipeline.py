"""The whole search, stage by stage."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cel_lens.errors import InvalidInput
from cel_lens.evaluation import Evaluator
from cel_lens.evaluation.evaluator import as_task
from cel_lens.heads import Head, all_heads
from cel_lens.models import load_model, model_facts
from cel_lens.models.protocol import LensModel
from cel_lens.results import BeneficialHeads, SearchConfig
from cel_lens.runtime import Executor, ProgressChoice, SerialExecutor, choose_progress, open_journal
from cel_lens.search.holdout import estimate, freeze, measure_heldout
from cel_lens.search.joint import search_subsets
from cel_lens.search.provenance import describe, fingerprint
from cel_lens.search.run import SearchRun
from cel_lens.search.screening import screen
from cel_lens.tasks import Panels, Task, make_panels

__all__ = ["find_beneficial_heads"]


def find_beneficial_heads(
    model: Any,
    task: str | Task,
    config: SearchConfig | None = None,
    *,
    run_dir: str | os.PathLike[str] | None = None,
    executor: Executor | None = None,
    progress: ProgressChoice = "auto",
    panels: Panels | None = None,
) -> BeneficialHeads:
    """Search for heads whose removal makes a model better at a task, and measure the gain on new examples.

    Every head is removed alone on discovery examples; all subsets of the best ones are tried; the best
    subset is frozen and then measured once on held-out examples.

    Args:
        model: A ``HookedTransformer``, or anything :func:`load_model` reads.
        task: A task object or a name.
        config: Sizes, limits and seed; the default has 64 discovery and 200 held-out examples.
        run_dir: Folder that remembers finished work; the same call goes on where it was interrupted.
        executor: Carries out the work; the default is this process.
        progress: ``"auto"`` (a bar on a terminal, else lines), ``"bar"``, ``"lines"``, ``"silent"``, or
            an object of yours.
        panels: Your own panels instead of drawn ones; their sizes replace those of the config.

    Returns:
        The chosen heads, which may be none, with their gains and all verdicts.

    Raises:
        InvalidInput: If task, config and model do not fit together.
        UnsupportedModel: If the model's heads cannot be ablated exactly.
        EvaluationError: If the model gives something that is not an answer.
        RunFolderError: If the run folder is in use or belongs to another run.

    References:
        Capability Enhancement Localization: search and protocol as described in the project's documentation.
    """
    started = datetime.now(UTC).isoformat(timespec="seconds")
    settings = config or SearchConfig()
    asked = as_task(task)
    drawn = panels or make_panels(
        tuple(asked.examples()),
        n_discovery=settings.n_discovery,
        n_heldout=settings.n_heldout,
        seed=settings.seed,
    )
    settings = replace(settings, n_discovery=len(drawn.discovery), n_heldout=len(drawn.heldout))
    loaded = load_model(model)
    evaluator = Evaluator(loaded, asked, batch_size=settings.batch_size, engine=settings.engine)
    heads = _heads_to_screen(evaluator.lens, settings)
    origin = fingerprint(evaluator, loaded, settings, drawn)
    folder = None if run_dir is None else Path(run_dir)
    with open_journal(folder, origin) as journal, choose_progress(progress) as shown:
        run = SearchRun(evaluator, drawn, journal, executor or SerialExecutor(), shown)
        screening = screen(run, heads, settings)
        joint = search_subsets(run, screening.gains, settings)
        frozen = freeze(run, joint.gains, n_finalists=settings.n_finalists)
        heldout = measure_heldout(run, frozen)
        return BeneficialHeads(
            heads=frozen.heads,
            heldout=heldout,
            discovery=estimate(run, "discovery", frozen.heads),
            screening=screening.gains,
            eliminated=screening.bounds,
            attribution=screening.attribution,
            subsets=joint.gains,
            eliminated_subsets=joint.bounds,
            finalists=frozen.finalists,
            config=settings,
            provenance=describe(run, model_facts(loaded), origin, frozen, started),
            discovery_outcomes=run.matrix("discovery"),
            heldout_outcomes=run.matrix("heldout"),
        )


def _heads_to_screen(lens: LensModel, config: SearchConfig) -> tuple[Head, ...]:
    """The heads of the chosen layers, if the pool can be drawn from them."""
    heads = all_heads(lens.n_layers, lens.n_heads, config.layers)
    if config.pool_size > len(heads):
        raise InvalidInput(
            f"pool_size={config.pool_size} is larger than the {len(heads)} heads to screen "
            f"({len({head.layer for head in heads})} layers with {lens.n_heads} heads each)"
        )
    return heads
