"""Carrying the residual streams of several conditions upwards through the layers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from cel_lens.evaluation.sweep.attention import KeysValues, attend
from cel_lens.evaluation.sweep.panel import Rows
from cel_lens.evaluation.sweep.plan import Fork, Group
from cel_lens.heads import Head
from cel_lens.models.protocol import Layers, LensModel

__all__ = ["Climb", "Counter", "Machine", "Shared", "climb", "keep_mask", "step"]


@dataclass(kw_only=True)
class Counter:
    """Work done, without a clock.

    Attributes:
        layer_tokens: Tokens times layers they were run through, padding included; in the last layer the
            positions that are read.
        unembedded: Positions at which logits were computed.
    """

    layer_tokens: int = 0
    unembedded: int = 0


class Machine(NamedTuple):
    """What every piece of work needs.

    Attributes:
        lens: Decodes and ends answers.
        layers: The model, layer by layer.
        counter: Counts the work.
        active: Ablated heads whose output was not zero at some real position before it was zeroed.
    """

    lens: LensModel
    layers: Layers
    counter: Counter
    active: set[Head]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """Rows that other rows see in front of themselves.

    Attributes:
        layers: Layer to its keys and values, with one owner for each state before that layer and row.
        lengths: Real keys of each row within one state; ``None``: all.
    """

    layers: dict[int, KeysValues]
    lengths: Tensor | None = None

    def at(self, layer: int) -> KeysValues:
        """Keys and values before a layer, with the lengths of every owner."""
        k, v, _ = self.layers[layer]
        if self.lengths is None:
            return KeysValues(k, v)
        return KeysValues(k, v, self.lengths.repeat(k.shape[0] // self.lengths.shape[0]))


@dataclass(kw_only=True)
class Climb:
    """What a climb leaves behind.

    Attributes:
        residual: After the last layer at the positions that are read, ``[states * rows, read, d_model]``.
        seen: Keys and values of every layer, where they were asked for.
    """

    residual: Tensor
    seen: dict[int, KeysValues] = field(default_factory=dict)


def climb(
    machine: Machine,
    group: Group,
    rows: Rows,
    residual: Tensor,
    before: list[Shared],
    *,
    record: bool,
    read: Tensor | None = None,
) -> Climb:
    """Run rows from a group's first layer to the top, ablating and parting on the way.

    Args:
        machine: The model.
        group: The conditions.
        rows: The rows, the same for every condition.
        residual: The intact residual stream before the group's first layer, ``[rows, pos, d_model]``.
        before: What the rows see in front of themselves, outermost first.
        record: Whether to keep keys and values of every layer.
        read: Positions of each row that matter after the last layer, ``[rows, read]``; ``None``: all.
    """
    last = machine.layers.n_layers - 1
    found = Climb(residual=residual)
    for layer in range(group.layer, machine.layers.n_layers):
        shared = [part.at(layer) for part in before]
        found.residual, own = step(
            machine,
            layer,
            rows,
            found.residual,
            shared,
            fork=group.forks.get(layer),
            read=read if layer == last else None,
        )
        if record:
            found.seen[layer] = own
    return found


def step(
    machine: Machine,
    layer: int,
    rows: Rows,
    residual: Tensor,
    shared: list[KeysValues],
    *,
    fork: Fork | None,
    read: Tensor | None = None,
) -> tuple[Tensor, KeysValues]:
    """Run rows of several states through one layer.

    Args:
        machine: The model.
        layer: The layer.
        rows: The rows of one state.
        residual: Before the layer, ``[states * rows, pos, d_model]``.
        shared: What the rows see in front of themselves in this layer.
        fork: How states part in this layer.
        read: Positions of each row that are needed after the layer, ``[rows, read]``; ``None``: all.

    Returns:
        The residual stream after the layer at these positions, and the keys and values of all.
    """
    layers = machine.layers
    n_rows, width = rows.tokens.shape
    n_states = residual.shape[0] // n_rows
    offsets = rows.offsets if isinstance(rows.offsets, int) else rows.offsets.repeat(n_states)
    q, k, v = layers.project(layer, residual, offsets)
    own = KeysValues(k, v)
    z = attend(q, own, shared, layers.score_divisor(layer), causal=True)
    if fork is not None:
        _note_activity(machine.active, layer, z, rows, fork)
        sources = torch.tensor(fork.sources, device=z.device)
        keep = keep_mask(fork.zeroed, layers.n_heads, z)
        z = z.view(n_states, n_rows, width, *z.shape[2:])[sources] * keep[:, None, None, :, None]
        z = z.flatten(0, 1)
        residual = residual.view(n_states, n_rows, width, -1)[sources].flatten(0, 1)
    if read is not None:
        at = torch.arange(z.shape[0], device=z.device)[:, None]
        chosen = read.repeat(z.shape[0] // n_rows, 1)
        z, residual = z[at, chosen], residual[at, chosen]
    machine.counter.layer_tokens += residual.shape[0] * residual.shape[1]
    if not residual.numel():
        return residual, own
    return layers.finish(layer, residual, z), own


def keep_mask(zeroed: tuple[tuple[int, ...], ...], n_heads: int, like: Tensor) -> Tensor:
    """1 for heads that stay and 0 for heads that are ablated, ``[states, head]``."""
    keep = torch.ones(len(zeroed), n_heads, dtype=like.dtype, device=like.device)
    for place, indices in enumerate(zeroed):
        keep[place, list(indices)] = 0
    return keep


def _note_activity(active: set[Head], layer: int, z: Tensor, rows: Rows, fork: Fork) -> None:
    unseen = sorted({index for zeroed in fork.zeroed for index in zeroed if Head(layer, index) not in active})
    if not unseen:
        return
    real = torch.arange(z.shape[1], device=z.device) < rows.lengths[:, None]
    chosen = z[real.repeat(z.shape[0] // real.shape[0], 1)][:, unseen]
    found = (chosen != 0).any(dim=2).any(dim=0).tolist()
    active |= {Head(layer, index) for index, yes in zip(unseen, found, strict=True) if yes}
