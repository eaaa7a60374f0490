"""What the answers looked like: a head that only helps the format has to be visible as such."""

from __future__ import annotations

from typing import NamedTuple

from cel_lens.results import BeneficialHeads, GainEstimate
from cel_lens.viz.wording import plural

__all__ = ["AnswerFlags", "FlagCount", "answer_flags"]

_MEANING = {
    "no-answer": "no answer could be extracted",
    "capped": "the limit of new tokens was reached",
    "tie": "two choices scored the same",
    "boundary-merge": "a token spans the border between prompt and continuation",
}


class FlagCount(NamedTuple):
    """How often one flag occurred on one panel.

    Attributes:
        flag: Name of the flag, for example ``"no-answer"``.
        meaning: The same in words; empty for a task's own flags.
        intact: Examples that carried it when intact.
        ablated: Examples that carried it without the chosen heads.
    """

    flag: str
    meaning: str
    intact: int
    ablated: int

    @property
    def change(self) -> int:
        """Ablated minus intact."""
        return self.ablated - self.intact


class AnswerFlags(NamedTuple):
    """The flags of one panel.

    Attributes:
        estimate: The gain on this panel.
        recorded: Whether the result holds flag counts of this panel at all.
        rows: One row for each flag that occurred, by name.
    """

    estimate: GainEstimate
    recorded: bool
    rows: tuple[FlagCount, ...]

    @property
    def verdict(self) -> str:
        """In words, whether the gain may be one of format rather than of content."""
        if not self.recorded:
            return "This result holds no counts of what the answers looked like."
        if not self.rows:
            return "No answer carried a flag: every one could be read and ended by itself."
        fewer = next((-row.change for row in self.rows if row.flag == "no-answer"), 0)
        if fewer > 0:
            return f"Without the heads, {plural(fewer, 'more answer')} could be read. " + self._share(fewer)
        if fewer < 0:
            return (
                f"Without the heads, {plural(-fewer, 'fewer answer')} could be read, so removal made the format "
                "worse; a gain is not explained by it."
            )
        return "As many answers could be read with the heads as without them; readability does not explain a change."

    def _share(self, readable: int) -> str:
        rescued = self.estimate.rescued
        if not rescued:
            return "None of them became right."
        return (
            f"Up to {min(readable, rescued)} of the {plural(rescued, 'rescued example')} may have changed in "
            "format, not in ability."
        )


def answer_flags(result: BeneficialHeads) -> tuple[AnswerFlags, AnswerFlags]:
    """Count the flags of intact and ablated answers, held-out first, then discovery."""
    provenance = result.provenance
    return (
        _panel(result.heldout, provenance.heldout_flags),
        _panel(result.discovery, provenance.discovery_flags),
    )


def _panel(estimate: GainEstimate, flags: dict[str, dict[str, int]]) -> AnswerFlags:
    intact, ablated = flags.get("intact", {}), flags.get("ablated", {})
    return AnswerFlags(
        estimate=estimate,
        recorded=bool(flags),
        rows=tuple(
            FlagCount(name, _MEANING.get(name, ""), intact.get(name, 0), ablated.get(name, 0))
            for name in sorted(intact.keys() | ablated.keys())
            if intact.get(name, 0) or ablated.get(name, 0)
        ),
    )
