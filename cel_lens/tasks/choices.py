"""Which of several continuations a model prefers: the rule that all choice tasks share."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from typing import Literal, NamedTuple, TypeAlias

from cel_lens.errors import EvaluationError

__all__ = ["ChoiceMetric", "Preference", "prefer"]

ChoiceMetric: TypeAlias = Literal["acc", "acc_norm"]
"""``"acc"``: the largest summed log-likelihood wins. ``"acc_norm"``: the largest per character."""


class Preference(NamedTuple):
    """The choice that a model prefers.

    Attributes:
        chosen: Index of the best choice; of the first of them on an exact tie.
        tied: Whether another choice has exactly the same score.
        scores: The scores that were compared: log-likelihoods, or log-likelihoods per character.
    """

    chosen: int
    tied: bool
    scores: tuple[float, ...]

    def margin(self, gold: int) -> float:
        """Score of the right choice minus the best score among the others; positive if it wins alone."""
        others = [score for place, score in enumerate(self.scores) if place != gold]
        return self.scores[gold] - max(others)


def prefer(log_likelihoods: Sequence[float], lengths: Sequence[int] | None = None) -> Preference:
    """Compare continuations.

    Args:
        log_likelihoods: Summed log-likelihood of each continuation.
        lengths: What each is divided by, at least 1: characters for ``acc_norm``; ``None``: nothing.

    Raises:
        EvaluationError: If a log-likelihood is not a finite number; that is never a verdict.

    Example:
        >>> prefer((-12.0, -20.0, -33.0, -40.0)).chosen
        0
        >>> prefer((-12.0, -20.0, -33.0, -40.0), (10, 20, 30, 40))
        Preference(chosen=1, tied=True, scores=(-1.2, -1.0, -1.1, -1.0))
    """
    if not all(isfinite(one) for one in log_likelihoods):
        raise EvaluationError(f"a log-likelihood is not finite: {', '.join(map(str, log_likelihoods))}")
    divisors = [1] * len(log_likelihoods) if lengths is None else lengths
    scores = tuple(total / size for total, size in zip(log_likelihoods, divisors, strict=True))
    best = max(scores)
    return Preference(scores.index(best), scores.count(best) > 1, scores)
