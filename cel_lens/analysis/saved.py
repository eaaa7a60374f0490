"""A result, given as itself or as the folder it was saved in."""

from __future__ import annotations

import os
from typing import Any

from cel_lens.errors import InvalidInput
from cel_lens.results import BeneficialHeads

__all__ = ["Saved", "as_result"]

Saved = BeneficialHeads | str | os.PathLike[str]
"""A result, or the folder of a finished search."""


def as_result(given: Any) -> BeneficialHeads:
    """The result itself, read from disk if a folder is given.

    Raises:
        InvalidInput: If it is neither, or the folder holds no finished search.
    """
    if isinstance(given, BeneficialHeads):
        return given
    if isinstance(given, str | os.PathLike):
        return BeneficialHeads.load(given)
    raise InvalidInput(
        f"a result is what find_beneficial_heads gives, or the folder it was saved in, not {type(given).__name__}"
    )
