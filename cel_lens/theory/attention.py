"""The same model as a literal softmax attention over paired memory tokens (our construction).

Feature j owns a pair of memory tokens with keys ``+-k_j e_j`` and a query token along ``e_j``. The
scores of the pair are ``+-s``, so its softmax weights differ by ``tanh s`` and the pair's values,
which are opposite, leave ``v_j tanh(s) e_j``. Three conditions are needed: a query sees only its own
pair (the block mask), the scores carry no 1/sqrt(d) factor, and the readout is a fixed sum.

Shapes: B inputs, H heads, F features (as many query positions and as many dimensions), 2 tokens a pair.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cel_lens.errors import InvalidInput
from cel_lens.theory.parameters import Setting

__all__ = ["Construction", "Population", "attention_output", "literal_objective", "task_population"]

Construction: TypeAlias = Literal["value", "sign"]
"""Where the input x_j enters: the pair's values (every real x_j) or the query's sign (x_j in -1, 0, 1)."""

_ComplexOrFloat: TypeAlias = NDArray[Any]
"""float64, or complex128 when a gradient is taken with a complex step."""


class Population(NamedTuple):
    """Equally likely inputs of a task and what the task wants for them."""

    inputs: NDArray[np.float64]
    """Shape (B, 3); the private feature of the other task is 0."""
    answers: NDArray[np.float64]
    """Shape (B,)."""


def task_population(setting: Setting, task: Literal["A", "B"]) -> Population:
    """The four equally likely inputs of a task, whose mean squared error is exactly R_A or R_B.

    The task's two coordinates are independent signs; the third is 0 (``x_2`` for A, ``x_1`` for B).

    Raises:
        InvalidInput: If the task is neither "A" nor "B".
    """
    if task not in ("A", "B"):
        raise InvalidInput(f"task {task!r} is unknown: give 'A' or 'B'")
    signs = np.array([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]])
    inputs = np.zeros((4, 3))
    inputs[:, 0] = signs[:, 0]
    inputs[:, 1 if task == "A" else 2] = signs[:, 1]
    target = np.array([0.0, setting.b, 0.0]) if task == "A" else np.array([setting.a, 0.0, setting.c])
    return Population(inputs, inputs @ target)


def attention_output(
    quartets: ArrayLike, inputs: ArrayLike, *, construction: Construction = "value"
) -> _ComplexOrFloat:
    """Scalar output ``f(x)`` of the attention layer, computed with projections and a softmax.

    Query tokens have shape (B, F, F), memory (B, F, 2, 2F): its first half is read by the keys, its
    second by the values. The projections are diagonal matrices of shape (H, F, F); scores and weights
    have shape (B, H, F, 2), the heads' outputs (B, H, F, F), and f sums heads, positions and dimensions.

    Args:
        quartets: Shape (F, H, 4); complex values are allowed, for complex-step derivatives.
        inputs: Shape (B, F).
        construction: ``"value"`` or ``"sign"``.

    Returns:
        Shape (B,). Equals ``sum_j x_j sum_h o v tanh(q k)``, for "sign" only where x_j is -1, 0 or 1.

    Raises:
        InvalidInput: If the construction is unknown.
    """
    if construction not in ("value", "sign"):
        raise InvalidInput(f"construction {construction!r} is unknown: give 'value' or 'sign'")
    weights, x = np.asarray(quartets), np.asarray(inputs, dtype=np.float64)
    n_features = weights.shape[0]
    axes = np.eye(n_features)
    # (4, H, F, F): W_Q, W_K, W_V, W_O with the quartets on their diagonals
    w_q, w_k, w_v, w_o = np.einsum("fhi,fd->ihfd", weights, axes)
    carried = x[:, :, None] * axes  # (B, F, F): token j is x_j e_j
    plain = np.broadcast_to(axes, carried.shape)
    queries = carried if construction == "sign" else plain
    values = carried if construction == "value" else plain
    pair = np.array([1.0, -1.0])[None, None, :, None]
    memory = np.concatenate([pair * plain[:, :, None], pair * values[:, :, None]], axis=-1)  # (B, F, 2, 2F)
    projected_q = np.einsum("bfd,hde->bhfe", queries, w_q)
    projected_k = np.einsum("bfsd,hde->bhfse", memory[..., :n_features], w_k)
    projected_v = np.einsum("bfsd,hde->bhfse", memory[..., n_features:], w_v)
    attended = _softmax(np.einsum("bhfe,bhfse->bhfs", projected_q, projected_k))
    mixed = np.einsum("bhfs,bhfse->bhfe", attended, projected_v)
    return np.asarray(np.einsum("bhfe,hed->b", mixed, w_o))


def literal_objective(quartets: ArrayLike, setting: Setting, *, construction: Construction = "value") -> Any:
    """J evaluated through `attention_output` on the inputs of both tasks.

    Args:
        quartets: Shape (3, H, 4), real or complex.
        setting: Targets a, b and c.
        construction: ``"value"`` or ``"sign"``.

    Returns:
        A scalar, complex when the quartets are (the analytic continuation, for complex steps).
    """
    total: Any = 0.0
    tasks: tuple[Literal["A", "B"], ...] = ("A", "B")
    for task in tasks:
        inputs, answers = task_population(setting, task)
        errors = attention_output(quartets, inputs, construction=construction) - answers
        total = total + np.mean(errors**2)
    return total / 4


def _softmax(scores: _ComplexOrFloat) -> _ComplexOrFloat:
    """Softmax over the last axis; the shift uses real parts so that it stays analytic."""
    exponentials = np.exp(scores - scores.real.max(axis=-1, keepdims=True))
    return np.asarray(exponentials / exponentials.sum(axis=-1, keepdims=True))
