"""Whether a loaded model is the checkpoint's own, intact and with heads removed, by every path that evaluation takes.

transformers is the judge: it runs the same checkpoint without TransformerLens, a cache, padding or hooks of
ours. Everything else must agree with it, or with the plainest way of running the same model.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from cel_lens.errors import InvalidInput
from cel_lens.models.convert import RESEARCH_OWNERS
from cel_lens.models.facts import model_facts
from cel_lens.models.lens import lens_of
from cel_lens.models.loading import load_model, read_checkpoint
from cel_lens.models.parity_checks import ParityRow, Subject, decoding_rows, head_rows, path_rows, same_logits
from cel_lens.models.protocol import Backend
from cel_lens.models.sources import resolve_source

if TYPE_CHECKING:
    import pandas as pd
    import torch

__all__ = ["PARITY_BOUNDS", "ParityReport", "ParityRow", "parity_report"]

PARITY_BOUNDS = {"float64": 1e-4, "float32": 1e-4, "float16": 2e-2, "bfloat16": 1e-1}
"""Largest logit difference, as a fraction of the largest logit, that the rounding of a precision explains.

bfloat16 has 8 significant bits, and two orders of the same sums differ by a few of its steps of 1/256 in every
layer; the intact logits of two implementations of one model are that far apart too.
"""

_N_TOKENS = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class ParityReport:
    """What was compared, and how far apart it was.

    Attributes:
        model: Name of the model.
        backend: The class that runs it: ``"hooked"`` or ``"bridge"``.
        dtype: Precision of the weights.
        rows: The comparisons.
        notes: What was not compared, and why.
    """

    model: str
    backend: Backend
    dtype: str
    rows: tuple[ParityRow, ...]
    notes: tuple[str, ...]

    @property
    def passed(self) -> bool:
        """Whether every comparison is within its bound."""
        return all(row.passed for row in self.rows)

    def to_frame(self) -> pd.DataFrame:
        """One row for each comparison.

        Returns:
            Columns ``check, error, bound, passed``.
        """
        import pandas as pd

        return pd.DataFrame(
            {
                "check": [row.check for row in self.rows],
                "error": [row.error for row in self.rows],
                "bound": [row.bound for row in self.rows],
                "passed": [row.passed for row in self.rows],
            }
        )

    def __str__(self) -> str:
        width = max((len(row.check) for row in self.rows), default=5)
        lines = [f"{self.model}: {self.backend}, {self.dtype}"]
        lines.append(f"{'check':{width}}  {'error':>8}  {'bound':>8}")
        lines += [
            f"{row.check:{width}}  {row.error:8.1e}  {row.bound:8.1e}  {'passed' if row.passed else 'FAILED'}"
            for row in self.rows
        ]
        return "\n".join([*lines, *(f"not compared: {note}" for note in self.notes)])


def parity_report(
    model: Any,
    *,
    reference: Any = None,
    layers: Iterable[int] | None = None,
    n_tokens: int = _N_TOKENS,
    backend: Literal["auto"] | Backend = "auto",
    dtype: str | torch.dtype = "auto",
    device: str | torch.device = "auto",
) -> ParityReport:
    """Compare a model with transformers, and every way of running it with the plainest one.

    Compared are the intact logits; the logits without each head of some layers, and without sets of heads of
    several layers, removed in three ways (``hook_z`` zeroed, the head's slice of the output projection's input
    zeroed in transformers, its rows of ``W_O`` zeroed); greedy decoding with and without a cache, with heads
    removed; left padding against none; a batch against single prompts; and layers one by one against the
    forward pass. Prompts are fixed token ids, so no tokenizer takes part.

    Args:
        model: What :func:`cel_lens.load_model` reads, or a model object; it is left as it was.
        reference: The same model in transformers, untouched by TransformerLens; ``None``: read again from
            where the model came from, which needs memory for a second copy.
        layers: Layers whose heads are removed one at a time; ``None``: the first, the middle and the last one.
        n_tokens: Length of the prompts in tokens, at least 8.
        backend: As in :func:`cel_lens.load_model`, for a model that is loaded here.
        dtype: As in :func:`cel_lens.load_model`, for a model that is loaded here.
        device: As in :func:`cel_lens.load_model`, for a model that is loaded here.

    Returns:
        Errors as fractions of the largest logit, with the bound of the precision (``PARITY_BOUNDS``).

    Raises:
        InvalidInput: If an argument has no meaning for this model.
        ModelLoadError: If the model cannot be read.
        UnsupportedModel: If its heads cannot be removed exactly.

    Example:
        >>> print(parity_report("smollm2-135m-instruct"))
    """
    import torch

    loaded = load_model(model, backend=backend, dtype=dtype, device=device)
    lens, facts = lens_of(loaded), model_facts(loaded)
    chosen = _layers(layers, lens.n_layers)
    if isinstance(n_tokens, bool) or not isinstance(n_tokens, int) or not 8 <= n_tokens <= lens.n_ctx:
        raise InvalidInput(f"n_tokens is a whole number from 8 to the model's {lens.n_ctx}, not {n_tokens!r}")
    notes: list[str] = []
    if reference is None:
        reference, why_not = _reference(facts.name, facts.source, lens.dtype)
        if why_not is not None:
            notes.append(f"transformers, because {why_not}")
    if reference is not None:
        reference = reference.to(lens.device)
    subject = Subject.of(lens, reference, facts.name, bound=PARITY_BOUNDS[facts.dtype], n_tokens=n_tokens)
    with torch.inference_mode():
        rows = [
            *same_logits(subject),
            *head_rows(subject, chosen, notes),
            *decoding_rows(subject),
            *path_rows(subject, notes),
        ]
    return ParityReport(
        model=facts.name, backend=facts.backend, dtype=facts.dtype, rows=tuple(rows), notes=tuple(notes)
    )


def _layers(given: Iterable[int] | None, n_layers: int) -> tuple[int, ...]:
    if given is None:
        return tuple(sorted({0, n_layers // 2, n_layers - 1}))
    chosen = tuple(sorted(set(given)))
    if not chosen or not all(
        isinstance(one, int) and not isinstance(one, bool) and 0 <= one < n_layers for one in chosen
    ):
        raise InvalidInput(f"layers are whole numbers from 0 to {n_layers - 1}, not {list(chosen)}")
    return chosen


def _reference(name: str, kind: str, dtype: torch.dtype) -> tuple[Any, str | None]:
    """The transformers model, or why there is none."""
    if kind == "object":
        return None, "load_model did not make this model, so its checkpoint is not known (give reference)"
    source = resolve_source(name)
    if source.listed and str(source.repo).startswith(RESEARCH_OWNERS):
        return None, "the model exists in TransformerLens' own format only"
    return read_checkpoint(source, dtype).hf_model, None
