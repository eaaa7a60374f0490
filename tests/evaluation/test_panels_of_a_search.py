"""Measuring heads again never meets the examples they were chosen on."""

from __future__ import annotations

import pytest

from cel_lens.errors import InvalidInput
from cel_lens.evaluation.evaluator import _examples
from cel_lens.results import SearchConfig
from cel_lens.tasks import get_task, make_panels

TASK = get_task("arithmetic")
CONFIG = SearchConfig()


@pytest.mark.parametrize("n", [1, 50, 200])
def test_fewer_held_out_examples_are_the_first_of_the_searchs_panel(n: int) -> None:
    panels = make_panels(TASK.examples(), n_discovery=CONFIG.n_discovery, n_heldout=CONFIG.n_heldout)
    assert tuple(_examples(TASK, "heldout", n, CONFIG)) == panels.heldout[:n]


def test_more_than_the_panel_holds_is_another_draw_and_refused() -> None:
    with pytest.raises(InvalidInput, match=r"n=400 .* has 200; another size is another draw"):
        _examples(TASK, "heldout", 400, CONFIG)
