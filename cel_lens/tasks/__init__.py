"""What is asked and what is right: tasks, their examples, and the panels drawn from them."""

from cel_lens.tasks.arithmetic import Arithmetic
from cel_lens.tasks.base import (
    ChoiceScores,
    Choose,
    Example,
    Generate,
    Generation,
    Request,
    Response,
    Task,
    Verdict,
    check_task,
)
from cel_lens.tasks.panels import Panels, make_panels, panel_digest
from cel_lens.tasks.registry import get_task, register_task, task_names

__all__ = [
    "Arithmetic",
    "ChoiceScores",
    "Choose",
    "Example",
    "Generate",
    "Generation",
    "Panels",
    "Request",
    "Response",
    "Task",
    "Verdict",
    "check_task",
    "get_task",
    "make_panels",
    "panel_digest",
    "register_task",
    "task_names",
]
