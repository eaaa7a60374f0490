"""What a study of the conflict found."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, NamedTuple

from cel_lens.conflict.setting import ConflictSetting
from cel_lens.heads import HeadSet
from cel_lens.results import GainEstimate

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["ConflictRow", "ConflictStudy", "Removal", "Share", "share_of"]


class Share(NamedTuple):
    """How often something happened, with its exact (Clopper-Pearson) 95 % interval."""

    times: int
    """How often."""
    n: int
    """Out of how many."""
    low: float
    """Lower end of the interval."""
    high: float
    """Upper end of the interval."""

    @property
    def share(self) -> float:
        """``times / n``; NaN if nothing was counted."""
        return self.times / self.n if self.n else float("nan")

    def __str__(self) -> str:
        return f"{self.times} of {self.n} (95% interval {100 * self.low:.0f} to {100 * self.high:.0f}%)"


def share_of(verdicts: Sequence[bool]) -> Share:
    """Count the true ones; of nothing at all, any share is possible."""
    from scipy.stats import binomtest

    times, n = sum(verdicts), len(verdicts)
    if n == 0:
        return Share(0, 0, 0.0, 1.0)
    interval = binomtest(times, n).proportion_ci(0.95, method="exact")
    return Share(times, n, float(interval.low), float(interval.high))


@dataclass(frozen=True, slots=True, kw_only=True)
class Removal:
    """What removing one head set did on the held-out prompts of both tasks.

    Attributes:
        heads: The removed heads.
        a: Change of accuracy on task A.
        b: Change of accuracy on task B.
    """

    heads: HeadSet
    a: GainEstimate
    b: GainEstimate

    @property
    def helps_a(self) -> bool:
        """The interval on task A lies above 0."""
        return self.a.ci_low > 0

    @property
    def hurts_b(self) -> bool:
        """The interval on task B lies below 0."""
        return self.b.ci_high < 0

    @property
    def helps_a_hurts_b(self) -> bool:
        """Both."""
        return self.helps_a and self.hurts_b


@dataclass(frozen=True, slots=True, kw_only=True)
class ConflictRow:
    """One trained model, searched for task A.

    Attributes:
        seed: Seed of the weights, the batches, the cues and the panels.
        excess_loss: Mean cross-entropy on task A's and B's prompts above the least possible, in nats.
        compromise: Share of prompts answered as the best joint prediction answers them.
        chosen: The heads that the search chose on discovery, which may be none, and what their removal did.
        removed: Share of the model's dependence on each feature that went with the chosen heads; from a linear
            fit of the log-odds of "yes" on the held-out prompts of task A. All 0 if no heads were chosen; NaN
            for a feature that the model does not read.
        random: Random head sets as large as the chosen one.
    """

    seed: int
    excess_loss: float
    compromise: float
    chosen: Removal
    removed: tuple[float, float, float]
    random: tuple[Removal, ...]

    @property
    def found(self) -> bool:
        """Whether the search chose any heads."""
        return bool(self.chosen.heads.heads)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConflictStudy:
    """The same search in models that differ by their seed only.

    Attributes:
        setting: What was trained and searched.
        rows: One for each seed, in the order given.
    """

    setting: ConflictSetting
    rows: tuple[ConflictRow, ...]

    @property
    def share_found(self) -> Share:
        """How often the search chose any heads."""
        return share_of([row.found for row in self.rows])

    @property
    def share_helps_a(self) -> Share:
        """How often their removal helped task A on held-out beyond chance."""
        return share_of([row.chosen.helps_a for row in self.rows])

    @property
    def share_helps_a_hurts_b(self) -> Share:
        """How often it helped task A and hurt task B, both beyond chance."""
        return share_of([row.chosen.helps_a_hurts_b for row in self.rows])

    @property
    def share_random_helps_a_hurts_b(self) -> Share:
        """The same of the random sets. Sets of one model are not independent, so the interval is too short."""
        return share_of([one.helps_a_hurts_b for row in self.rows for one in row.random])

    def to_frame(self) -> pd.DataFrame:
        """One row for each seed; accuracies, gains and their intervals in percentage points.

        Returns:
            Columns ``seed, heads, n_heads, n, intact_a, gain_a, gain_a_low, gain_a_high, intact_b, change_b,
            change_b_low, change_b_high, helps_a_hurts_b, removed_shared, removed_first, removed_second,
            random_a, random_b, random_helps_a_hurts_b, n_random, compromise, excess_loss``. The removed shares are
            fractions; ``random_a`` and ``random_b`` are means over the random sets.
        """
        import pandas as pd

        return pd.DataFrame([_record(row) for row in self.rows])

    @property
    def summary(self) -> str:
        """The findings in a few lines."""
        chosen = [row.chosen for row in self.rows]
        random = [one for row in self.rows for one in row.random]
        return "\n".join(
            [
                f"Models trained             {len(self.rows)}",
                f"Heads chosen               {self.share_found}",
                f"Removal helps A            {self.share_helps_a}",
                f"Helps A and hurts B        {self.share_helps_a_hurts_b}",
                f"Mean change, chosen heads  A {_mean_points(chosen, _on_a)}, B {_mean_points(chosen, _on_b)}",
                f"Random sets of that size   helps A and hurts B in {self.share_random_helps_a_hurts_b}",
                f"Mean change, random sets   A {_mean_points(random, _on_a)}, B {_mean_points(random, _on_b)}",
            ]
        )


def _on_a(removal: Removal) -> float:
    return removal.a.gain


def _on_b(removal: Removal) -> float:
    return removal.b.gain


def _mean(removals: Sequence[Removal], change: Callable[[Removal], float]) -> float:
    return fmean(map(change, removals)) if removals else float("nan")


def _mean_points(removals: Sequence[Removal], change: Callable[[Removal], float]) -> str:
    return f"{100 * _mean(removals, change):+.1f} points" if removals else "not measured"


def _record(row: ConflictRow) -> dict[str, object]:
    a, b = row.chosen.a, row.chosen.b
    return {
        "seed": row.seed,
        "heads": str(row.chosen.heads),
        "n_heads": len(row.chosen.heads),
        "n": a.n,
        "intact_a": 100 * a.intact_accuracy,
        "gain_a": 100 * a.gain,
        "gain_a_low": 100 * a.ci_low,
        "gain_a_high": 100 * a.ci_high,
        "intact_b": 100 * b.intact_accuracy,
        "change_b": 100 * b.gain,
        "change_b_low": 100 * b.ci_low,
        "change_b_high": 100 * b.ci_high,
        "helps_a_hurts_b": row.chosen.helps_a_hurts_b,
        "removed_shared": row.removed[0],
        "removed_first": row.removed[1],
        "removed_second": row.removed[2],
        "random_a": 100 * _mean(row.random, _on_a),
        "random_b": 100 * _mean(row.random, _on_b),
        "random_helps_a_hurts_b": sum(one.helps_a_hurts_b for one in row.random),
        "n_random": len(row.random),
        "compromise": row.compromise,
        "excess_loss": row.excess_loss,
    }
