"""The comparisons of a parity report."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cel_lens.errors import ModelLoadError, UnsupportedModel
from cel_lens.heads import INTACT, Head, HeadSet
from cel_lens.models.ablation import ablate
from cel_lens.models.projections import projection_of
from cel_lens.models.protocol import LensModel
from cel_lens.models.quiet import quiet

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["ParityRow", "Subject", "decoding_rows", "head_rows", "path_rows", "same_logits"]

_ROWS = 3
_NEW_TOKENS = 6
_PADDING = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class ParityRow:
    """One comparison.

    Attributes:
        check: What was compared.
        error: The largest difference of logits, as a fraction of the largest logit; for decoded tokens, how
            many differ that rounding cannot explain.
        bound: The largest error that passes.
    """

    check: str
    error: float
    bound: float

    @property
    def passed(self) -> bool:
        """Whether the error is within the bound; a NaN is not."""
        return self.error <= self.bound


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What is compared.

    Attributes:
        lens: The model.
        reference: The same model in transformers, if there is one.
        name: How messages call it.
        bound: The error that rounding explains.
        tokens: Prompts, ``[rows, pos]``.
    """

    lens: LensModel
    reference: Any
    name: str
    bound: float
    tokens: Tensor

    @classmethod
    def of(cls, lens: LensModel, reference: Any, name: str, *, bound: float, n_tokens: int) -> Subject:
        """Choose fixed prompts, spread over the vocabulary."""
        import torch

        vocabulary = lens.model.cfg.d_vocab
        ids = (torch.arange(_ROWS * n_tokens) * 7919 + 11) % vocabulary
        return cls(
            lens=lens,
            reference=reference,
            name=name,
            bound=bound,
            tokens=ids.view(_ROWS, n_tokens).to(lens.device),
        )

    def row(self, check: str, error: float) -> ParityRow:
        """A comparison with the bound of the precision."""
        return ParityRow(check=check, error=error, bound=self.bound)

    def logits(self, heads: HeadSet, tokens: Tensor, mask: Tensor | None = None) -> Tensor:
        """Logits without some heads, through the hooks that evaluation uses, ``[rows, pos, vocabulary]``."""
        import torch

        with ablate(self.lens, heads):
            return self.lens.logits(
                self.lens.residual(tokens, torch.ones_like(tokens) if mask is None else mask)
            )


def same_logits(subject: Subject) -> Iterator[ParityRow]:
    """The intact model against transformers."""
    if subject.reference is not None:
        found = subject.logits(INTACT, subject.tokens)
        yield subject.row("intact logits = transformers", _error(found, _theirs(subject, subject.tokens)))


def head_rows(subject: Subject, layers: Sequence[int], notes: list[str]) -> Iterator[ParityRow]:
    """Heads removed in three ways, one at a time and in sets over several layers.

    Args:
        subject: The model.
        layers: Layers whose heads are removed one at a time.
        notes: Gets why transformers cannot be asked, if so.
    """
    n_heads = subject.lens.n_heads
    singles = [HeadSet((Head(layer, index),)) for layer in layers for index in range(n_heads)]
    projections, tokens = _projections(subject, notes), subject.tokens[:1]
    for what, sets in (("each head", singles), ("sets of heads", _sets(subject.lens))):
        sliced, zeroed = [], []
        for heads in sets:
            found = subject.logits(heads, tokens)
            if projections is not None:
                with _sliced(projections, heads, n_heads):
                    sliced.append(_error(found, _theirs(subject, tokens)))
            with _without_rows(subject.lens, heads):
                zeroed.append(_error(found, subject.logits(INTACT, tokens)))
        if sliced:
            yield subject.row(f"{what}: hook_z zeroed = slice zeroed in transformers", _largest(sliced))
        yield subject.row(f"{what}: hook_z zeroed = rows of W_O zeroed", _largest(zeroed))


def decoding_rows(subject: Subject) -> Iterator[ParityRow]:
    """Greedy decoding with a cache against the whole sequence run again for each token, with heads removed."""
    for what, padding in (("", 0), (" behind padding", _PADDING)):
        errors, wrong = [], 0
        for heads in (INTACT, _sets(subject.lens)[0]):
            for cached, whole in _decoded(subject, heads, padding):
                errors.append(_error(cached, whole))
                wrong += _differs(cached, whole, subject.bound)
        yield subject.row(f"cached decoding{what} = uncached, logits", _largest(errors))
        yield ParityRow(check=f"cached decoding{what} = uncached, tokens", error=wrong, bound=0)


