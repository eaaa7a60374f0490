"""Stages 3 and 4: write the choice down, then measure it once on examples no choice has seen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cel_lens.errors import RunFolderError
from cel_lens.heads import INTACT, HeadSet
from cel_lens.results import GainEstimate, SubsetGain
from cel_lens.search.records import digest_of
from cel_lens.search.run import SearchRun, Side
from cel_lens.stats import estimate_gain

__all__ = ["Frozen", "estimate", "freeze", "measure_heldout"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Frozen:
    """A choice that can no longer change.

    Attributes:
        heads: The chosen heads; empty if no subset had a positive gain.
        finalists: The best subsets, best first.
        digest: SHA-256 over both and the discovery examples.
    """

    heads: HeadSet
    finalists: tuple[HeadSet, ...]
    digest: str


def freeze(run: SearchRun, subsets: Sequence[SubsetGain], *, n_finalists: int) -> Frozen:
    """Choose the best subset and write it down, with the finalists, before held-out is run.

    Raises:
        RunFolderError: If the run folder holds another choice, so that held-out may have been seen.
    """
    heads = subsets[0].heads if subsets[0].gain > 0 else INTACT
    finalists = tuple(one.heads for one in subsets[:n_finalists])
    choice = {
        "heads": str(heads),
        "finalists": [str(one) for one in finalists],
        "discovery": [one.id for one in run.panels.discovery],
    }
    digest = digest_of(choice)
    record = {"heads": choice["heads"], "finalists": choice["finalists"], "digest": digest}
    earlier = run.journal.get("frozen choice")
    if earlier is None:
        run.journal.put("frozen choice", record)
    elif dict(earlier) != record:
        raise RunFolderError(
            f"the choice frozen in this run folder was {earlier.get('heads') or 'empty'}, but now it comes out as "
            f"{heads.label}: start in a new folder"
        )
    return Frozen(heads=heads, finalists=finalists, digest=digest)


def measure_heldout(run: SearchRun, frozen: Frozen) -> GainEstimate:
    """Measure the intact model and the frozen heads on held-out, once."""
    run.measure("heldout", [frozen.heads], "held-out")
    return estimate(run, "heldout", frozen.heads)


def estimate(run: SearchRun, side: Side, heads: HeadSet) -> GainEstimate:
    """The paired gain of a measured condition."""
    return estimate_gain(run.record(side, INTACT).verdicts, run.record(side, heads).verdicts, split=side)
