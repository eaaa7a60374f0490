"""What a result says about itself."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from cel_lens.results import OPTIMISTIC, BeneficialHeads
from tests.builders import build_provenance, build_result


def test_the_headline_gives_the_held_out_figures() -> None:
    headline = build_result(heldout=(12, 2)).headline
    assert headline.startswith("Removing L0H1+L1H0 raises held-out accuracy of toy-model on arithmetic")
    assert "50.0% to 75.0% on 40 examples (+25.0 points, 95% interval +" in headline
    assert "exact McNemar p = 0.013" in headline  # 2 (1 + 14 + 91) / 2^14


@pytest.mark.parametrize(
    ("heldout", "verb"), [((12, 2), "raises"), ((2, 12), "lowers"), ((3, 2), "does not change")]
)
def test_the_verb_of_the_headline_follows_the_interval(heldout: tuple[int, int], verb: str) -> None:
    result = build_result(heldout=heldout)
    assert f"L1H0 {verb} held-out accuracy" in result.headline
    assert (verb == "does not change") == ("beyond chance" in result.headline)
    assert (verb == "raises") == (result.heldout.ci_low > 0)
    assert (verb == "lowers") == (result.heldout.ci_high < 0)


def test_finding_nothing_is_a_result_in_words() -> None:
    result = build_result({"L0H0": (0, 3)})
    assert not result.found
    assert result.headline == (
        "No beneficial head set was found in toy-model on arithmetic (completion-6shot): none of 6 heads and "
        "6 subsets raised accuracy on 20 discovery examples."
    )
    assert result.heldout.gain == 0.0


def test_the_frame_has_one_row_for_each_screened_head() -> None:
    frame = build_result().to_frame()
    assert list(frame.columns) == [
        "rank",
        "head",
        "layer",
        "index",
        "n",
        "measured",
        "rescued",
        "damaged",
        "gain_points",
        "at_most_points",
        "in_pool",
        "chosen",
    ]
    assert frame.iloc[1].to_dict() == {
        "rank": 2,
        "head": "L1H0",
        "layer": 1,
        "index": 0,
        "n": 20,
        "measured": 20,
        "rescued": 2,
        "damaged": 1,
        "gain_points": 5.0,
        "at_most_points": 5.0,
        "in_pool": True,
        "chosen": True,
    }
    assert frame["head"][frame["in_pool"]].tolist() == ["L0H1", "L1H0", "L0H0"]
    assert frame["head"][frame["chosen"]].tolist() == ["L0H1", "L1H0"]
    assert frame["gain_points"].is_monotonic_decreasing


def notebook(result: BeneficialHeads) -> str:
    return result._repr_html_()


def test_the_notebook_view_escapes_what_it_did_not_write() -> None:
    hostile = "<script>alert(1)</script>&\"'"
    result = replace(
        build_result(), provenance=build_provenance(model=hostile, task=hostile, protocol=hostile)
    )
    shown = notebook(result)
    assert set(re.findall(r"</?(\w+)", shown)) == {
        "p", "b", "table", "caption", "thead", "tbody", "tr", "th", "td"
    }  # fmt: skip
    assert shown.count("&lt;script&gt;alert(1)&lt;/script&gt;&amp;") == 3


def test_the_notebook_view_calls_every_discovery_table_optimistic() -> None:
    shown = notebook(build_result())
    tables = re.findall(r"<table>.*?</table>", shown)
    assert len(tables) == 2
    assert all(OPTIMISTIC in table for table in tables)
    rows = re.findall(r"<tr>.*?</tr>", tables[0])
    assert [OPTIMISTIC in row for row in rows if "<td>" in row] == [False, True]
    assert ">heldout<" in rows[1]
    assert ">+10.0<" in rows[1]