def path_rows(subject: Subject, notes: list[str]) -> Iterator[ParityRow]:
    """Left padding, batches and layers one by one, with heads removed.

    Args:
        subject: The model.
        notes: Gets why the model cannot be run layer by layer, if so.
    """
    import torch

    from cel_lens.models.steps import walk

    tokens, padded, batch, layered = subject.tokens, [], [], []
    reason = subject.lens.why_not_by_layer()
    for heads in (INTACT, *_sets(subject.lens)[:2]):
        whole = subject.logits(heads, tokens)
        more = torch.nn.functional.pad(tokens, (_PADDING, 0))
        mask = torch.nn.functional.pad(torch.ones_like(tokens), (_PADDING, 0))
        padded.append(_error(subject.logits(heads, more, mask)[:, _PADDING:], whole))
        batch += [
            _error(whole[place : place + 1], subject.logits(heads, tokens[place : place + 1]))
            for place in range(len(tokens))
        ]
        if reason is None:
            layers = subject.lens.layers
            ends = walk(layers, tokens, heads).flatten(0, 1)
            layered.append(_error(layers.logits(ends), whole.flatten(0, 1)))
    yield subject.row("left padding = none", _largest(padded))
    yield subject.row("batch = single prompts", _largest(batch))
    if layered:
        yield subject.row("layers one by one = forward pass", _largest(layered))
    else:
        notes.append(f"layers one by one, because {reason}; the reference engine is used")


def _sets(lens: LensModel) -> list[HeadSet]:
    """Sets over several layers, and one whole layer."""
    last, heads = lens.n_layers - 1, lens.n_heads
    diagonal = [Head(layer, (layer + 1) % heads) for layer in range(lens.n_layers)]
    ends = [Head(0, 0), Head(last, heads - 1)]
    middle = [Head(lens.n_layers // 2, index) for index in range(heads)]
    return [HeadSet.of(diagonal), HeadSet.of(ends), HeadSet.of(middle), HeadSet.of({*ends, *middle})]


def _decoded(subject: Subject, heads: HeadSet, padding: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Logits of every decode step with a cache and without, along the tokens that the second writes."""
    import torch

    lens, mask = subject.lens, torch.ones_like(subject.tokens[:1])
    whole, shown = subject.tokens[:1], torch.nn.functional.pad(mask, (padding, 0))
    latest, cache = torch.nn.functional.pad(whole, (padding, 0)), lens.new_cache(1)
    with ablate(lens, heads):
        for _ in range(min(_NEW_TOKENS, lens.n_ctx - whole.shape[1] - padding)):
            cached = lens.logits(lens.residual(latest, shown, cache)[:, -1])
            plain = lens.logits(lens.residual(whole, torch.ones_like(whole))[:, -1])
            yield cached, plain
            latest = plain.argmax(dim=-1, keepdim=True)
            whole, shown = torch.cat([whole, latest], dim=1), torch.ones_like(latest)


def _differs(cached: Tensor, whole: Tensor, bound: float) -> bool:
    """Whether another token is written, though the two best are further apart than rounding explains."""
    best = whole.topk(2, dim=-1).values[0]
    clear = float(best[0] - best[1]) > 2 * bound * float(whole.abs().max())
    return clear and int(cached.argmax()) != int(whole.argmax())


def _theirs(subject: Subject, tokens: Tensor) -> Tensor:
    with quiet():
        found: Tensor = subject.reference(tokens, use_cache=False).logits.float()
    return found


def _projections(subject: Subject, notes: list[str]) -> Callable[[int], Any] | None:
    """The output projection of a layer inside the transformers model; ``None`` if it is not known."""
    if subject.reference is None:
        return None
    modules = dict(subject.reference.named_modules())
    try:
        place = projection_of(subject.reference.config.model_type, subject.name)
        names = [f"{name}.weight" for name in modules]
        found = [place.find(layer, names, subject.name) for layer in range(subject.lens.n_layers)]
    except (ModelLoadError, UnsupportedModel) as error:
        notes.append(f"heads removed inside transformers, because {error}")
        return None
    return lambda layer: modules[found[layer].removesuffix(".weight")]


@contextmanager
def _sliced(projections: Callable[[int], Any], heads: HeadSet, n_heads: int) -> Iterator[None]:
    """Zero the heads' channels of the input of the output projection."""

    def zeroing(indices: tuple[int, ...]) -> Any:
        def zero(module: Any, inputs: Any) -> Any:
            channels = inputs[0].clone()
            channels.unflatten(-1, (n_heads, -1))[..., list(indices), :] = 0
            return (channels, *inputs[1:])

        return zero

    with ExitStack() as hooks:
        for layer, indices in heads.by_layer().items():
            hooks.callback(projections(layer).register_forward_pre_hook(zeroing(indices)).remove)
        yield


@contextmanager
def _without_rows(lens: LensModel, heads: HeadSet) -> Iterator[None]:
    """Zero the heads' rows of ``W_O`` in place, and put them back."""
    rows = {head: lens.output_weights(head.layer)[head.index] for head in heads}
    kept = {head: weights.clone() for head, weights in rows.items()}
    try:
        for weights in rows.values():
            weights.zero_()
        yield
    finally:
        for head, weights in rows.items():
            weights.copy_(kept[head])


def _error(found: Tensor, expected: Tensor) -> float:
    """The largest difference, as a fraction of the largest logit."""
    if found.shape != expected.shape:
        return float("inf")
    return float((found - expected).abs().max() / expected.abs().max().clamp_min(1e-9))


def _largest(errors: Sequence[float]) -> float:
    """The largest error; NaN if one is."""
    return math.nan if any(map(math.isnan, errors)) else max(errors, default=0.0)
