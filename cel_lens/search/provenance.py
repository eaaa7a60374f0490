"""What a result depends on."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import cel_lens
from cel_lens.evaluation import Evaluator
from cel_lens.evaluation.encoding import text_digest
from cel_lens.heads import INTACT
from cel_lens.models import ModelFacts, weights_digest
from cel_lens.results import Provenance, SearchConfig
from cel_lens.search.holdout import Frozen
from cel_lens.search.run import SearchRun, Side
from cel_lens.tasks import Example, Panels, panel_digest

__all__ = ["describe", "fingerprint", "versions"]

_PACKAGES = ("torch", "transformers", "transformer-lens", "tokenizers", "numpy")


def versions() -> dict[str, str]:
    """Version of Python, of cel_lens and of each package that influences answers."""
    found = {"python": platform.python_version(), "cel-lens": cel_lens.__version__}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "unknown"
    return found


def fingerprint(evaluator: Evaluator, model: Any, config: SearchConfig, panels: Panels) -> Mapping[str, Any]:
    """Everything that must be equal for a run folder to be continued."""
    task, lens = evaluator.task, evaluator.lens
    return {
        "config": asdict(config),
        "weights": weights_digest(model),
        "dtype": str(lens.dtype).removeprefix("torch."),
        "device": lens.device.type,
        "task": task.name,
        "protocol": task.protocol,
        "metric": task.metric,
        "engine": evaluator.engine_name,
        "panels": panel_digest(panels),
        "prompts": evaluator.prompt_digest(panels),
        "answers": _answer_digest(evaluator, panels),
        "versions": versions() | dict(getattr(task, "versions", {})),
    }


def _answer_digest(evaluator: Evaluator, panels: Panels) -> str:
    """SHA-256 over what else decides a verdict: each example's answer and fields, and its whole request."""

    def text(one: Example) -> str:
        request = repr(evaluator.task.request(one))
        # of values that JSON cannot hold only the kind: how they print may differ between processes
        fields = dict(one.fields)
        return json.dumps(
            [one.target, fields, request], skipkeys=True, default=lambda kind: type(kind).__qualname__
        )

    return text_digest([text(one) for one in (*panels.discovery, *panels.heldout)])


def describe(
    run: SearchRun, facts: ModelFacts, origin: Mapping[str, Any], frozen: Frozen, started: str
) -> Provenance:
    """The provenance of a finished search.

    Args:
        run: The search.
        facts: The model.
        origin: Its :func:`fingerprint`.
        frozen: The choice.
        started: Start of the search, ISO 8601.
    """

    def flags(side: Side) -> dict[str, dict[str, int]]:
        return {
            "intact": dict(run.record(side, INTACT).flags),
            "ablated": dict(run.record(side, frozen.heads).flags),
        }

    matrix = run.matrix("discovery")
    inactive = {
        head
        for heads in matrix.conditions
        if len(heads) == 1
        for head in run.record("discovery", heads).inactive
    }
    return Provenance(
        model=facts.name,
        backend=facts.backend,
        n_layers=facts.n_layers,
        n_heads=facts.n_heads,
        n_key_value_heads=facts.n_key_value_heads,
        dtype=origin["dtype"],
        device=origin["device"],
        weights_digest=origin["weights"],
        prepends_bos=facts.prepends_bos,
        task=origin["task"],
        protocol=origin["protocol"],
        metric=origin["metric"],
        engine=origin["engine"],
        prompt_digest=origin["prompts"],
        panel_digest=origin["panels"],
        freeze_digest=frozen.digest,
        started=started,
        seconds=dict(run.seconds),
        versions=dict(origin["versions"]),
        discovery_flags=flags("discovery"),
        heldout_flags=flags("heldout"),
        inactive=tuple(str(head) for head in sorted(inactive)),
    )
