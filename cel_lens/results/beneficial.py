"""The result of a search."""

from __future__ import annotations

import os
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from cel_lens.heads import HeadSet
from cel_lens.results.attribution import AttributionScreen
from cel_lens.results.config import SearchConfig
from cel_lens.results.gains import OPTIMISTIC, GainEstimate, HeadBound, HeadGain, SubsetBound, SubsetGain
from cel_lens.results.outcomes import OutcomeMatrix
from cel_lens.results.provenance import Provenance

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["BeneficialHeads"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BeneficialHeads:
    """Heads whose removal helped, how much, and everything needed to check it.

    Attributes:
        heads: The chosen heads; empty if no head set had a positive gain on discovery, which is an
            ordinary result.
        heldout: The gain of the chosen heads on examples that no choice has seen: the number to quote.
            For an empty choice every figure is that of the intact model and the gain is 0.
        discovery: The gain on the examples they were chosen on: optimistic.
        screening: Every head that was measured on the whole discovery panel, best first.
        eliminated: With ``screening="eliminate"``, the heads stopped before, with the bound that their gain
            cannot exceed.
        attribution: With ``screening="attribution"``, what was predicted, the heads that were not evaluated, and
            the estimated recall of the pool.
        subsets: Every subset of the pool that was measured on the whole discovery panel, best first, single
            heads included.
        eliminated_subsets: With ``screening="eliminate"``, the subsets that could no longer be among the
            finalists, with the bound that their gain cannot exceed.
        finalists: The best subsets as they were written down before held-out was read.
        config: The settings of the search.
        provenance: Model, task, versions and digests.
        discovery_outcomes: Verdicts of all conditions on discovery.
        heldout_outcomes: Verdicts of the intact model and of the chosen heads on held-out.
    """

    heads: HeadSet
    heldout: GainEstimate
    discovery: GainEstimate
    screening: tuple[HeadGain, ...]
    subsets: tuple[SubsetGain, ...]
    finalists: tuple[HeadSet, ...]
    config: SearchConfig
    provenance: Provenance
    discovery_outcomes: OutcomeMatrix
    heldout_outcomes: OutcomeMatrix
    eliminated: tuple[HeadBound, ...] = ()
    eliminated_subsets: tuple[SubsetBound, ...] = ()
    attribution: AttributionScreen | None = None

    @property
    def n_subsets(self) -> int:
        """Number of head sets in the joint search, single heads and those stopped early included."""
        return len(self.subsets) + len(self.eliminated_subsets)

    @property
    def found(self) -> bool:
        """Whether any head set had a positive gain on discovery."""
        return bool(self.heads.heads)

    @property
    def headline(self) -> str:
        """The finding in one sentence."""
        where = f"{self.provenance.model} on {self.provenance.task} ({self.provenance.protocol})"
        if not self.found:
            n_heads = len(self.screening) + len(self.eliminated)
            return (
                f"No beneficial head set was found in {where}: none of {n_heads} heads and "
                f"{self.n_subsets} subsets raised accuracy on {self.discovery.n} discovery examples."
            )
        held = self.heldout
        figures = (
            f"{100 * held.intact_accuracy:.1f}% to {100 * held.ablated_accuracy:.1f}% on {held.n} examples "
            f"({100 * held.gain:+.1f} points, {100 * held.confidence:.0f}% interval "
            f"{100 * held.ci_low:+.1f} to {100 * held.ci_high:+.1f}, exact McNemar p = {held.p_value:.2g})."
        )
        if held.ci_low <= 0 <= held.ci_high:
            return (
                f"Removing {self.heads} does not change held-out accuracy of {where} beyond chance: {figures}"
            )
        verdict = "raises" if held.gain > 0 else "lowers"
        return f"Removing {self.heads} {verdict} held-out accuracy of {where}: {figures}"

    def to_frame(self) -> pd.DataFrame:
        """One row for each screened head, best first.

        Returns:
            Columns ``rank, head, layer, index, n, measured, rescued, damaged, gain_points, at_most_points,
            in_pool, chosen``; gains in percentage points on discovery. An eliminated head has no gain, only
            the bound, and counts of the ``measured`` examples. After a search by attribution there is a column
            ``predicted_points`` too; heads that were not evaluated stand at the end by it, with ``measured`` 0 and
            neither gain nor bound.
        """
        import pandas as pd

        pool = {head for subset in self.subsets if len(subset.heads) == 1 for head in subset.heads}
        entries: list[HeadGain | HeadBound] = [*self.screening, *self.eliminated]
        gains = [entry.gain if isinstance(entry, HeadGain) else None for entry in entries]
        bounds = [entry.gain if isinstance(entry, HeadGain) else entry.at_most for entry in entries]
        frame = pd.DataFrame(
            {
                "rank": range(1, len(entries) + 1),
                "head": [str(entry.head) for entry in entries],
                "layer": [entry.head.layer for entry in entries],
                "index": [entry.head.index for entry in entries],
                "n": [entry.n for entry in entries],
                "measured": [entry.n if isinstance(entry, HeadGain) else entry.measured for entry in entries],
                "rescued": [entry.rescued for entry in entries],
                "damaged": [entry.damaged for entry in entries],
                "gain_points": pd.Series(
                    [None if gain is None else 100 * gain for gain in gains], dtype=float
                ),
                "at_most_points": [100 * bound for bound in bounds],
                "in_pool": [entry.head in pool for entry in entries],
                "chosen": [entry.head in self.heads for entry in entries],
            }
        )
        return frame if self.attribution is None else self._with_predictions(frame, self.attribution)

    def _with_predictions(self, frame: pd.DataFrame, attribution: AttributionScreen) -> pd.DataFrame:
        import pandas as pd

        left = attribution.not_evaluated
        more = pd.DataFrame(
            {
                "rank": range(len(frame) + 1, len(frame) + len(left) + 1),
                "head": [str(one.head) for one in left],
                "layer": [one.head.layer for one in left],
                "index": [one.head.index for one in left],
                "n": [one.n for one in left],
                "measured": 0,
                "rescued": 0,
                "damaged": 0,
                "gain_points": float("nan"),
                "at_most_points": float("nan"),
                "in_pool": False,
                "chosen": False,
            }
        )
        found = pd.concat([frame, more], ignore_index=True) if left else frame
        points = {str(one.head): 100 * one.predicted for one in attribution.predictions}
        return found.assign(predicted_points=[points[head] for head in found["head"]])

    def save(self, folder: str | os.PathLike[str]) -> Path:
        """Write ``result.json``, ``outcomes.npz`` and ``heads.csv`` into a folder.

        Args:
            folder: Made if it does not exist; files of these names in it are replaced.

        Returns:
            The folder.

        Raises:
            InvalidInput: If the folder cannot be written.
        """
        from cel_lens.results.storage import save

        return save(self, folder)

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> BeneficialHeads:
        """Read what :meth:`save` wrote.

        Raises:
            InvalidInput: If a file is missing, damaged, has unknown or missing fields, or does not fit
                the others.
        """
        from cel_lens.results.storage import load

        return load(folder)

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{estimate.split}</td><td>{estimate.n}</td><td>{100 * estimate.intact_accuracy:.1f}</td>"
            f"<td>{100 * estimate.ablated_accuracy:.1f}</td><td>{100 * estimate.gain:+.1f}</td>"
            f"<td>{100 * estimate.ci_low:+.1f} to {100 * estimate.ci_high:+.1f}</td>"
            f"<td>{estimate.p_value:.2g}</td><td>{escape(estimate.note)}</td></tr>"
            for estimate in (self.heldout, self.discovery)
        )
        best = "".join(
            f"<tr><td>{entry.heads}</td><td>{entry.rescued}</td><td>{entry.damaged}</td>"
            f"<td>{100 * entry.gain:+.1f}</td></tr>"
            for entry in self.screening[:5]
        )
        screened = "" if self.attribution is None else f"<p>{escape(str(self.attribution))}</p>"
        return (
            f"<p><b>{escape(self.headline)}</b></p>{screened}"
            "<table><thead><tr><th>panel</th><th>examples</th><th>intact %</th><th>ablated %</th>"
            "<th>gain (points)</th><th>interval</th><th>McNemar p</th><th></th></tr></thead>"
            f"<tbody>{rows}</tbody></table>"
            f"<table><caption>Best single heads on discovery ({OPTIMISTIC})</caption>"
            "<thead><tr><th>head</th><th>rescued</th><th>damaged</th>"
            f"<th>gain (points)</th></tr></thead><tbody>{best}</tbody></table>"
        )
