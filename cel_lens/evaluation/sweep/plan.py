"""Which work conditions share: head sets as a tree over the layers.

Below its lowest ablated layer a condition is the intact model, so it starts from the intact residual
stream there. Conditions that agree up to some layer are one state up to that layer, where they part.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cel_lens.heads import HeadSet

__all__ = ["Fork", "Group", "make_groups"]

MOST_STATES = 48
"""Conditions carried upwards together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fork:
    """What happens to the states in a layer where heads are ablated.

    Attributes:
        sources: For each state after the layer, the state it comes from; never falling.
        zeroed: For each state after the layer, the heads of this layer that are zeroed.
    """

    sources: tuple[int, ...]
    zeroed: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Conditions that climb together from one layer.

    Attributes:
        layer: The layer they start in; below it they are intact.
        head_sets: One condition for each state at the top.
        forks: Layer to fork.
    """

    layer: int
    head_sets: tuple[HeadSet, ...]
    forks: Mapping[int, Fork]

    def n_states(self, layer: int) -> int:
        """Number of states before a layer."""
        before = [fork for at, fork in sorted(self.forks.items()) if at < layer]
        return len(before[-1].sources) if before else 1

    def lineage(self, layer: int) -> tuple[int, ...]:
        """For each condition, its state before a layer."""
        states = tuple(range(len(self.head_sets)))
        for at in sorted(self.forks, reverse=True):
            if at >= layer:
                states = tuple(self.forks[at].sources[state] for state in states)
        return states


def make_groups(head_sets: Sequence[HeadSet], most_states: int = MOST_STATES) -> list[Group]:
    """Arrange conditions so that they share as much as possible.

    Args:
        head_sets: Distinct conditions.
        most_states: Largest number of conditions in one group.

    Returns:
        Groups by ascending start layer; the intact model, if it is asked for, is a group of its own
        that starts in layer 0.
    """
    by_layer: dict[int, list[HeadSet]] = {}
    groups = []
    for heads in head_sets:
        if heads.heads:
            by_layer.setdefault(heads.heads[0].layer, []).append(heads)
        else:
            groups.append(Group(layer=0, head_sets=(heads,), forks={}))
    for layer, found in sorted(by_layer.items()):
        ordered = sorted(found, key=lambda one: tuple(one.by_layer().items()))
        for first in range(0, len(ordered), most_states):
            groups.append(_group(layer, ordered[first : first + most_states]))
    return groups


def _group(layer: int, head_sets: Sequence[HeadSet]) -> Group:
    touched = sorted({at for heads in head_sets for at in heads.by_layer()})
    states: list[list[HeadSet]] = [list(head_sets)]
    forks = {}
    for at in touched:
        sources, zeroed, after = [], [], []
        for place, members in enumerate(states):
            for here in sorted({one.by_layer().get(at, ()) for one in members}):
                sources.append(place)
                zeroed.append(here)
                after.append([one for one in members if one.by_layer().get(at, ()) == here])
        forks[at] = Fork(sources=tuple(sources), zeroed=tuple(zeroed))
        states = after
    return Group(layer=layer, head_sets=tuple(members[0] for members in states), forks=forks)
