"""lm-evaluation-harness itself, on local rows and a local model: the oracle for scores and verdicts."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple


class Scored(NamedTuple):
    """What the harness found for one row."""

    log_likelihoods: tuple[float, ...]
    metrics: Mapping[str, float]
    text: str = ""


@functools.cache
def manager() -> Any:
    """The index of its tasks."""
    from lm_eval.tasks import TaskManager

    return TaskManager()


def harness_object(
    name: str, rows: Sequence[Mapping[str, Any]], *, functions: bool = True, **changes: Any
) -> Any:
    """One of its tasks with these rows in every split; its own functions can be left out."""
    import datasets
    from lm_eval.api.task import ConfigurableTask
    from lm_eval.tasks._yaml_loader import load_yaml

    config = dict(load_yaml(manager().task_index[name].yaml_path, resolve_func=functions))
    for key in ("tag", "group", "task_list"):
        config.pop(key, None)
    table = datasets.Dataset.from_list([dict(row) for row in rows])
    keys = ("training_split", "validation_split", "test_split", "fewshot_split")
    splits = {config[key]: table for key in keys if config.get(key)}
    own = {"custom_dataset": lambda **_: splits, "dataset_kwargs": None, "num_fewshot": 0}
    return ConfigurableTask(config={**config, **own, **changes})


def run_harness(
    name: str, rows: Sequence[Mapping[str, Any]], model: Any, tokenizer: Any, **changes: Any
) -> list[Scored]:
    """Let the harness build its requests, ask the model and judge."""
    import torch
    from lm_eval.models.huggingface import HFLM

    task = harness_object(name, rows, **changes)
    task.build_all_requests()
    lm = HFLM(pretrained=model, tokenizer=tokenizer, batch_size=4, softmax_dtype=torch.float32, device="cpu")
    kind = "generate_until" if task.OUTPUT_TYPE == "generate_until" else "loglikelihood"
    for instance, answer in zip(task.instances, getattr(lm, kind)(task.instances), strict=True):
        instance.resps = [answer]
    task.apply_filters()
    by_row: dict[int, list[Any]] = {}
    for instance in task.instances:
        by_row.setdefault(instance.doc_id, []).append(instance)
    first = task._filters[0].name
    found = []
    for _, instances in sorted(by_row.items()):
        results = [one.filtered_resps[first] for one in instances]
        metrics = task.process_results(instances[0].doc, results)
        if kind == "generate_until":
            found.append(Scored((), metrics, instances[0].resps[0]))
        else:
            found.append(Scored(tuple(float(one[0]) for one in results), metrics))
    return found
