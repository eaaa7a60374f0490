"""Any task of lm-evaluation-harness by name: ``lm-eval:arc_easy``.

The harness (an optional extra, ``pip install "cel-lens[lm-eval]"``) makes the prompts, filters what was generated
and judges; the model is run here. Multiple choice (``acc``, ``acc_norm``), log-likelihood (``acc``) and greedy
``generate_until`` with ``exact_match`` can be used; a task that needs anything else is refused by name.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path
from typing import Any

from cel_lens.errors import EvaluationError, InvalidInput
from cel_lens.tasks.base import (
    ChoiceScores,
    Choose,
    Example,
    Generate,
    Generation,
    Request,
    Response,
    Verdict,
)
from cel_lens.tasks.choices import prefer
from cel_lens.tasks.rows import read_rows
from cel_lens.tasks.sources import as_data_set

__all__ = ["PREFIX", "HarnessTask", "harness_task"]

PREFIX = "lm-eval:"

_METRICS = {
    "multiple_choice": ("acc", "acc_norm"),
    "loglikelihood": ("acc",),
    "generate_until": ("exact_match",),
}
_SPLITS = ("training_split", "validation_split", "test_split", "fewshot_split")
_SEED = 1234  # the harness's own default for drawing solved examples


@dataclass(frozen=True, kw_only=True, eq=False)
class HarnessTask:
    """A task of the harness; :func:`harness_task` makes one.

    Attributes:
        name: ``lm-eval:`` and its name there.
        protocol: Version, number of solved examples, and the filter of generated text.
        metric: Its metric.
    """

    name: str
    protocol: str
    metric: str
    _task: Any
    _filter: Any
    _examples: tuple[Example, ...]

    def examples(self) -> Sequence[Example]:
        """The documents that the harness evaluates, in order."""
        return self._examples

    def request(self, example: Example) -> Request:
        """What the harness asks."""
        instances = self._instances(example)
        if self._task.OUTPUT_TYPE != "generate_until":
            contexts = {one.args[0] for one in instances}
            if len(contexts) > 1:
                raise _refused(self.name, "a context for each choice")
            return Choose(context=contexts.pop(), choices=tuple(one.args[1] for one in instances))
        context, settings = instances[0].args
        stop = settings.get("until") or ()
        return Generate(
            prompt=context,
            max_new_tokens=int(settings.get("max_gen_toks", settings.get("max_new_tokens", 256))),
            stop=tuple(one for one in ([stop] if isinstance(stop, str) else stop) if one),
        )

    def judge(self, example: Example, response: Response) -> Verdict:
        """The harness's own verdict.

        Raises:
            EvaluationError: If a log-likelihood is not finite, or the harness gives something between right and
                wrong.
        """
        if isinstance(response, ChoiceScores):
            return self._judge_scores(example, response)
        assert isinstance(response, Generation)
        instance = self._instances(example)[0]
        instance.resps = [response.text]
        self._filter.apply([instance])
        found = instance.filtered_resps[self._filter.name]
        answer = found if isinstance(found, str) and found != "[invalid]" else None
        return Verdict(correct=self._is_right(example, [found]), answer=answer)

    def _judge_scores(self, example: Example, response: ChoiceScores) -> Verdict:
        lengths = [len(one) for one in example.choices] if self.metric == "acc_norm" else None
        found = prefer(response.log_likelihoods, lengths)
        results = list(zip(response.log_likelihoods, response.greedy, strict=True))
        right = self._is_right(example, results)
        if len(results) == 1:
            return Verdict(correct=right, answer=example.target if right else "another")
        flags = ("tie",) if found.tied else ()
        return Verdict(correct=right, answer=example.choices[found.chosen], flags=flags)

    def _is_right(self, example: Example, results: list[Any]) -> bool:
        value = self._task.process_results(example.fields["document"], results)[self.metric]
        if float(value) not in (0.0, 1.0):
            raise EvaluationError(
                f"{self.name} gives {value} for {example.id}, which is neither right nor wrong"
            )
        return bool(float(value) == 1.0)

    def _instances(self, example: Example) -> list[Any]:
        found = self._task.construct_requests(
            doc=example.fields["document"], ctx=example.prompt, metadata=(self.name, 0, 1)
        )
        return found if isinstance(found, list) else [found]


def harness_task(
    name: str,
    *,
    data: str | os.PathLike[str] | None = None,
    metric: str | None = None,
    num_fewshot: int | None = None,
    shots: str | os.PathLike[str] | None = None,
    filter: str | None = None,
) -> HarnessTask:
    """Make a task of the harness.

    Args:
        name: Its name there.
        data: Rows in a local file, in the columns of its data set; ``None``: the harness loads them.
        metric: One of its metrics; ``None``: the first that can be used.
        num_fewshot: Number of solved examples in the prompt; ``None``: as the task says.
        shots: Rows of solved examples in a local file, where the prompt has some and ``data`` is given.
        filter: Name of the filter of generated text; ``None``: the task's first.

    Raises:
        InvalidInput: If the harness is not installed, the name is unknown, the task needs what is not supported,
            or its rows cannot be read.
    """
    config = _config(name)
    kind = str(config.get("output_type", "generate_until"))
    _check_supported(name, kind, config)
    chosen = _choose_metric(name, kind, config, metric)
    n_shots = int(config.get("num_fewshot") or 0) if num_fewshot is None else num_fewshot
    config = {**config, "num_fewshot": n_shots, "metric_list": [chosen]}
    if data is not None:
        config = _with_local_rows(name, config, data, shots)
    task = _build(name, config)
    filters = {one.name: one for one in task._filters}
    if filter is not None and filter not in filters:
        raise InvalidInput(f"the filters of {name} are {', '.join(filters)}, not {filter!r}")
    used = filters[filter] if filter is not None else task._filters[0]
    source = Path(data).stem if data is not None else "hub"
    return HarnessTask(
        name=PREFIX + name,
        protocol=f"lm-eval version {task.VERSION}, {n_shots}-shot"
        + (f", filter {used.name}" if kind == "generate_until" else ""),
        metric=chosen["metric"],
        _task=task,
        _filter=used,
        _examples=tuple(_examples(task, f"{PREFIX}{name}/{source}", n_shots)),
    )


@lru_cache(maxsize=1)
def _manager() -> Any:
    try:
        from lm_eval.tasks import TaskManager
    except ImportError as error:
        raise InvalidInput(
            'tasks of lm-evaluation-harness need its package: pip install "cel-lens[lm-eval]"'
        ) from error
    return TaskManager()


def _config(name: str) -> dict[str, Any]:
    entry = _manager().task_index.get(name)
    if entry is None:
        near = get_close_matches(name, _manager().all_subtasks, n=3)
        hint = f": did you mean {' or '.join(map(repr, near))}?" if near else ""
        raise InvalidInput(f"lm-evaluation-harness has no task {name!r}{hint}")
    if entry.kind.name != "TASK" or entry.yaml_path is None:
        raise InvalidInput(
            f"{name!r} is a {entry.kind.name.lower()} of lm-evaluation-harness: name one task of it"
        )
    from lm_eval.tasks._yaml_loader import load_yaml

    config = dict(load_yaml(entry.yaml_path, resolve_func=True))
    for key in ("tag", "group", "task_list"):
        config.pop(key, None)
    return config


def _refused(name: str, need: str) -> InvalidInput:
    return InvalidInput(f"the task {name!r} of lm-evaluation-harness cannot be used here: it needs {need}")


def _check_supported(name: str, kind: str, config: Mapping[str, Any]) -> None:
    settings = config.get("generation_kwargs") or {}
    needs = {
        f"output of the type {kind}": kind not in _METRICS,
        "a class of its own": "class" in config,
        "a function that judges (process_results)": config.get("process_results") is not None,
        "images or sound": bool(config.get("doc_to_image") or config.get("doc_to_audio")),
        "to run generated code": bool(config.get("unsafe_code")),
        "sampling": bool(settings.get("do_sample")) or float(settings.get("temperature") or 0) > 0,
        "several answers to each question": int(config.get("repeats") or 1) > 1,
    }
    for need, needed in needs.items():
        if needed:
            raise _refused(name, need)


def _choose_metric(name: str, kind: str, config: Mapping[str, Any], wanted: str | None) -> dict[str, Any]:
    default = [{"metric": one, "aggregation": "mean", "higher_is_better": True} for one in _METRICS[kind]]
    listed = {
        str(one["metric"]): one for one in config.get("metric_list") or default if not callable(one["metric"])
    }
    usable = [one for one in listed if one in _METRICS[kind]]
    if not usable:
        others = ", ".join(listed) or "functions of its own"
        raise _refused(name, f"metrics that are not right or wrong for each example ({others})")
    if wanted is not None and wanted not in usable:
        raise InvalidInput(f"the metrics of {name} that can be used are {', '.join(usable)}, not {wanted!r}")
    return dict(listed[wanted or usable[0]])


def _with_local_rows(
    name: str, config: dict[str, Any], data: str | os.PathLike[str], shots: str | os.PathLike[str] | None
) -> dict[str, Any]:
    """The config reading local files: all its splits hold the rows, the split of solved examples the shots."""
    few = config.get("fewshot_config") or {}
    brings_own = few.get("samples") is not None
    if config["num_fewshot"] and shots is None and not brings_own:
        raise InvalidInput(
            f"the prompt of {name} holds {config['num_fewshot']} solved examples: give a file of them (shots=...) or "
            "num_fewshot=0"
        )
    rows = as_data_set(read_rows(data, ()))
    splits = {str(config[key]): rows for key in _SPLITS if config.get(key)}
    if shots is not None:
        used = few.get("split") or config.get("fewshot_split") or config.get("training_split")
        asked = config.get("test_split") or config.get("validation_split")
        if used in (None, asked):
            used = config["fewshot_split"] = "cel_lens_shots"
        splits[str(used)] = as_data_set(read_rows(shots, ()))
    config = {**config, "custom_dataset": lambda **_: splits, "dataset_kwargs": None, "metadata": None} | {
        "metadata": {key: value for key, value in (config.get("metadata") or {}).items() if key == "version"}
    }
    return config


def _build(name: str, config: dict[str, Any]) -> Any:
    from lm_eval.api.task import ConfigurableTask

    try:
        task = ConfigurableTask(config=config)
        with suppress(AttributeError):
            task.set_fewshot_seed(_SEED)
    except InvalidInput:
        raise
    except Exception as error:  # a template that meets other columns raises whatever it likes
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise InvalidInput(
            f"the rows of {PREFIX}{name} cannot be used ({reason}): check the columns, or give the rows as a local "
            "file (data=..., --data FILE)"
        ) from error
    if task.multiple_input:
        raise _refused(name, "a context for each choice")
    return task


def _examples(task: Any, prefix: str, n_shots: int) -> list[Example]:
    found = []
    for index, document in enumerate(task.eval_docs):
        place = f"{prefix}, row {index + 1}"
        try:
            context = task.fewshot_context(document, n_shots, gen_prefix=task.doc_to_prefix(document))
            choices = tuple(task.doc_to_choice(document)) if task.config.doc_to_choice is not None else ()
            target = _target(task.doc_to_target(document), choices)
        except Exception as error:
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise InvalidInput(f"{place}: the harness cannot make a prompt of it ({reason})") from error
        found.append(
            Example(
                id=f"{prefix}/{index:06d}",
                prompt=context,
                target=target,
                choices=choices,
                fields={"document": dict(document)},
            )
        )
    return found


def _target(value: Any, choices: tuple[str, ...]) -> str:
    if isinstance(value, list):
        return " | ".join(_target(one, choices) for one in value)
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < len(choices):
        return choices[value]
    return str(value)
