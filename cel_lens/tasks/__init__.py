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
    judge_all,
    prepare_task,
)
from cel_lens.tasks.boolq import BoolQ
from cel_lens.tasks.choices import ChoiceMetric, Preference, prefer
from cel_lens.tasks.from_rows import Rows
from cel_lens.tasks.hellaswag import HellaSwag
from cel_lens.tasks.mbpp import MBPP
from cel_lens.tasks.panels import Panels, make_panels, panel_digest
from cel_lens.tasks.registry import get_task, register_task, task_names

__all__ = [
    "MBPP",
    "Arithmetic",
    "BoolQ",
    "ChoiceMetric",
    "ChoiceScores",
    "Choose",
    "Example",
    "Generate",
    "Generation",
    "HellaSwag",
    "Panels",
    "Preference",
    "Request",
    "Response",
    "Rows",
    "Task",
    "Verdict",
    "check_task",
    "get_task",
    "judge_all",
    "make_panels",
    "panel_digest",
    "prefer",
    "prepare_task",
    "register_task",
    "task_names",
]
