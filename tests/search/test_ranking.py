"""The order of candidates, and which subsets are tried."""

from __future__ import annotations

import itertools
import random
from math import comb

import pytest

from cel_lens.errors import InvalidInput
from cel_lens.heads import Head, HeadSet
from cel_lens.results import SearchConfig
from cel_lens.search.joint import subsets_of
from cel_lens.search.ranking import rank_key

# Best first: (heads, rescued, damaged).
ORDERED = (
    ("L5H5", 7, 2),  # gain 5 with 2 damaged
    ("L0H0", 9, 4),  # gain 5 with 4 damaged
    ("L8H8+L9H9", 3, 0),  # gain 3: two heads without damage before one head with some
    ("L4H4", 4, 1),  # then one head before two
    ("L0H0+L0H1", 4, 1),
    ("L0H9", 3, 1),  # gain 2: head 9 before head 10, as numbers
    ("L0H10", 3, 1),
    ("L1H0", 3, 1),
    ("L9H0", 3, 1),  # layer 9 before layer 10
    ("L10H0", 3, 1),
    ("L1H0+L1H5", 3, 1),  # L1H5 before L2H0
    ("L1H0+L2H0", 3, 1),
    ("L0H0+L0H1+L0H2", 3, 1),
    ("L7H7", 0, 0),  # no gain before a loss
    ("L6H6", 3, 3),
    ("L0H0+L6H6", 2, 3),
    ("L2H2", 0, 8),
)


def test_candidates_are_ordered_by_gain_then_damage_then_size_then_coordinates() -> None:
    shuffled = random.Random(0).sample(ORDERED, len(ORDERED))
    ranked = sorted(shuffled, key=lambda one: rank_key(HeadSet.of(one[0]), one[1], one[2]))
    assert tuple(ranked) == ORDERED


@pytest.mark.parametrize(("size", "largest"), [(1, 1), (4, 2), (5, 5), (10, 3)])
def test_every_subset_of_the_pool_is_tried_once(size: int, largest: int) -> None:
    pool = [Head(layer, index) for layer in range(4) for index in (11, 2, 7)][:size]
    found = subsets_of(random.Random(1).sample(pool, size), largest)
    assert len(found) == len(set(found)) == sum(comb(size, k) for k in range(1, largest + 1))
    assert all(1 <= len(one) <= largest and set(one) <= set(pool) for one in found)
    assert [len(one) for one in found] == sorted(len(one) for one in found)
    for a, b in itertools.pairwise(found):
        assert len(a) < len(b) or a < b


def test_ten_heads_give_175_candidates_of_at_most_three() -> None:
    assert len(subsets_of([Head(0, index) for index in range(10)], 3)) == 175


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"max_heads": 4, "pool_size": 3}, "max_heads=4 is larger than the pool of 3 heads"),
        ({"max_heads": 0}, "max_heads is a whole number from 1, not 0"),
        ({"pool_size": 2.0}, "pool_size is a whole number from 1, not 2.0"),
        ({"batch_size": True}, "batch_size is a whole number from 1, not True"),
        ({"n_heldout": -1}, "n_heldout is a whole number from 1, not -1"),
        ({"n_finalists": 0}, "n_finalists is a whole number from 1, not 0"),
        ({"seed": "a"}, "seed is a whole number, not 'a'"),
        ({"layers": ()}, r"layers are ascending without repetition, not \(\)"),
        ({"layers": (2, 1)}, "layers are ascending"),
        ({"pool_size": 60, "max_heads": 3}, r"a pool of 60 has 36,050 subsets .* at most 20,000"),
    ],
)
def test_settings_out_of_range_are_refused(given: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        SearchConfig(**given)  # type: ignore[arg-type]
