"""What is trained, how, and how it is searched."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, get_args

from cel_lens.errors import InvalidInput
from cel_lens.models.small import SmallShape

__all__ = ["ConflictSetting", "Optimizer", "Targets", "Which"]

Targets: TypeAlias = tuple[float, float, float]
"""Weights of the three features in the evidence for "yes"."""

Which: TypeAlias = Literal["A", "B"]
"""One of the two tasks."""

Optimizer: TypeAlias = Literal["adam", "sgd"]
"""Adam, or plain gradient descent on batches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConflictSetting:
    """Two tasks, the model trained on both, and the search for task A.

    Attributes:
        targets_a: What task A makes of the features: (0, b, c) by default, so the shared feature is to be
            ignored.
        targets_b: What task B makes of them: (a, b, c) by default.
        cue: How often the first word of a prompt names its task: 0.5 (never more than chance, full
            conflict) to 1 (always, no conflict).
        common_words: The three roles use the same eight words, each with a meaning of its own in every
            role; otherwise every role has its own eight words.
        shape: Size of the transformer.
        init_scale: Standard deviation of the initial weights.
        optimizer: ``"adam"`` or ``"sgd"``.
        learning_rate: At the first step; it falls linearly to 0.
        steps: Steps of training.
        batch_size: Prompts a step.
        n_discovery: Prompts on which heads are chosen.
        n_heldout: Further prompts on which the choice is measured; together at most 512.
        max_heads: Largest number of heads removed together.
        n_random: Random head sets of the same size that are measured beside the chosen one.

    Raises:
        InvalidInput: If a value lies outside its range.
    """

    targets_a: Targets = (0.0, 1.5, 1.1)
    targets_b: Targets = (2.0, 1.5, 1.1)
    cue: float = 0.5
    common_words: bool = True
    shape: SmallShape = field(default_factory=SmallShape)
    init_scale: float = 0.1
    optimizer: Optimizer = "adam"
    learning_rate: float = 0.01
    steps: int = 500
    batch_size: int = 256
    n_discovery: int = 128
    n_heldout: int = 384
    max_heads: int = 3
    n_random: int = 10

    def __post_init__(self) -> None:
        for name in ("targets_a", "targets_b"):
            targets = getattr(self, name)
            if len(targets) != 3 or not all(math.isfinite(one) for one in targets) or not any(targets):
                raise InvalidInput(f"{name} is three finite numbers, not all 0, not {targets!r}")
        if not 0.5 <= self.cue <= 1:
            raise InvalidInput(f"cue lies between 0.5 and 1, not {self.cue!r}")
        if self.optimizer not in get_args(Optimizer):
            raise InvalidInput(f"optimizer is 'adam' or 'sgd', not {self.optimizer!r}")
        for name in ("init_scale", "learning_rate"):
            if not (getattr(self, name) > 0 and math.isfinite(getattr(self, name))):
                raise InvalidInput(f"{name} is a number above 0, not {getattr(self, name)!r}")
        for name in ("steps", "batch_size", "n_discovery", "n_heldout", "max_heads", "n_random"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise InvalidInput(f"{name} is a whole number from 1, not {value!r}")
        if self.n_discovery + self.n_heldout > 512:
            raise InvalidInput(
                f"there are 512 prompts, but {self.n_discovery} discovery and {self.n_heldout} held-out were asked for"
            )
