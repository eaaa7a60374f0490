"""What each plot shows, and that the drawing shows exactly that."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cel_lens.heads import Head
from cel_lens.results import OPTIMISTIC
from cel_lens.viz import (
    answer_flags,
    best_subsets,
    draw_gain_map,
    draw_panel_gains,
    draw_subsets,
    gain_map,
    panel_gains,
    report_content,
)
from cel_lens.viz.wording import layer_ranges, p_value_text, percent, plural, points, points_range
from tests.builders import build_result


def drawn(figure: Any) -> dict[str, Any]:
    """The figure as the page receives it."""
    return json.loads(figure.to_json())


def trace(figure: dict[str, Any], name: str) -> dict[str, Any]:
    return next(one for one in figure["data"] if one.get("name") == name)


# the heat map


def test_the_map_puts_every_head_at_its_place() -> None:
    info = gain_map(build_result())
    assert (info.n_layers, info.n_heads) == (2, 3)
    assert [[cell and round(100 * cell.gain) for cell in row] for row in info.cells] == [
        [0, 15, 0],
        [5, 0, -20],
    ]
    assert all(
        cell.head == Head(row, column)
        for row, line in enumerate(info.cells)
        for column, cell in enumerate(line)
        if cell
    )
    assert info.chosen == (Head(0, 1), Head(1, 0))
    assert info.pool == (Head(0, 0),)
    assert info.coverage == "All 6 heads of the model were screened."


def test_the_map_shows_what_was_not_screened() -> None:
    info = gain_map(build_result({"L1H1": (2, 0)}, n_layers=6, layers=(1, 2)))
    assert info.unscreened_layers == (0, 3, 4, 5)
    assert len(info.unscreened) == 12
    assert info.cells[0] == (None, None, None)
    assert info.coverage == "Only 6 of 18 heads were screened; layers 0, 3–5 were not looked at."
    figure = drawn(draw_gain_map(info))
    assert figure["data"][0]["z"][0] == [None, None, None]
    hatched = trace(figure, "not screened")
    assert len(hatched["y"]) == 12
    assert set(hatched["y"]) == {0, 3, 4, 5}
    assert "L0H0" in hatched["text"][0]


def test_the_colours_of_the_map_are_centred_at_zero_and_reach_the_best_gain() -> None:
    for effects in ({"L0H0": (5, 0)}, {"L0H0": (0, 5)}, {}):
        info = gain_map(build_result(effects))
        axis = drawn(draw_gain_map(info))["layout"]["coloraxis"]
        assert axis["cmin"] == -axis["cmax"] < 0
        assert axis["cmax"] >= 100 * max(cell.gain for cell in info.screened)


def test_one_head_that_everything_needs_does_not_pale_the_others() -> None:
    info = gain_map(build_result({"L0H0": (0, 10), "L7H3": (1, 0)}, n_layers=8, n_heads=8))
    assert info.limit == 0.05
    assert info.n_beyond == 1


def test_the_drawn_map_is_in_points_and_calls_every_cell_optimistic() -> None:
    figure = drawn(draw_gain_map(gain_map(build_result(inactive=("L0H2",)))))
    cells = figure["data"][0]
    assert [[round(gain) for gain in row] for row in cells["z"]] == [[0, 15, 0], [5, 0, -20]]
    assert all(OPTIMISTIC in text for row in cells["text"] for text in row)
    assert cells["text"][1][2].startswith(
        "<b>L1H2</b><br>gain −20.0 percentage points<br>0 rescued, 4 damaged of 20"
    )
    assert "chosen" in cells["text"][0][1]
    assert "in the pool" in cells["text"][0][0]
    assert "output zero everywhere" in cells["text"][0][2]
    chosen = trace(figure, "chosen")
    assert list(zip(chosen["y"], chosen["x"], strict=True)) == [(0, 1), (1, 0)]


def test_the_first_layer_is_on_top() -> None:
    bottom, top = drawn(draw_gain_map(gain_map(build_result())))["layout"]["yaxis"]["range"]
    assert bottom > top


@pytest.mark.parametrize(("n_layers", "n_heads"), [(1, 1), (2, 3), (30, 9), (36, 24), (80, 64)])
def test_the_map_of_any_model_fits_on_a_page(n_layers: int, n_heads: int) -> None:
    figure = drawn(
        draw_gain_map(
            gain_map(build_result({}, n_layers=n_layers, n_heads=n_heads, pool_size=1, max_heads=1))
        )
    )
    height = figure["layout"]["height"]
    assert 250 <= height <= 920
    assert (height - 176) / n_layers >= 9
    assert n_heads / figure["layout"]["xaxis"]["dtick"] <= 16


def test_the_map_in_words_counts_both_directions() -> None:
    summary = gain_map(build_result()).summary
    assert "raised accuracy for 2 heads, lowered it for 1 and left it equal for 3" in summary
    assert f"the best is L0H1 with +15.0 percentage points ({OPTIMISTIC})" in summary


# both panels


def test_held_out_comes_first_and_only_discovery_is_optimistic() -> None:
    result = build_result(heldout=(12, 2))
    info = panel_gains(result)
    assert [row.estimate for row in info.rows] == [result.heldout, result.discovery]
    assert [row.note for row in info.rows] == ["", OPTIMISTIC]
    assert info.summary.count(OPTIMISTIC) == 1


def test_the_drawn_interval_ends_where_the_interval_ends() -> None:
    info = panel_gains(build_result(heldout=(12, 2)))
    figure = drawn(draw_panel_gains(info))
    for row, point in zip(info.rows, figure["data"], strict=True):
        one = row.estimate
        assert point["x"] == [pytest.approx(100 * one.gain)]
        assert point["x"][0] + point["error_x"]["array"][0] == pytest.approx(100 * one.ci_high)
        assert point["x"][0] - point["error_x"]["arrayminus"][0] == pytest.approx(100 * one.ci_low)
    left, right = figure["layout"]["xaxis"]["range"]
    assert left < min(0, *(100 * row.estimate.ci_low for row in info.rows))
    assert right > max(100 * row.estimate.ci_high for row in info.rows)
    labels = [note["text"] for note in figure["layout"]["annotations"]]
    assert [OPTIMISTIC in label for label in labels] == [False, True]


def test_a_loss_on_held_out_is_not_drawn_in_the_colour_of_a_gain() -> None:
    better, worse = (
        drawn(draw_panel_gains(panel_gains(build_result(heldout=counts))))["data"][0]["marker"]["color"]
        for counts in ((9, 1), (1, 9))
    )
    assert better != worse


# head sets


def test_the_best_sets_come_in_their_order_with_the_chosen_one_marked() -> None:
    info = best_subsets(build_result())
    assert [str(row.heads) for row in info.rows] == [
        "L0H1+L1H0",
        "L0H1",
        "L0H0+L0H1",
        "L1H0",
        "L0H0+L1H0",
        "L0H0",
    ]
    assert [row.rank for row in info.rows] == [1, 2, 3, 4, 5, 6]
    assert [row.chosen for row in info.rows] == [True] + 5 * [False]
    assert [row.finalist for row in info.rows] == 3 * [True] + 3 * [False]
    assert (info.n_tried, info.n_examples) == (6, 20)


def test_fewer_sets_can_be_shown_than_were_tried() -> None:
    info = best_subsets(build_result(), most=2)
    assert (len(info.rows), info.n_tried) == (2, 6)


def test_the_bars_are_the_counts() -> None:
    figure = drawn(draw_subsets(best_subsets(build_result())))
    assert trace(figure, "rescued")["x"] == [5, 3, 3, 2, 2, 0]
    assert trace(figure, "damaged")["x"] == [-1, 0, 0, -1, -1, 0]
    assert all(OPTIMISTIC in text for text in trace(figure, "rescued")["hovertext"])
    assert OPTIMISTIC in figure["layout"]["annotations"][0]["text"]
    left, right = figure["layout"]["xaxis"]["range"]
    assert left < -1
    assert right > 5


# what the answers looked like


def test_flags_are_compared_on_each_panel() -> None:
    held, found = answer_flags(build_result())
    assert [(row.flag, row.intact, row.ablated, row.change) for row in held.rows] == [
        ("capped", 1, 1, 0),
        ("no-answer", 5, 2, -3),
    ]
    assert [(row.flag, row.intact, row.ablated) for row in found.rows] == [("no-answer", 2, 1)]
    assert found.estimate.split == "discovery"


@pytest.mark.parametrize(
    ("flags", "heldout", "words"),
    [
        (
            ({"no-answer": 5}, {"no-answer": 2}),
            (6, 2),
            "Up to 3 of the 6 rescued examples may have changed in format",
        ),
        (({"no-answer": 9}, {}), (6, 2), "9 more answers could be read. Up to 6 of the 6 rescued"),
        (({"no-answer": 1}, {}), (0, 2), "1 more answer could be read. None of them became right."),
        (({}, {"no-answer": 4}), (6, 2), "4 fewer answers could be read"),
        (({"no-answer": 4}, {"no-answer": 4}), (6, 2), "As many answers could be read"),
        (({}, {}), (6, 2), "No answer carried a flag"),
    ],
)
def test_a_gain_of_format_is_named_as_one(flags, heldout, words: str) -> None:
    intact, ablated = flags
    held, _ = answer_flags(
        build_result(heldout=heldout, heldout_flags={"intact": intact, "ablated": ablated})
    )
    assert words in held.verdict


def test_counts_that_were_not_recorded_are_not_taken_for_zero() -> None:
    held, _ = answer_flags(build_result(heldout_flags={}))
    assert held.verdict == "This result holds no counts of what the answers looked like."


def test_a_flag_of_a_users_own_task_is_shown_too() -> None:
    held, _ = answer_flags(build_result(heldout_flags={"intact": {"refused": 2}, "ablated": {"refused": 0}}))
    assert [(row.flag, row.meaning, row.change) for row in held.rows] == [("refused", "", -2)]


# everything together


def test_the_pool_keeps_its_ranks_from_the_screening() -> None:
    content = report_content(build_result())
    assert [(row.rank, row.head, row.chosen) for row in content.pool] == [
        (1, "L0H1", True),
        (2, "L1H0", True),
        (3, "L0H0", False),
    ]


def test_nothing_found_has_no_interval_to_draw() -> None:
    assert report_content(build_result({})).panels is None


def test_the_shares_of_the_stages_add_up() -> None:
    facts = report_content(build_result(seconds={"screen": 6.0, "joint": 3.0, "heldout": 1.0})).seconds
    assert [fact.value for fact in facts] == ["6.0 s (60.0%)", "3.0 s (30.0%)", "1.0 s (10.0%)", "10.0 s"]


# figures as text


@given(st.floats(-1, 1))
def test_points_read_back_and_zero_has_no_sign(gain: float) -> None:
    text = points(gain)
    assert float(text.replace("−", "-")) == pytest.approx(100 * gain, abs=0.0501)
    assert "-" not in text
    assert text == "0.0" or text[0] in "+−"
    assert text not in ("+0.0", "−0.0")


def test_text_of_figures() -> None:
    assert points_range(0.004, -0.089) == "+0.4 to −8.9"
    assert percent(0.4204) == "42.0%"
    assert [p_value_text(p) for p in (1.0, 0.0271, 0.00005)] == ["1", "0.027", "<\u00a00.0001"]
    assert [plural(count, "head") for count in (0, 1, 1024)] == ["0 heads", "1 head", "1,024 heads"]


@pytest.mark.parametrize(
    ("layers", "text"),
    [((), ""), ((3,), "3"), ((5, 0, 1, 2), "0–2, 5"), (range(30), "0–29"), ((0, 2, 4), "0, 2, 4")],
)
def test_layers_in_short(layers, text: str) -> None:
    assert layer_ranges(layers) == text
