"""A model, a task and head sets in; right and wrong out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal, Protocol

from cel_lens.errors import InvalidInput
from cel_lens.evaluation.attribution import Attribution, attribute
from cel_lens.evaluation.encoding import render, text_digest
from cel_lens.evaluation.margins import decision_margins
from cel_lens.evaluation.reference import ReferenceEngine
from cel_lens.heads import Head, HeadSet
from cel_lens.models import LensModel, lens_of, load_model
from cel_lens.results import Outcomes, SearchConfig
from cel_lens.tasks import Example, Panels, Task, get_task, make_panels, prepare_task

__all__ = ["Engine", "Evaluator", "as_task", "evaluate_heads"]


class Engine(Protocol):
    """Evaluates head sets on the panel it was made for.

    Attributes:
        name: Recorded with results.
    """

    name: str

    def evaluate(
        self, head_sets: Sequence[HeadSet], places: Sequence[int] | None = None
    ) -> Iterator[Outcomes]:
        """The outcomes of every head set, each as soon as it is known, in any order.

        Args:
            head_sets: Distinct conditions.
            places: Only the examples at these positions of the panel; ``None``: all.
        """


class Evaluator:
    """Asks one model one task.

    Args:
        model: A ``HookedTransformer``.
        task: A task object.
        batch_size: Examples run together by the reference engine.
        engine: ``"sweep"`` or ``"reference"``; a model that the sweep cannot run layer by layer is
            evaluated by the reference engine.

    Attributes:
        lens: The model, seen through the seam.
        task: The task.
        engine_name: The engine in use, with the reason if it is not the one asked for.
    """

    def __init__(
        self,
        model: Any,
        task: Task,
        *,
        batch_size: int = 32,
        engine: Literal["sweep", "reference"] = "sweep",
    ) -> None:
        self.lens: LensModel = lens_of(model)
        self.task = prepare_task(task)
        self._batch_size = batch_size
        reason = _why_not_sweep(self.lens) if engine == "sweep" else None
        self._sweeps = engine == "sweep" and reason is None
        self.engine_name = engine if reason is None else f"reference ({reason})"

    def engine(self, examples: Sequence[Example]) -> Engine:
        """Encode a panel once, for any number of head sets."""
        if self._sweeps:
            from cel_lens.evaluation.sweep import SweepEngine

            return SweepEngine(self.lens, self.task, examples)
        return ReferenceEngine(self.lens, self.task, examples, self._batch_size)

    def outcomes(self, head_sets: Sequence[HeadSet], examples: Sequence[Example]) -> Iterator[Outcomes]:
        """The outcomes of every head set on a panel.

        Raises:
            InvalidInput: If a head does not exist in the model or an example cannot be asked.
            EvaluationError: If the model gives a logit that is not finite.
        """
        for heads in head_sets:
            heads.check_within(self.lens.n_layers, self.lens.n_heads)
        return self.engine(examples).evaluate(head_sets)

    def margins(self, examples: Sequence[Example], outcomes: Outcomes) -> tuple[float, ...]:
        """How close the decisions of the intact model are; see :func:`decision_margins`."""
        return decision_margins(self.lens, self.task, examples, outcomes, batch_size=self._batch_size)

    def attribution(self, examples: Sequence[Example], outcomes: Outcomes) -> Attribution:
        """What removing each head would do, to first order; see :func:`attribute`."""
        return attribute(self.lens, self.task, examples, outcomes)

    def prompt_digest(self, panels: Panels) -> str:
        """SHA-256 over the rendered prompts of both panels."""
        return text_digest(
            [render(self.lens, self.task.request(one)) for one in (*panels.discovery, *panels.heldout)]
        )


def _why_not_sweep(lens: LensModel) -> str | None:
    from cel_lens.evaluation.sweep import why_not_sweep

    return why_not_sweep(lens)


def as_task(task: str | Task) -> Task:
    """Make a task given by name; check that one given as an object can be asked and judged."""
    return prepare_task(get_task(task) if isinstance(task, str) else task)


def evaluate_heads(
    model: Any,
    task: str | Task,
    heads: str | Head | HeadSet | Iterable[Head | str | tuple[int, int]],
    *,
    panel: Literal["discovery", "heldout"] | None = None,
    n: int | None = None,
    config: SearchConfig | None = None,
) -> Outcomes:
    """Measure one head set, example by example.

    Args:
        model: A ``HookedTransformer``, or anything :func:`load_model` reads.
        task: A task object or a name.
        heads: Heads to remove, for example ``"L3H7+L9H6"``; ``""`` is the intact model.
        panel: ``"discovery"`` or ``"heldout"`` as a search with this config draws them; ``None``: all
            examples of the task.
        n: Only the first n examples, of the panel or of the task.
        config: Panel sizes, seed and batch size; give ``result.config`` to meet a search's panels.

    Returns:
        The verdict and the answer for each example, in panel order.

    Raises:
        InvalidInput: If heads, task, panel or n cannot be used.

    Example:
        >>> intact = evaluate_heads(model, task, "", panel="heldout")
        >>> ablated = evaluate_heads(model, task, "L3H7", panel="heldout")
    """
    if n is not None and (isinstance(n, bool) or not isinstance(n, int) or n < 1):
        raise InvalidInput(f"n is a whole number from 1, not {n!r}")
    settings = config or SearchConfig()
    asked = as_task(task)
    chosen = HeadSet.of(heads)
    examples = _examples(asked, panel, n, settings)
    evaluator = Evaluator(load_model(model), asked, batch_size=settings.batch_size, engine=settings.engine)
    return next(evaluator.outcomes([chosen], examples))


def _examples(
    task: Task, panel: Literal["discovery", "heldout"] | None, n: int | None, config: SearchConfig
) -> Sequence[Example]:
    found = tuple(task.examples())
    if panel is None:
        if n is not None and n > len(found):
            raise InvalidInput(f"n={n} examples were asked for, but the task has {len(found)}")
        return found[:n]
    if panel not in ("discovery", "heldout"):
        raise InvalidInput(f"a panel is 'discovery' or 'heldout', not {panel!r}")
    panels = make_panels(found, n_discovery=config.n_discovery, n_heldout=config.n_heldout, seed=config.seed)
    side = panels.side(panel)
    if n is not None and n > len(side):  # a larger draw could hold examples that heads were chosen on
        raise InvalidInput(
            f"n={n} examples were asked for, but the {panel} panel of {config.n_discovery} discovery and "
            f"{config.n_heldout} held-out examples has {len(side)}; another size is another draw of both panels"
        )
    return side[:n]
