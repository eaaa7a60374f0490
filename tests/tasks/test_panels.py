"""Panels share nothing, hold the same mix, and are the same for everybody with the same seed."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from hashlib import sha256
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from cel_lens.errors import InvalidInput
from cel_lens.tasks import Arithmetic, Example, Panels, make_panels, panel_digest

quick = settings(max_examples=150, deadline=None)


def example(name: str, *, group: str = "", stratum: str = "", split: Any = None) -> Example:
    return Example(id=name, prompt=name, target="", group=group, stratum=stratum, split=split)


def plain(sizes: dict[str, int]) -> list[Example]:
    """So many examples of each stratum, each a group of its own."""
    return [example(f"{name}/{place}", stratum=name) for name, size in sizes.items() for place in range(size)]


@st.composite
def tangled(draw: st.DrawFn) -> list[Example]:
    """Examples with shared groups, strata and fixed panels, in any combination."""
    kinds = draw(
        st.lists(
            st.tuples(
                st.sampled_from(["", "", "g1", "g2", "g3", "g4", "g5"]),
                st.sampled_from(["", "a", "b", "c"]),
                st.sampled_from([None, None, None, "discovery", "heldout"]),
            ),
            min_size=2,
            max_size=25,
        )
    )
    return [
        example(f"id{place}", group=group, stratum=stratum, split=split)
        for place, (group, stratum, split) in enumerate(kinds)
    ]


def draw_or_none(examples: list[Example], n_discovery: int, n_heldout: int, seed: int) -> Panels | None:
    """The panels, or ``None`` if there are too few examples."""
    try:
        return make_panels(examples, n_discovery=n_discovery, n_heldout=n_heldout, seed=seed)
    except InvalidInput:
        return None


strata_sizes = st.dictionaries(st.sampled_from("abcdef"), st.integers(1, 12), min_size=1)
seeds = st.integers(-3, 3)


@quick
@given(tangled(), st.integers(1, 6), st.integers(1, 8), seeds)
def test_panels_share_no_example_and_no_group(
    examples: list[Example], n_discovery: int, n_heldout: int, seed: int
) -> None:
    found = draw_or_none(examples, n_discovery, n_heldout, seed)
    if found is None:
        return
    assert (len(found.discovery), len(found.heldout)) == (n_discovery, n_heldout)
    ids = [one.id for one in (*found.discovery, *found.heldout)]
    assert len(set(ids)) == len(ids)
    assert all(one in examples for one in (*found.discovery, *found.heldout))
    groups = [one.group for one in found.discovery if one.group]
    assert len(set(groups)) == len(groups), "discovery takes one example of a group"
    assert not set(groups) & {one.group for one in found.heldout}
    assert all(one.split in (None, "discovery") for one in found.discovery)
    assert all(one.split in (None, "heldout") for one in found.heldout)


@quick
@given(tangled(), st.integers(1, 4), st.integers(1, 4), seeds, st.randoms(use_true_random=False))
def test_the_order_of_the_examples_does_not_matter(
    examples: list[Example], n_discovery: int, n_heldout: int, seed: int, source: random.Random
) -> None:
    shuffled = source.sample(examples, len(examples))
    assert draw_or_none(shuffled, n_discovery, n_heldout, seed) == draw_or_none(
        examples, n_discovery, n_heldout, seed
    )


@quick
@given(strata_sizes, st.data(), seeds)
def test_every_example_can_be_used(sizes: dict[str, int], data: st.DataObject, seed: int) -> None:
    total = sum(sizes.values())
    assume(total >= 2)
    n_discovery = data.draw(st.integers(1, total - 1))
    n_heldout = data.draw(st.integers(1, total - n_discovery))
    found = make_panels(plain(sizes), n_discovery=n_discovery, n_heldout=n_heldout, seed=seed)
    assert (len(found.discovery), len(found.heldout)) == (n_discovery, n_heldout)
    with pytest.raises(InvalidInput, match="ask for fewer"):
        make_panels(plain(sizes), n_discovery=n_discovery, n_heldout=total - n_discovery + 1, seed=seed)


@quick
@given(
    st.sets(st.sampled_from("abcdef"), min_size=1), st.integers(1, 20), st.integers(1, 20), seeds, st.data()
)
def test_ample_strata_are_filled_evenly_and_larger_panels_begin_with_smaller_ones(
    strata: set[str], n_discovery: int, n_heldout: int, seed: int, data: st.DataObject
) -> None:
    examples = plain(dict.fromkeys(sorted(strata), 45))
    found = make_panels(examples, n_discovery=n_discovery, n_heldout=n_heldout, seed=seed)
    for panel in (found.discovery, found.heldout):
        counts = Counter(one.stratum for one in panel)
        assert max(counts[name] for name in strata) - min(counts[name] for name in strata) <= 1
    fewer, less = data.draw(st.integers(1, n_discovery)), data.draw(st.integers(1, n_heldout))
    smaller = make_panels(examples, n_discovery=fewer, n_heldout=less, seed=seed)
    assert smaller.discovery == found.discovery[:fewer]
    assert smaller.heldout == found.heldout[:less]


def test_a_scarce_stratum_is_shared_in_proportion() -> None:
    found = make_panels(plain({"scarce": 6, "ample": 100}), n_discovery=20, n_heldout=40)
    assert Counter(one.stratum for one in found.discovery) == {"scarce": 2, "ample": 18}
    assert Counter(one.stratum for one in found.heldout) == {"scarce": 4, "ample": 36}


def test_the_default_arithmetic_panels_hold_the_same_mix() -> None:
    found = make_panels(Arithmetic().examples(), n_discovery=60, n_heldout=200)
    assert set(Counter(one.stratum for one in found.discovery).values()) == {12}
    heldout = Counter(one.stratum for one in found.heldout)
    assert len(heldout) == 5
    assert set(heldout.values()) == {40}


def test_another_seed_gives_other_panels_and_the_same_seed_the_same() -> None:
    examples = plain({"a": 60})
    draws = [make_panels(examples, n_discovery=10, n_heldout=20, seed=seed) for seed in (0, 1, 0, -1)]
    assert draws[0] == draws[2]
    assert len({tuple(ex.id for ex in one.discovery) for one in draws}) == 3
    assert len({panel_digest(one) for one in draws}) == 3


def test_places_follow_from_seed_and_id_alone() -> None:
    examples = plain({"a": 9, "b": 9})
    found = make_panels(examples, n_discovery=3, n_heldout=3, seed=7)
    a, b = (
        sorted(
            (f"{name}/{place}" for place in range(9)),
            key=lambda one: sha256(f"7\n{one}".encode()).hexdigest(),
        )
        for name in "ab"
    )
    assert [one.id for one in found.discovery] == [a[0], b[0], a[1]]
    assert [one.id for one in found.heldout] == [a[-1], b[-1], a[-2]]


def test_discovery_takes_one_example_of_a_group_and_held_out_may_take_more() -> None:
    examples = [example(f"{group}{place}", group=group) for group in "pqr" for place in range(5)]
    found = make_panels(examples, n_discovery=2, n_heldout=5)
    assert len({one.group for one in found.discovery}) == 2
    assert len({one.group for one in found.heldout}) == 1
    with pytest.raises(InvalidInput, match="at most 2 and 5 that share nothing"):
        make_panels(examples, n_discovery=2, n_heldout=6)


def test_a_group_over_several_strata_leaves_no_gap_in_held_out() -> None:
    # Every "b" shares its group with an "a", so what discovery takes is missing from both strata.
    examples = [example(f"{s}{place}", group=f"g{place}", stratum=s) for place in range(10) for s in "ab"]
    found = make_panels(examples, n_discovery=4, n_heldout=12)
    assert len(found.heldout) == 12
    assert not {one.group for one in found.discovery} & {one.group for one in found.heldout}


def test_fixed_panels_are_kept() -> None:
    examples = [example(f"t{place}", split="discovery") for place in range(4)]
    examples += [example(f"v{place}", split="heldout") for place in range(6)]
    found = make_panels(examples, n_discovery=4, n_heldout=6)
    assert sorted(one.id for one in found.discovery) == ["t0", "t1", "t2", "t3"]
    assert sorted(one.id for one in found.heldout) == [f"v{place}" for place in range(6)]
    for n_discovery, n_heldout in ((5, 6), (4, 7)):
        with pytest.raises(InvalidInput, match="ask for fewer"):
            make_panels(examples, n_discovery=n_discovery, n_heldout=n_heldout)


def test_too_few_examples_are_refused_with_the_numbers() -> None:
    message = (
        r"4 discovery and 7 held-out examples were asked for, but the task's 10 examples give at most 4 and 6"
    )
    with pytest.raises(InvalidInput, match=message):
        make_panels(plain({"": 10}), n_discovery=4, n_heldout=7)


def test_a_task_without_examples_and_repeated_ids_are_refused() -> None:
    with pytest.raises(InvalidInput, match="the task has no examples"):
        make_panels([], n_discovery=1, n_heldout=1)
    twice = [*plain({"a": 5}), example("a/3"), example("x" * 99), example("x" * 99)]
    with pytest.raises(InvalidInput, match=r"ids are unique, but 'a/3', 'x{57}\.\.\.' occur more than once"):
        make_panels(twice, n_discovery=1, n_heldout=1)


# Panels of one's own.


def test_own_panels_may_not_overlap() -> None:
    a, b, c, d = (
        example(name, group=group) for name, group in (("a", "g"), ("b", "g"), ("c", ""), ("d", ""))
    )
    assert Panels(discovery=(a, c), heldout=(d,)).side("heldout") == (d,)
    assert Panels(discovery=(c,), heldout=(d,)).side("discovery") == (c,)
    with pytest.raises(InvalidInput, match="'c' stand in both discovery and held-out"):
        Panels(discovery=(a, c), heldout=(d, c))
    with pytest.raises(InvalidInput, match=r"examples of one group \('g'\) stand in both"):
        Panels(discovery=(a,), heldout=(b,))
    with pytest.raises(InvalidInput, match="'a' occur more than once"):
        Panels(discovery=(a, replace(a, target="x")), heldout=(d,))
    with pytest.raises(InvalidInput, match="a panel is 'discovery' or 'heldout', not 'test'"):
        Panels(discovery=(a,), heldout=(d,)).side("test")  # type: ignore[arg-type]


@pytest.mark.parametrize("empty", ["discovery", "heldout"])
def test_an_empty_panel_is_refused(empty: str) -> None:
    sides: dict[str, Any] = {"discovery": (example("a"),), "heldout": (example("b"),)} | {empty: ()}
    with pytest.raises(InvalidInput, match="panel is empty"):
        Panels(**sides)


def test_many_overlaps_are_named_briefly() -> None:
    examples = tuple(plain({"a": 50}))
    with pytest.raises(InvalidInput, match="'a/0', 'a/1', 'a/10' and 47 more stand in both"):
        Panels(discovery=examples, heldout=examples)


def test_the_digest_depends_on_ids_order_and_side() -> None:
    a, b, c = plain({"a": 3})
    sides = [((a,), (b, c)), ((a, b), (c,)), ((b, a), (c,)), ((b,), (a, c)), ((a,), (c, b))]
    assert len({panel_digest(Panels(discovery=one, heldout=two)) for one, two in sides}) == 5
