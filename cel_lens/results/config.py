"""What a search is asked to do."""

from __future__ import annotations

from dataclasses import dataclass
from math import comb
from typing import Literal

from cel_lens.errors import InvalidInput

__all__ = ["SearchConfig", "count_subsets"]

_MOST_SUBSETS = 20_000


def count_subsets(pool_size: int, max_heads: int) -> int:
    """Number of non-empty subsets of a pool with at most ``max_heads`` heads."""
    return sum(comb(pool_size, size) for size in range(1, max_heads + 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchConfig:
    """The settings of one search; it only holds and checks them.

    Attributes:
        n_discovery: Examples on which heads are chosen, at least 1.
        n_heldout: Further examples, disjoint from these, on which the frozen choice is measured, at least 1.
        max_heads: Largest number of heads removed together, 1 to ``pool_size``.
        pool_size: How many of the best single heads enter the joint search.
        n_finalists: How many of the best subsets are written down when the choice is frozen.
        layers: Screen only the heads of these layers; ``None``: all layers.
        screening: ``"exhaustive"`` runs every condition on every discovery example; ``"eliminate"`` stops
            heads that can no longer reach the pool and subsets that can no longer be finalists, which gives
            the same pool, finalists and choice, and bounds for the others. ``"attribution"`` measures only the
            heads that a first-order prediction puts first, and a random sample of the others that tells how
            much of the pool it may have missed: sooner, but not exact.
        attribution_top: With ``screening="attribution"``, how many heads are measured for their prediction, at
            least ``pool_size``; ``None``: a quarter of them, and at least four times the pool.
        attribution_sample: The share of the others that is measured at random, above 0 and up to 1.
        seed: Decides which examples form the panels.
        batch_size: Examples run together by the reference engine; the intact and every ablated model use
            the same batches.
        engine: ``"sweep"`` shares work between conditions; ``"reference"`` runs one condition at a time.
            The answers are the same.

    Raises:
        InvalidInput: If a value lies outside its range, or the joint search would have more than
            20,000 subsets.
    """

    n_discovery: int = 64
    n_heldout: int = 200
    max_heads: int = 3
    pool_size: int = 10
    n_finalists: int = 10
    layers: tuple[int, ...] | None = None
    screening: Literal["exhaustive", "eliminate", "attribution"] = "exhaustive"
    attribution_top: int | None = None
    attribution_sample: float = 0.1
    seed: int = 0
    batch_size: int = 32
    engine: Literal["sweep", "reference"] = "sweep"

    def __post_init__(self) -> None:
        for name in ("n_discovery", "n_heldout", "max_heads", "pool_size", "n_finalists", "batch_size"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise InvalidInput(f"{name} is a whole number from 1, not {value!r}")
        if self.screening not in ("exhaustive", "eliminate", "attribution"):
            raise InvalidInput(
                f"screening is 'exhaustive', 'eliminate' or 'attribution', not {self.screening!r}"
            )
        self._check_attribution()
        if self.engine not in ("sweep", "reference"):
            raise InvalidInput(f"engine is 'sweep' or 'reference', not {self.engine!r}")
        if isinstance(self.seed, bool) or not isinstance(self.seed, int):
            raise InvalidInput(f"seed is a whole number, not {self.seed!r}")
        if self.max_heads > self.pool_size:
            raise InvalidInput(
                f"max_heads={self.max_heads} is larger than the pool of {self.pool_size} heads it is drawn from"
            )
        if self.layers is not None and (not self.layers or list(self.layers) != sorted(set(self.layers))):
            raise InvalidInput(f"layers are ascending without repetition, not {self.layers!r}")
        if count_subsets(self.pool_size, self.max_heads) > _MOST_SUBSETS:
            raise InvalidInput(
                f"a pool of {self.pool_size} has {count_subsets(self.pool_size, self.max_heads):,} subsets of at "
                f"most {self.max_heads} heads; the joint search takes at most {_MOST_SUBSETS:,}: use a smaller "
                "pool_size or max_heads"
            )

    def _check_attribution(self) -> None:
        top, share = self.attribution_top, self.attribution_sample
        if top is not None and (isinstance(top, bool) or not isinstance(top, int) or top < self.pool_size):
            raise InvalidInput(
                f"attribution_top is a whole number from the pool size, {self.pool_size}, not {top!r}"
            )
        if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share <= 1:
            raise InvalidInput(f"attribution_sample is a share above 0 and up to 1, not {share!r}")
