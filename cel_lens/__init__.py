"""Find the attention heads whose removal makes a language model better at a task."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from cel_lens.errors import (
    CelLensError,
    EvaluationError,
    InvalidInput,
    ModelLoadError,
    RunFolderError,
    UnsupportedModel,
)
from cel_lens.heads import INTACT, Head, HeadSet

if TYPE_CHECKING:
    from cel_lens.analysis import HeadRole, HeadRoles, find_critical_heads, head_roles
    from cel_lens.evaluation import evaluate_heads
    from cel_lens.export import export_ablated
    from cel_lens.models import ParityReport, load_model, parity_report, zero_ablation
    from cel_lens.results import BeneficialHeads, GainEstimate, Outcomes, SearchConfig
    from cel_lens.search import find_beneficial_heads
    from cel_lens.tasks import (
        ChoiceScores,
        Choose,
        Example,
        Generate,
        Generation,
        Panels,
        Task,
        Verdict,
        get_task,
        make_panels,
        register_task,
    )
    from cel_lens.viz import write_report

__version__ = "0.1.0"

__all__ = [
    "INTACT",
    "BeneficialHeads",
    "CelLensError",
    "ChoiceScores",
    "Choose",
    "EvaluationError",
    "Example",
    "GainEstimate",
    "Generate",
    "Generation",
    "Head",
    "HeadRole",
    "HeadRoles",
    "HeadSet",
    "InvalidInput",
    "ModelLoadError",
    "Outcomes",
    "Panels",
    "ParityReport",
    "RunFolderError",
    "SearchConfig",
    "Task",
    "UnsupportedModel",
    "Verdict",
    "evaluate_heads",
    "export_ablated",
    "find_beneficial_heads",
    "find_critical_heads",
    "get_task",
    "head_roles",
    "load_model",
    "make_panels",
    "parity_report",
    "register_task",
    "write_report",
    "zero_ablation",
]

_HOMES = {
    "cel_lens.analysis": ("HeadRole", "HeadRoles", "find_critical_heads", "head_roles"),
    "cel_lens.evaluation": ("evaluate_heads",),
    "cel_lens.export": ("export_ablated",),
    "cel_lens.models": ("ParityReport", "load_model", "parity_report", "zero_ablation"),
    "cel_lens.results": ("BeneficialHeads", "GainEstimate", "Outcomes", "SearchConfig"),
    "cel_lens.search": ("find_beneficial_heads",),
    "cel_lens.tasks": (
        "ChoiceScores",
        "Choose",
        "Example",
        "Generate",
        "Generation",
        "Panels",
        "Task",
        "Verdict",
        "get_task",
        "make_panels",
        "register_task",
    ),
    "cel_lens.viz": ("write_report",),
}
"""Where names come from that are imported when they are first used, so that ``import cel_lens`` is quick."""


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(home), name)
    raise AttributeError(f"module 'cel_lens' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
