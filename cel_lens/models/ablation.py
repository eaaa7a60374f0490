"""Zero-ablation of heads, exactly and for a while.

The output of each chosen head, ``hook_z[..., head, :]``, becomes zero at every position before the
output projection. Zeroing ``hook_z`` equals zeroing the head's slice of the projection's input and
equals zeroing its rows of ``W_O``; biases, keys, values and all other heads stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cel_lens.errors import UnsupportedModel
from cel_lens.heads import Head, HeadSet
from cel_lens.models.lens import lens_of
from cel_lens.models.protocol import LensModel

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Ablation", "zero_ablation"]


@dataclass(kw_only=True)
class Ablation:
    """What an ablation has done so far.

    Attributes:
        heads: The ablated heads.
        calls: How often each touched layer has run.
        active: Heads whose output was not zero before it was zeroed, at some real position.
        real: Which positions of the running batch are real, ``[batch, pos]``; ``None``: all.
    """

    heads: HeadSet
    calls: dict[int, int] = field(default_factory=dict)
    active: set[Head] = field(default_factory=set)
    real: Tensor | None = None

    @property
    def inactive(self) -> HeadSet:
        """Heads that never had an output to remove."""
        return HeadSet(tuple(head for head in self.heads if head not in self.active))


@contextmanager
def zero_ablation(
    model: Any, heads: str | Head | HeadSet | Iterable[Head | str | tuple[int, int]]
) -> Iterator[Ablation]:
    """Run anything inside the block with these heads removed.

    The hooks are ours alone: they are gone when the block ends, however it ends, and hooks that were
    there before stay. Blocks may be nested.

    Args:
        model: A ``HookedTransformer``.
        heads: Heads in any form that :meth:`HeadSet.of` reads; ``""`` removes nothing.

    Yields:
        Counters of the calls and of which heads were active.

    Raises:
        InvalidInput: If a head cannot be read or does not exist in the model.
        UnsupportedModel: If ``hook_z`` is not ``[batch, pos, head, d_head]``.

    Example:
        >>> with zero_ablation(model, "L3H7+L9H6"):
        ...     logits = model("2 plus 2 is")
    """
    lens = lens_of(model)
    with ablate(lens, HeadSet.of(heads)) as ablation:
        yield ablation


@contextmanager
def ablate(lens: LensModel, heads: HeadSet) -> Iterator[Ablation]:
    """The same through the seam, for code that has a lens already."""
    heads.check_within(lens.n_layers, lens.n_heads)
    ablation = Ablation(heads=heads, calls=dict.fromkeys(heads.by_layer(), 0))
    with ExitStack() as hooks:
        for layer, indices in heads.by_layer().items():
            handle = lens.hook_z(layer).register_forward_hook(
                _zeroing(ablation, layer, indices, lens.n_heads)
            )
            hooks.callback(handle.remove)
        yield ablation


def _zeroing(ablation: Ablation, layer: int, indices: tuple[int, ...], n_heads: int) -> Any:
    def zero(module: Any, inputs: Any, output: Tensor) -> Tensor:
        if output.ndim != 4 or output.shape[2] != n_heads:
            raise UnsupportedModel(
                f"layer {layer} gives hook_z of shape {list(output.shape)} where [batch, pos, {n_heads} heads, "
                "d_head] is needed, so its heads cannot be ablated"
            )
        ablation.calls[layer] += 1
        _note_activity(ablation, layer, indices, output)
        kept = output.clone()
        kept[:, :, list(indices)] = 0
        return kept

    return zero


def _note_activity(ablation: Ablation, layer: int, indices: tuple[int, ...], output: Tensor) -> None:
    unseen = [index for index in indices if Head(layer, index) not in ablation.active]
    if not unseen:
        return
    chosen = output[:, :, unseen]
    if ablation.real is not None and ablation.real.shape == output.shape[:2]:
        chosen = chosen * ablation.real[:, :, None, None]
    for index, active in zip(unseen, (chosen != 0).any(dim=3).any(dim=1).any(dim=0).tolist(), strict=True):
        if active:
            ablation.active.add(Head(layer, index))
