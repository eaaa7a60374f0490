"""Attention heads and sets of them, as pure values.

A head is a *query* head, written ``L3H7`` (layer 3, head 7, both from 0). Under grouped-query
attention several query heads share one key/value head, which an ablation never touches. A head set
is written ``L3H7+L9H6``; the empty set is the intact model.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from cel_lens.errors import InvalidInput

__all__ = ["INTACT", "Head", "HeadSet", "all_heads", "parse_layers"]

_HEAD = re.compile(r"L(\d{1,6})H(\d{1,6})", re.ASCII | re.IGNORECASE)


@dataclass(frozen=True, slots=True, order=True)
class Head:
    """One query head.

    Attributes:
        layer: Transformer block, counted from 0.
        index: Query head inside the block, counted from 0.
    """

    layer: int
    index: int

    def __post_init__(self) -> None:
        for name, value in (("layer", self.layer), ("index", self.index)):
            if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                raise InvalidInput(f"a head's {name} is a whole number from 0, not {value!r}")

    def __str__(self) -> str:
        return f"L{self.layer}H{self.index}"

    @classmethod
    def parse(cls, text: str) -> Head:
        """Read ``"L3H7"``.

        Args:
            text: A head in the form ``L<layer>H<head>``, case and outer white space ignored.

        Raises:
            InvalidInput: If the text has another form.
        """
        match = _HEAD.fullmatch(text.strip())
        if match is None:
            raise InvalidInput(f"{text!r} is not a head: write L<layer>H<head>, for example L3H7")
        return cls(int(match[1]), int(match[2]))


@dataclass(frozen=True, slots=True, order=True)
class HeadSet:
    """Heads that are ablated together: sorted, without repetition, so that equal means equal.

    Attributes:
        heads: The heads, sorted by layer, then index. Empty: the intact model.
    """

    heads: tuple[Head, ...] = ()

    def __post_init__(self) -> None:
        heads = tuple(self.heads)
        if any(not isinstance(head, Head) for head in heads):
            raise InvalidInput(
                "a HeadSet holds Head values; HeadSet.of() also reads text such as 'L3H7+L9H6'"
            )
        ordered = tuple(sorted(set(heads)))
        if ordered != heads:
            raise InvalidInput("a HeadSet is sorted and has no repetition; HeadSet.of() puts heads in order")

    def __str__(self) -> str:
        return "+".join(str(head) for head in self.heads)

    def __len__(self) -> int:
        return len(self.heads)

    def __iter__(self) -> Iterator[Head]:
        return iter(self.heads)

    def __contains__(self, head: object) -> bool:
        return head in self.heads

    @property
    def label(self) -> str:
        """The set as text, with ``intact`` for the empty set."""
        return str(self) or "intact"

    def by_layer(self) -> dict[int, tuple[int, ...]]:
        """The head indices of each layer that the set touches, layers ascending."""
        layers: dict[int, list[int]] = {}
        for head in self.heads:
            layers.setdefault(head.layer, []).append(head.index)
        return {layer: tuple(indices) for layer, indices in layers.items()}

    @classmethod
    def of(cls, heads: str | Head | HeadSet | Iterable[Head | str | tuple[int, int]]) -> HeadSet:
        """Make a head set from whatever names heads.

        Args:
            heads: ``"L3H7+L9H6"`` (``""`` or ``"intact"`` is the empty set), a head, a head set, or
                an iterable of heads, head names or ``(layer, index)`` pairs, in any order.

        Raises:
            InvalidInput: If a name cannot be read or a head is named twice.
        """
        if isinstance(heads, HeadSet):
            return heads
        if isinstance(heads, Head):
            return cls((heads,))
        if isinstance(heads, str):
            text = heads.strip()
            parts: list[Head | str | tuple[int, int]] = (
                [] if text in ("", "intact") else list(text.split("+"))
            )
        else:
            parts = list(heads)
        found = [_as_head(part) for part in parts]
        if len(set(found)) != len(found):
            raise InvalidInput(f"a head is named twice in {'+'.join(map(str, found))}")
        return cls(tuple(sorted(found)))

    def check_within(self, n_layers: int, n_heads: int) -> HeadSet:
        """Return the set itself if every head exists in a model of this shape.

        Args:
            n_layers: Number of layers of the model.
            n_heads: Number of query heads in each layer.

        Raises:
            InvalidInput: If a head lies outside; the message gives the possible range.
        """
        for head in self.heads:
            if head.layer >= n_layers or head.index >= n_heads:
                raise InvalidInput(
                    f"{head} does not exist in this model: it has layers 0-{n_layers - 1} "
                    f"with query heads 0-{n_heads - 1} (L0H0 to L{n_layers - 1}H{n_heads - 1})"
                )
        return self


INTACT = HeadSet()
"""The empty head set: the model as it is."""


def _as_head(part: Head | str | tuple[int, int]) -> Head:
    if isinstance(part, Head):
        return part
    if isinstance(part, str):
        return Head.parse(part)
    try:
        layer, index = part
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"{part!r} is not a head: give a name such as L3H7 or a pair (3, 7)") from error
    return Head(layer, index)


def all_heads(n_layers: int, n_heads: int, layers: Iterable[int] | None = None) -> tuple[Head, ...]:
    """Every query head of a model, by layer, then index.

    Args:
        n_layers: Number of layers.
        n_heads: Query heads in each layer.
        layers: Restrict to these layers; every one must exist.

    Raises:
        InvalidInput: If a layer does not exist.
    """
    chosen = range(n_layers) if layers is None else sorted(set(layers))
    for layer in chosen:
        if not 0 <= layer < n_layers:
            raise InvalidInput(f"layer {layer} does not exist in this model: it has layers 0-{n_layers - 1}")
    return tuple(Head(layer, index) for layer in chosen for index in range(n_heads))


def parse_layers(text: str) -> tuple[int, ...]:
    """Read a selection of layers such as ``"0-5"``, ``"3"`` or ``"0-2,7,10-12"``.

    Returns:
        The layers, ascending, without repetition.

    Raises:
        InvalidInput: If the text has another form or a range runs backwards.
    """
    layers: set[int] = set()
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d{1,5})(?:\s*-\s*(\d{1,5}))?\s*", part, re.ASCII)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if first > last:
            raise InvalidInput(f"{text!r} is not a selection of layers: write for example 0-5 or 0-2,7")
        layers.update(range(first, last + 1))
    return tuple(sorted(layers))
