"""Train, search for task A, and look at task B: the same for every seed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from cel_lens.conflict.population import population
from cel_lens.conflict.results import ConflictRow, ConflictStudy, Removal
from cel_lens.conflict.setting import ConflictSetting
from cel_lens.conflict.tasks import ConflictTask
from cel_lens.conflict.training import train_conflict_model
from cel_lens.errors import InvalidInput
from cel_lens.evaluation import Evaluator, evaluate_heads
from cel_lens.heads import INTACT, HeadSet, all_heads
from cel_lens.results import GainEstimate, Outcomes, SearchConfig
from cel_lens.search import find_beneficial_heads
from cel_lens.stats import estimate_gain
from cel_lens.tasks import make_panels

__all__ = ["Fit", "fit_of", "search_conflict", "study_conflict"]

_POOL = 10


class Fit(NamedTuple):
    """How close a model is to the best joint prediction."""

    excess_loss: float
    """Mean cross-entropy above the least possible, over all prompts of both tasks, in nats."""
    compromise: float
    """Share of them answered as the best joint prediction answers."""


def study_conflict(
    setting: ConflictSetting | None = None,
    *,
    seeds: Iterable[int] = range(10),
    progress: Callable[[str], None] | None = None,
) -> ConflictStudy:
    """Find out how often removing the heads found for task A hurts task B.

    For every seed a transformer is trained on both tasks, ``find_beneficial_heads`` searches it for task A, and
    the frozen choice is measured on as many held-out prompts of task B. Random sets of the same size are
    measured beside it.

    Args:
        setting: The tasks, the model and the sizes.
        seeds: One model each.
        progress: Told one line after every model.

    Returns:
        One row for each seed, with summaries.

    Raises:
        InvalidInput: If no seed, or one seed twice, is given.
        EvaluationError: If a training diverges.
    """
    chosen, wanted = setting or ConflictSetting(), tuple(seeds)
    if not wanted or len(set(wanted)) != len(wanted):
        raise InvalidInput(f"seeds are different whole numbers, at least one, not {wanted}")
    rows = []
    for place, seed in enumerate(wanted, start=1):
        row = search_conflict(train_conflict_model(chosen, seed), chosen, seed)
        rows.append(row)
        if progress is not None:
            a, b = row.chosen.a.gain, row.chosen.b.gain
            progress(
                f"model {place} of {len(wanted)} (seed {seed}): removed {row.chosen.heads or 'nothing'}, "
                f"A {100 * a:+.1f} points, B {100 * b:+.1f} points"
            )
    return ConflictStudy(setting=chosen, rows=tuple(rows))


def search_conflict(model: Any, setting: ConflictSetting, seed: int) -> ConflictRow:
    """Search a trained model for task A and measure the choice on task B.

    Args:
        model: The model, a ``HookedTransformer`` that knows the setting's words.
        setting: The tasks and the sizes.
        seed: Decides cues, panels and random sets.
    """
    task_a, task_b = ConflictTask("A", seed, setting), ConflictTask("B", seed, setting)
    n_all = setting.shape.n_layers * setting.shape.n_heads
    config = SearchConfig(
        n_discovery=setting.n_discovery,
        n_heldout=setting.n_heldout,
        pool_size=min(_POOL, n_all),
        max_heads=setting.max_heads,
        seed=seed,
    )
    result = find_beneficial_heads(model, task_a, config, progress="silent")
    others = _random_sets(setting, result.heads, seed)
    on_a = _measure(model, task_a, config, [result.heads, *others])
    on_b = _measure(model, task_b, config, [result.heads, *others])

    def removal(heads: HeadSet) -> Removal:
        return Removal(heads=heads, a=_gain(on_a, heads), b=_gain(on_b, heads))

    fit = fit_of(model, setting, seed)
    return ConflictRow(
        seed=seed,
        excess_loss=fit.excess_loss,
        compromise=fit.compromise,
        chosen=removal(result.heads),
        removed=_removed(task_a, on_a[INTACT], on_a[result.heads]),
        random=tuple(removal(heads) for heads in others),
    )


def fit_of(model: Any, setting: ConflictSetting, seed: int = 0) -> Fit:
    """Compare a model's answers with the best joint prediction.

    Args:
        model: The model.
        setting: The tasks.
        seed: Decides the cues, in the proportion in which the tasks have them.
    """
    everything, losses, matches = population(setting), [], []
    for task in (ConflictTask("A", seed, setting), ConflictTask("B", seed, setting)):
        rows = np.array(task.rows())
        scores = _scores(evaluate_heads(model, task, INTACT))
        p = everything.p_yes[rows]
        losses.append(-(p * scores[:, 0] + (1 - p) * scores[:, 1]) - _entropy(p))
        matches.append((scores[:, 0] >= scores[:, 1]) == everything.compromise[rows])
    return Fit(float(np.mean(losses)), float(np.mean(matches)))


def _measure(
    model: Any, task: ConflictTask, config: SearchConfig, head_sets: Sequence[HeadSet]
) -> dict[HeadSet, Outcomes]:
    """The held-out outcomes of the intact model and of every head set."""
    panels = make_panels(
        task.examples(), n_discovery=config.n_discovery, n_heldout=config.n_heldout, seed=config.seed
    )
    wanted = tuple(dict.fromkeys((INTACT, *head_sets)))
    found = Evaluator(model, task).outcomes(wanted, panels.heldout)
    return {one.heads: one for one in found}


def _gain(outcomes: dict[HeadSet, Outcomes], heads: HeadSet) -> GainEstimate:
    return estimate_gain(
        np.array(outcomes[INTACT].correct), np.array(outcomes[heads].correct), split="heldout"
    )


def _random_sets(setting: ConflictSetting, chosen: HeadSet, seed: int) -> list[HeadSet]:
    """Different sets of the size of the chosen one, itself left out; fewer if there are no more."""
    if not chosen.heads:
        return []
    heads = all_heads(setting.shape.n_layers, setting.shape.n_heads)
    sets = [HeadSet(one) for one in combinations(heads, len(chosen)) if HeadSet(one) != chosen]
    order = np.random.default_rng((seed, len(chosen))).permutation(len(sets))
    return [sets[place] for place in order[: setting.n_random]]


def _removed(task: ConflictTask, intact: Outcomes, ablated: Outcomes) -> tuple[float, float, float]:
    """Share of the linear dependence on each feature that an ablation took away; NaN without dependence."""
    if not ablated.heads.heads:
        return 0.0, 0.0, 0.0
    rows = {example.id: int(example.fields["row"]) for example in task.examples()}
    features = population(task.setting).features[[rows[name] for name in intact.example_ids]]
    design = np.column_stack([features, np.ones(len(features))])
    before, after = (
        np.linalg.lstsq(design, scores[:, 0] - scores[:, 1], rcond=None)[0][:3]
        for scores in (_scores(intact), _scores(ablated))
    )
    before = np.where(np.abs(before) < 1e-6, np.nan, before)  # no dependence, nothing to take away
    first, second, third = (float(share) for share in 1 - after / before)
    return first, second, third


def _scores(outcomes: Outcomes) -> npt.NDArray[np.float64]:
    """Log-likelihoods of "yes" and "no", shape ``[examples, 2]``."""
    return np.array([one.log_likelihoods for one in outcomes.details], dtype=np.float64)


def _entropy(p: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    q = 1 - p
    return np.asarray(-(p * np.log(p) + q * np.log(q)))
