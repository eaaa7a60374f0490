"""Typed, frozen results and their form on disk."""

from cel_lens.results.attribution import AttributionScreen, HeadPrediction
from cel_lens.results.beneficial import BeneficialHeads
from cel_lens.results.config import SearchConfig, count_subsets
from cel_lens.results.gains import OPTIMISTIC, GainEstimate, HeadBound, HeadGain, SubsetBound, SubsetGain
from cel_lens.results.outcomes import Detail, OutcomeMatrix, Outcomes
from cel_lens.results.provenance import Provenance

__all__ = [
    "OPTIMISTIC",
    "AttributionScreen",
    "BeneficialHeads",
    "Detail",
    "GainEstimate",
    "HeadBound",
    "HeadGain",
    "HeadPrediction",
    "OutcomeMatrix",
    "Outcomes",
    "Provenance",
    "SearchConfig",
    "SubsetBound",
    "SubsetGain",
    "count_subsets",
]
