"""SmolLM2 without heads, written out: plain transformers and lm-evaluation-harness see what we measured."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
import torch

from cel_lens import SearchConfig, evaluate_heads, export_ablated, get_task, load_model, make_panels
from cel_lens.models import weights_digest
from cel_lens.models.quiet import quiet
from cel_lens.results import Outcomes
from cel_lens.tasks import Generation
from tests.tasks.rows import real, write

pytestmark = pytest.mark.slow

HEADS = "L12H2+L15H0+L19H4"


@pytest.fixture(scope="module")
def model() -> Any:
    return load_model("smollm2-135m-instruct", device="cpu")


@pytest.fixture(scope="module")
def folder(model: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export_ablated(model, HEADS, tmp_path_factory.mktemp("export") / "without-heads")


@pytest.fixture(scope="module")
def plain(folder: Path) -> Any:
    """Model and tokenizer, loaded by transformers alone."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    with quiet():
        return AutoModelForCausalLM.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)


def answers(outcomes: Outcomes) -> list[Any]:
    return [(one.answer, one.text, one.token_ids) for one in outcomes.details]


def test_plain_transformers_gives_our_verdicts_on_heldout(model: Any, plain: Any) -> None:
    task: Any = get_task("arithmetic")
    ours = evaluate_heads(model, task, HEADS, panel="heldout", n=24)
    config = SearchConfig()
    panel = make_panels(task.examples(), n_discovery=config.n_discovery, n_heldout=config.n_heldout).heldout[
        :24
    ]
    intact = evaluate_heads(model, task, "", panel="heldout", n=24)
    assert answers(ours) != answers(intact), "the heads matter"
    assert 0 < ours.n_correct < ours.n, "both verdicts occur"
    theirs, tokenizer = plain
    for example, correct, detail in zip(panel, ours.correct, ours.details, strict=True):
        request = task.request(example)
        asked = tokenizer(request.prompt, return_tensors="pt")
        with quiet(), torch.inference_mode():
            written = theirs.generate(**asked, do_sample=False, max_new_tokens=request.max_new_tokens)
        new = written[0, asked["input_ids"].shape[1] :].tolist()
        assert tuple(new[: len(detail.token_ids)]) == detail.token_ids
        text = tokenizer.decode(new, skip_special_tokens=True)
        for marker in request.stop:
            text = text.partition(marker)[0]
        assert task.judge(example, Generation(text=text)).correct == correct


def test_an_export_measures_here_what_the_ablation_did(model: Any, folder: Path) -> None:
    exported = load_model(folder, device="cpu")
    assert weights_digest(exported) != weights_digest(model)
    ours = evaluate_heads(model, "arithmetic", HEADS, panel="heldout", n=24)
    again = evaluate_heads(exported, "arithmetic", "", panel="heldout", n=24)
    assert (again.correct, answers(again)) == (ours.correct, answers(ours))


@pytest.mark.filterwarnings("ignore")  # the harness and the packages it imports give warnings of their own
def test_the_harness_reproduces_our_accuracy_on_heldout(model: Any, plain: Any, tmp_path: Path) -> None:
    pytest.importorskip("lm_eval", reason="lm-evaluation-harness is an optional extra (cel-lens[lm-eval])")
    from tests.tasks.harness import run_harness

    file = write(tmp_path / "rows.jsonl", sums())
    task = get_task("arithmetic", data=file, style="lm-eval")
    config = SearchConfig(n_discovery=20, n_heldout=120)
    ours = evaluate_heads(model, task, HEADS, panel="heldout", config=config)
    panel = make_panels(task.examples(), n_discovery=20, n_heldout=120).heldout
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    chosen = [rows[int(one.id.rpartition("/")[2])] for one in panel]
    scored = run_harness("arithmetic_2da", chosen, *plain)
    theirs = [one.metrics["acc"] == 1.0 for one in scored]
    assert theirs == list(ours.correct)
    assert sum(theirs) / len(theirs) == ours.accuracy
    assert 0 < ours.n_correct < ours.n, "both verdicts occur"


def sums() -> list[dict[str, str]]:
    """Published rows where the machine has them, else sums in their form; many easy ones, so that some are right."""
    try:
        lines = real("arithmetic_2da").read_text(encoding="utf-8").splitlines()
        return [json.loads(line) for line in lines[:400]]
    except (pytest.skip.Exception, OSError):
        draw = random.Random(0)
        pairs = [(draw.randrange(100), draw.randrange(10)) for _ in range(300)]
        return [
            {"context": f"Question: What is {a} plus {b}?\nAnswer:", "completion": f" {a + b}"}
            for a, b in dict.fromkeys(pairs)
        ]
