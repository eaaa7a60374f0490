"""Heads and head sets: one way to write each, one order, and refusals that say what is possible."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cel_lens.errors import InvalidInput
from cel_lens.heads import INTACT, Head, HeadSet, all_heads, parse_layers

heads = st.builds(Head, st.integers(0, 200), st.integers(0, 200))
head_lists = st.lists(heads, unique=True, max_size=8)


@given(heads)
def test_a_head_reads_back_from_its_text(head: Head) -> None:
    assert Head.parse(str(head)) == head
    assert Head.parse(f"  {str(head).lower()}\n") == head


@given(head_lists)
def test_a_head_set_reads_back_from_its_text_and_its_label(chosen: list[Head]) -> None:
    made = HeadSet.of(chosen)
    assert HeadSet.of(str(made)) == made
    assert HeadSet.of(made.label) == made


@given(head_lists, st.randoms(use_true_random=False))
def test_the_order_in_which_heads_are_named_does_not_matter(chosen: list[Head], random) -> None:
    shuffled = list(chosen)
    random.shuffle(shuffled)
    assert HeadSet.of(shuffled) == HeadSet.of(chosen)
    assert hash(HeadSet.of(shuffled)) == hash(HeadSet.of(chosen))
    assert str(HeadSet.of("+".join(map(str, shuffled)))) == str(HeadSet.of(chosen))


@given(head_lists)
def test_every_way_to_name_heads_gives_the_same_set(chosen: list[Head]) -> None:
    made = HeadSet.of(chosen)
    assert HeadSet.of(str(head) for head in chosen) == made
    assert HeadSet.of((head.layer, head.index) for head in chosen) == made
    assert HeadSet.of(made) is made


@given(heads, heads)
def test_heads_are_ordered_by_layer_then_index(one: Head, other: Head) -> None:
    assert (one < other) == ((one.layer, one.index) < (other.layer, other.index))


def test_numbers_are_ordered_as_numbers_not_as_text() -> None:
    assert str(HeadSet.of("L10H2+L9H11+L9H2")) == "L9H2+L9H11+L10H2"


def test_a_set_knows_its_members() -> None:
    made = HeadSet.of("L3H7+L9H6")
    assert Head(3, 7) in made
    assert Head(7, 3) not in made
    assert (3, 7) not in made
    assert list(made) == [Head(3, 7), Head(9, 6)]
    assert len(made) == 2


@given(head_lists)
def test_by_layer_loses_no_head(chosen: list[Head]) -> None:
    layers = HeadSet.of(chosen).by_layer()
    assert list(layers) == sorted(layers)
    assert HeadSet.of((layer, index) for layer, indices in layers.items() for index in indices) == HeadSet.of(
        chosen
    )


@pytest.mark.parametrize("text", ["", "  ", "intact", " intact "])
def test_the_empty_set_is_the_intact_model(text: str) -> None:
    assert HeadSet.of(text) == INTACT
    assert INTACT.label == "intact"
    assert str(INTACT) == ""


@pytest.mark.parametrize(
    "text",
    ["", "L3", "H7", "3.7", "L3H", "L-1H2", "L3H7H8", "L3 H7", "L٣H٧", "L3H7+L9H6", "L" + "9" * 5000 + "H0"],
)
def test_other_text_is_not_a_head(text: str) -> None:
    with pytest.raises(InvalidInput, match="is not a head"):
        Head.parse(text)


@pytest.mark.parametrize("text", ["L3H7+", "+L3H7", "L3H7,L9H6", "L3H7++L9H6", "none"])
def test_other_text_is_not_a_head_set(text: str) -> None:
    with pytest.raises(InvalidInput, match="is not a head"):
        HeadSet.of(text)


@pytest.mark.parametrize("pair", [(3,), (3, 7, 1), 5])
def test_something_else_than_a_pair_is_not_a_head(pair) -> None:
    with pytest.raises(InvalidInput, match="is not a head"):
        HeadSet.of([pair])


@pytest.mark.parametrize("value", [-1, True, 1.0, "1", None])
def test_coordinates_are_whole_numbers_from_zero(value) -> None:
    with pytest.raises(InvalidInput, match="layer is a whole number from 0"):
        Head(value, 0)
    with pytest.raises(InvalidInput, match="index is a whole number from 0"):
        Head(0, value)


def test_a_head_named_twice_is_refused() -> None:
    with pytest.raises(InvalidInput, match="named twice"):
        HeadSet.of("L3H7+l3h7")


@pytest.mark.parametrize("wrong", [(Head(1, 0), Head(0, 0)), (Head(0, 0), Head(0, 0))])
def test_a_set_made_directly_is_sorted_and_unique(wrong: tuple[Head, ...]) -> None:
    with pytest.raises(InvalidInput, match=r"HeadSet\.of\(\)"):
        HeadSet(wrong)


def test_a_set_made_directly_holds_heads() -> None:
    with pytest.raises(InvalidInput, match="holds Head values"):
        HeadSet(("L0H0",))  # type: ignore[arg-type]


def test_a_head_outside_the_model_is_refused_with_the_range() -> None:
    inside = HeadSet.of("L0H0+L29H8")
    assert inside.check_within(30, 9) is inside
    for outside in ("L30H0", "L0H9"):
        with pytest.raises(InvalidInput, match=rf"{outside} does not exist .* \(L0H0 to L29H8\)"):
            HeadSet.of(outside).check_within(30, 9)


def test_all_heads_are_every_pair_once_in_order() -> None:
    assert [str(head) for head in all_heads(2, 3)] == ["L0H0", "L0H1", "L0H2", "L1H0", "L1H1", "L1H2"]
    assert [str(head) for head in all_heads(4, 2, layers=(3, 1, 3))] == ["L1H0", "L1H1", "L3H0", "L3H1"]


@pytest.mark.parametrize("layer", [-1, 2])
def test_a_layer_outside_the_model_is_refused(layer: int) -> None:
    with pytest.raises(InvalidInput, match=f"layer {layer} does not exist .* layers 0-1"):
        all_heads(2, 3, layers=(0, layer))


@given(st.sets(st.integers(0, 60), min_size=1))
def test_layers_read_back_however_they_are_written(layers: set[int]) -> None:
    one_by_one = ",".join(map(str, layers))
    as_ranges = " , ".join(f"{layer} - {layer}" for layer in layers)
    assert parse_layers(one_by_one) == parse_layers(as_ranges) == tuple(sorted(layers))


def test_a_range_holds_both_ends() -> None:
    assert parse_layers("0-2,7,10-12") == (0, 1, 2, 7, 10, 11, 12)
    assert parse_layers("3-5,4-6") == (3, 4, 5, 6)


@pytest.mark.parametrize("text", ["", "a", "5-3", "1,", "1--2", "-1", "0-", "٣", "0-99999999999"])
def test_other_text_is_not_a_selection_of_layers(text: str) -> None:
    with pytest.raises(InvalidInput, match="is not a selection of layers"):
        parse_layers(text)
