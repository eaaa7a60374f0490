"""Builders of small results, made by hand: every figure follows from which verdicts are flipped."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt

from cel_lens.heads import INTACT, Head, HeadSet, all_heads
from cel_lens.results import (
    BeneficialHeads,
    HeadGain,
    OutcomeMatrix,
    Provenance,
    SearchConfig,
    SubsetGain,
)
from cel_lens.stats import estimate_gain, paired_counts

Effects = Mapping[str, tuple[int, int]]
"""Name of a head to how many discovery examples it rescues and damages when removed."""

HELPFUL: Effects = {"L0H1": (3, 0), "L1H0": (2, 1), "L1H2": (0, 4)}


def build_provenance(**changes: Any) -> Provenance:
    """The provenance of a search on a model of two layers with three heads."""
    values: dict[str, Any] = {
        "model": "toy-model",
        "backend": "hooked",
        "n_layers": 2,
        "n_heads": 3,
        "n_key_value_heads": 1,
        "dtype": "float32",
        "device": "cpu",
        "weights_digest": "a" * 64,
        "prepends_bos": True,
        "task": "arithmetic",
        "protocol": "completion-6shot",
        "metric": "integer-match",
        "engine": "reference",
        "prompt_digest": "b" * 64,
        "panel_digest": "c" * 64,
        "freeze_digest": "d" * 64,
        "started": "2026-03-01T09:30:00+00:00",
        "seconds": {"screen": 6.0, "joint": 3.0, "heldout": 1.0},
        "versions": {"python": "3.12.3", "torch": "2.13.0"},
        "discovery_flags": {"intact": {"no-answer": 2}, "ablated": {"no-answer": 1}},
        "heldout_flags": {"intact": {"no-answer": 5, "capped": 1}, "ablated": {"no-answer": 2, "capped": 1}},
    }
    return Provenance(**(values | changes))


def build_matrix(rows: Mapping[HeadSet, npt.NDArray[np.bool_]], prefix: str) -> OutcomeMatrix:
    """A matrix with one row for each condition, in the given order."""
    conditions = tuple(rows)
    correct = np.array([rows[one] for one in conditions], dtype=np.bool_)
    ids = tuple(f"{prefix}/{place:06d}" for place in range(correct.shape[1]))
    return OutcomeMatrix(conditions=conditions, example_ids=ids, correct=correct)


def build_result(
    effects: Effects = HELPFUL,
    *,
    n_layers: int = 2,
    n_heads: int = 3,
    layers: tuple[int, ...] | None = None,
    n_discovery: int = 20,
    n_heldout: int = 40,
    heldout: tuple[int, int] = (6, 2),
    pool_size: int = 3,
    max_heads: int = 2,
    **provenance: Any,
) -> BeneficialHeads:
    """A result in which half of every panel is right when intact.

    Args:
        effects: What each head does on discovery; a head left out changes nothing. A head's rescued
            and damaged examples start at a place of its own, so heads rescue different examples; a set
            changes what any of its heads changes.
        n_layers, n_heads, layers: Shape of the model and the screened layers.
        n_discovery, n_heldout: Examples of each panel, even numbers.
        heldout: Rescued and damaged held-out examples of the chosen set.
        pool_size, max_heads: Heads in the joint search and largest size of a set.
        provenance: Changes of the provenance.
    """
    sizes = {"n_discovery": n_discovery, "n_heldout": n_heldout}
    screened = all_heads(n_layers, n_heads, layers)
    flips = {
        head: _flips(effects.get(str(head), (0, 0)), n_discovery, place)
        for place, head in enumerate(screened)
    }
    intact = np.arange(n_discovery) < n_discovery // 2
    ranked = sorted(screened, key=lambda head: _key(intact, intact ^ flips[head], HeadSet((head,))))
    pool = sorted(ranked[:pool_size])
    subsets = [heads for size in range(2, max_heads + 1) for heads in combinations(pool, size)]
    rows = {INTACT: intact} | {
        HeadSet(heads): intact ^ np.logical_or.reduce([flips[head] for head in heads])
        for heads in [*((head,) for head in screened), *subsets]
    }
    tried = [one for one in rows if one != INTACT and set(one.heads) <= set(pool)]
    tried.sort(key=lambda one: _key(intact, rows[one], one))
    rescued, damaged = paired_counts(intact, rows[tried[0]])
    chosen = tried[0] if rescued > damaged else INTACT
    before = np.arange(n_heldout) < n_heldout // 2
    after = before ^ _flips(heldout if chosen != INTACT else (0, 0), n_heldout, 0)
    return BeneficialHeads(
        heads=chosen,
        heldout=estimate_gain(before, after, split="heldout"),
        discovery=estimate_gain(intact, rows[chosen], split="discovery"),
        screening=tuple(_head_gain(head, intact, rows[HeadSet((head,))]) for head in ranked),
        subsets=tuple(_subset_gain(one, intact, rows[one]) for one in tried),
        finalists=tuple(tried[:3]),
        config=SearchConfig(max_heads=max_heads, pool_size=pool_size, n_finalists=3, layers=layers, **sizes),
        provenance=build_provenance(**({"n_layers": n_layers, "n_heads": n_heads} | provenance)),
        discovery_outcomes=build_matrix(rows, "discovery"),
        heldout_outcomes=build_matrix({INTACT: before} | {chosen: after}, "heldout"),
    )


def _flips(effect: tuple[int, int], n: int, place: int) -> npt.NDArray[np.bool_]:
    """Which verdicts change: the first half is right when intact, the second half wrong."""
    rescued, damaged = effect
    half = n // 2
    flipped = np.zeros(n, dtype=np.bool_)
    flipped[half + _around(rescued, n - half, place)] = True
    flipped[_around(damaged, half, place)] = True
    return flipped


def _around(count: int, size: int, place: int) -> npt.NDArray[np.intp]:
    assert count <= size
    return (np.arange(count) + 3 * place) % size


def _key(intact: Any, ablated: Any, heads: HeadSet) -> tuple[int, int, int, Iterable[Head]]:
    rescued, damaged = paired_counts(intact, ablated)
    return damaged - rescued, damaged, len(heads), heads.heads


def _head_gain(head: Head, intact: Any, ablated: Any) -> HeadGain:
    rescued, damaged = paired_counts(intact, ablated)
    return HeadGain(head=head, n=intact.size, rescued=rescued, damaged=damaged)


def _subset_gain(heads: HeadSet, intact: Any, ablated: Any) -> SubsetGain:
    rescued, damaged = paired_counts(intact, ablated)
    return SubsetGain(heads=heads, n=intact.size, rescued=rescued, damaged=damaged)
