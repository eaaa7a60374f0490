"""What a search by attribution predicted, which heads it therefore measured, and how well that can have worked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cel_lens.heads import Head

__all__ = ["AttributionScreen", "HeadPrediction"]


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadPrediction:
    """What first-order attribution says that removing a head would do: a prediction, never a measured gain.

    Attributes:
        head: The head.
        n: Number of discovery examples.
        rescued: Examples predicted to become right without the head.
        damaged: Examples predicted to become wrong without the head.
    """

    head: Head
    n: int
    rescued: int
    damaged: int

    @property
    def predicted(self) -> float:
        """Predicted change of accuracy, from -1 to 1."""
        return (self.rescued - self.damaged) / self.n


@dataclass(frozen=True, slots=True, kw_only=True)
class AttributionScreen:
    """Which heads were measured since attribution put them first, and a random check of the others.

    Heads that are good enough for the pool and lie among the others are missed unless they are in the sample. The
    share of such heads in the sample estimates how many.

    Attributes:
        predictions: Every head, the best prediction first; ties in favour of the larger change of margins.
        n_chosen: How many of the first of them were measured for their prediction.
        sample: Drawn at random from the rest and measured too.
        sample_in_pool: Those of the sample that reached the pool.
        pool_size: Heads in the pool.
        missed_at_most: Upper end of a one-sided 95 % interval (hypergeometric) on the number of heads that are good
            enough for the pool and were not measured.
        n_without_margin: Discovery examples for which nothing can be predicted.
    """

    predictions: tuple[HeadPrediction, ...]
    n_chosen: int
    sample: tuple[Head, ...]
    sample_in_pool: tuple[Head, ...]
    pool_size: int
    missed_at_most: int
    n_without_margin: int = 0

    @property
    def n_others(self) -> int:
        """Heads that were not chosen for their prediction."""
        return len(self.predictions) - self.n_chosen

    @property
    def not_evaluated(self) -> tuple[HeadPrediction, ...]:
        """Heads that were never removed, so that nothing was measured of them."""
        drawn = set(self.sample)
        return tuple(one for one in self.predictions[self.n_chosen :] if one.head not in drawn)

    @property
    def missed(self) -> float:
        """Estimated number of heads that are good enough for the pool and were not measured."""
        if not self.sample:
            return 0.0
        return len(self.sample_in_pool) / len(self.sample) * (self.n_others - len(self.sample))

    @property
    def recall(self) -> float:
        """Estimated share, from 0 to 1, of the heads good enough for the pool that attribution chose."""
        chosen = self.pool_size - len(self.sample_in_pool)
        return chosen / (self.pool_size + self.missed)

    def __str__(self) -> str:
        text = f"Attribution chose {self.n_chosen} of {len(self.predictions)} heads to measure"
        if not self.sample:
            return f"{text}."
        return (
            f"{text}; {len(self.sample)} of the other {self.n_others} were measured at random, and "
            f"{len(self.sample_in_pool)} of these reached the pool of {self.pool_size}: estimated recall of the pool "
            f"{self.recall:.0%}, estimated number of heads missed {self.missed:.1f} (at most {self.missed_at_most} "
            f"with 95 % confidence, from {len(self.sample)} heads). {len(self.not_evaluated)} heads were not evaluated."
        )

    def to_json(self) -> dict[str, Any]:
        """The values that JSON can hold, rates beside counts."""
        return {
            "predictions": [
                {
                    "head": str(one.head),
                    "n": one.n,
                    "rescued": one.rescued,
                    "damaged": one.damaged,
                    "predicted": one.predicted,
                }
                for one in self.predictions
            ],
            "n_chosen": self.n_chosen,
            "sample": [str(head) for head in self.sample],
            "sample_in_pool": [str(head) for head in self.sample_in_pool],
            "pool_size": self.pool_size,
            "missed": self.missed,
            "missed_at_most": self.missed_at_most,
            "recall": self.recall,
            "n_without_margin": self.n_without_margin,
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> AttributionScreen:
        """Read :meth:`to_json`.

        Raises:
            ValueError: If fields are unknown or figures do not follow from each other.
            KeyError: If a field is missing.
        """
        found = cls(
            predictions=tuple(
                HeadPrediction(
                    head=Head.parse(one["head"]), n=one["n"], rescued=one["rescued"], damaged=one["damaged"]
                )
                for one in document["predictions"]
            ),
            n_chosen=document["n_chosen"],
            sample=tuple(Head.parse(one) for one in document["sample"]),
            sample_in_pool=tuple(Head.parse(one) for one in document["sample_in_pool"]),
            pool_size=document["pool_size"],
            missed_at_most=document["missed_at_most"],
            n_without_margin=document["n_without_margin"],
        )
        if found.to_json() != document:
            raise ValueError("the figures of the attribution do not follow from each other")
        others = {one.head for one in found.predictions[found.n_chosen :]}
        if not set(found.sample_in_pool) <= set(found.sample) <= others:
            raise ValueError("the sample of the attribution contradicts its predictions")
        return found
