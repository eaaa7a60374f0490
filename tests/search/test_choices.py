"""Searches whose verdicts come from log-likelihoods."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cel_lens.results import BeneficialHeads, SearchConfig
from cel_lens.search import find_beneficial_heads
from tests.evaluation.toy_tasks import Choosing
from tests.models.tiny import tiny_model

TASK = Choosing(
    tuple((f"the {one} and the {one * 7 % 31} is", (" 1 2", " 3 4", " 5 6", " 7 8")) for one in range(30))
)


def search(family: str, engine: Any, folder: Path, **options: Any) -> BeneficialHeads:
    config = SearchConfig(
        n_discovery=18, n_heldout=12, pool_size=4, max_heads=2, engine=engine, batch_size=5, **options
    )
    return find_beneficial_heads(tiny_model(family), TASK, config, run_dir=folder, progress="silent")


@pytest.mark.parametrize("family", ["llama", "qwen2", "gpt2", "gpt_neox"])
def test_both_engines_find_the_same(family: str, tmp_path: Path) -> None:
    fast = search(family, "sweep", tmp_path / "sweep")
    slow = search(family, "reference", tmp_path / "reference")
    assert fast.discovery_outcomes == slow.discovery_outcomes
    assert (fast.screening, fast.subsets, fast.heads) == (slow.screening, slow.subsets, slow.heads)
    assert fast.heldout == slow.heldout
    assert len({one.gain for one in fast.screening}) > 1, (
        "no head changes anything, so equality would mean nothing"
    )


@pytest.mark.parametrize("screening", ["exhaustive", "eliminate"])
def test_an_interrupted_search_goes_on_to_the_same_journal(screening: str, tmp_path: Path) -> None:
    whole = search("llama", "sweep", tmp_path / "whole", screening=screening)
    lines = (tmp_path / "whole" / "journal.jsonl").read_bytes().splitlines(keepends=True)
    for kept in (1, 2, len(lines) // 2, len(lines) - 2):
        folder = tmp_path / f"kept-{kept}"
        folder.mkdir()
        (folder / "journal.jsonl").write_bytes(b"".join(lines[:kept]))
        again = search("llama", "sweep", folder, screening=screening)
        assert (folder / "journal.jsonl").read_bytes() == b"".join(lines)
        assert again.discovery_outcomes == whole.discovery_outcomes
        assert again.heldout == whole.heldout
