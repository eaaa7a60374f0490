"""What a search keeps of one condition: verdicts and counts, small enough for thousands of conditions."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from typing import Any

import numpy as np
import numpy.typing as npt

from cel_lens.errors import RunFolderError
from cel_lens.heads import HeadSet
from cel_lens.results import Outcomes

__all__ = ["ConditionRecord", "digest_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConditionRecord:
    """One head set on one panel.

    Attributes:
        heads: The removed heads.
        correct: One verdict for each example, in panel order.
        flags: How many examples carried each flag.
        inactive: Removed heads that had no output.
        digest: SHA-256 over answers, texts and tokens, to compare repeated runs. Log-likelihoods are left
            out: their last digits depend on what runs together.
    """

    heads: HeadSet
    correct: tuple[bool, ...]
    flags: Mapping[str, int]
    inactive: HeadSet
    digest: str

    @property
    def verdicts(self) -> npt.NDArray[np.bool_]:
        """The verdicts as an array, shape ``[examples]``."""
        return np.array(self.correct, dtype=np.bool_)

    @classmethod
    def of(cls, outcomes: Outcomes) -> ConditionRecord:
        """Keep what a search needs of full outcomes."""
        return cls(
            heads=outcomes.heads,
            correct=outcomes.correct,
            flags=dict(sorted(Counter(flag for one in outcomes.details for flag in one.flags).items())),
            inactive=outcomes.inactive,
            digest=digest_of([asdict(replace(one, log_likelihoods=())) for one in outcomes.details]),
        )

    @classmethod
    def assemble(cls, parts: Sequence[tuple[Sequence[int], ConditionRecord]]) -> ConditionRecord:
        """Put records of parts of a panel together.

        Args:
            parts: Positions in the panel with the record of the examples there, in the same order;
                together every position once.
        """
        first = parts[0][1]
        by_place = {
            place: right for places, one in parts for place, right in zip(places, one.correct, strict=True)
        }
        flags: Counter[str] = Counter()
        for _, one in parts:
            flags.update(one.flags)
        inactive = set(first.inactive).intersection(*(one.inactive for _, one in parts))
        return cls(
            heads=first.heads,
            correct=tuple(by_place[place] for place in range(len(by_place))),
            flags=dict(sorted(flags.items())),
            inactive=HeadSet(tuple(sorted(inactive))),
            digest=digest_of([one.digest for _, one in parts]),
        )

    def to_json(self) -> dict[str, Any]:
        """The record as values that JSON can hold."""
        return {
            "heads": str(self.heads),
            "correct": "".join("1" if one else "0" for one in self.correct),
            "flags": dict(self.flags),
            "inactive": str(self.inactive),
            "digest": self.digest,
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any], heads: HeadSet, n_examples: int) -> ConditionRecord:
        """Read :meth:`to_json`, checked against the condition and the panel it should belong to.

        Raises:
            RunFolderError: If it belongs to another condition or panel, or is damaged.
        """
        try:
            text = document["correct"]
            if document["heads"] != str(heads) or len(text) != n_examples or set(text) - {"0", "1"}:
                raise ValueError("it belongs to another condition or panel")
            return cls(
                heads=heads,
                correct=tuple(one == "1" for one in text),
                flags={str(name): int(count) for name, count in document["flags"].items()},
                inactive=HeadSet.of(document["inactive"]),
                digest=str(document["digest"]),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise RunFolderError(f"the journal's record of {heads.label} is damaged: {error}") from error


def digest_of(value: Any) -> str:
    """SHA-256 over a JSON value, independent of key order."""
    return sha256(json.dumps(value, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
