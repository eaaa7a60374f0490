"""Disjoint discovery and held-out panels, the same for everybody who uses the same seed.

Every example has a place in an order that depends on the seed and on its id alone. Discovery takes
from the front of that order and held-out from the back. The panels of one draw share nothing. Panels
drawn with *other sizes* may share examples with them: a kind of example too small for both panels is
split in proportion to the sizes, so the sizes belong to a panel as the seed does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Literal

from cel_lens.errors import InvalidInput
from cel_lens.tasks.base import Example

__all__ = ["Panels", "make_panels", "panel_digest"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Panels:
    """The examples of a search.

    Attributes:
        discovery: Heads are chosen on these.
        heldout: The frozen choice is measured on these, once.

    Raises:
        InvalidInput: If a panel is empty, an id is repeated, or the panels share an id or a group.
    """

    discovery: tuple[Example, ...]
    heldout: tuple[Example, ...]

    def __post_init__(self) -> None:
        for name, panel in (("discovery", self.discovery), ("held-out", self.heldout)):
            if not panel:
                raise InvalidInput(f"the {name} panel is empty")
            _refuse_repeated(panel)
        shared = {one.id for one in self.discovery} & {one.id for one in self.heldout}
        if shared:
            raise InvalidInput(f"the panels overlap: {_some(shared)} stand in both discovery and held-out")
        groups = {one.group for one in self.discovery} & {one.group for one in self.heldout} - {""}
        if groups:
            raise InvalidInput(
                f"the panels overlap: examples of one group ({_some(groups)}) stand in both discovery and held-out"
            )

    def side(self, name: Literal["discovery", "heldout"]) -> tuple[Example, ...]:
        """The panel of that name.

        Raises:
            InvalidInput: If the name is another one.
        """
        if name not in ("discovery", "heldout"):
            raise InvalidInput(f"a panel is 'discovery' or 'heldout', not {name!r}")
        return self.discovery if name == "discovery" else self.heldout


def make_panels(examples: Sequence[Example], *, n_discovery: int, n_heldout: int, seed: int = 0) -> Panels:
    """Draw the panels of a search.

    Strata are filled evenly as far as their examples reach, and with the same mix in both panels; a
    group stands on one panel only, and once on discovery; a fixed :attr:`Example.split` is kept.

    Args:
        examples: All examples of a task.
        n_discovery: Size of discovery.
        n_heldout: Size of held-out.
        seed: Another seed gives other panels.

    Raises:
        InvalidInput: If an id is repeated or there are too few examples.
    """
    _refuse_repeated(examples)
    ordered = sorted(examples, key=lambda one: (_place(seed, one.group or one.id), _place(seed, one.id)))
    front = _by_stratum([one for one in ordered if one.split != "heldout"], once=True)
    back = _by_stratum([one for one in reversed(ordered) if one.split != "discovery"], once=False)
    sizes = {name: len({one.id for one in front.get(name, []) + back.get(name, [])}) for name in front | back}
    first, last = _allot(
        {name: len(found) for name, found in front.items()},
        {name: len(found) for name, found in back.items()},
        sizes,
        (n_discovery, n_heldout),
    )
    discovery = _take(front, first, set())
    heldout = _take(back, last, {one.group or one.id for one in discovery})
    heldout += _top_up(back, discovery, heldout, n_heldout - len(heldout))
    if len(discovery) < n_discovery or len(heldout) < n_heldout:
        raise InvalidInput(
            f"{n_discovery} discovery and {n_heldout} held-out examples were asked for, but the task's "
            f"{len(ordered)} examples give at most {len(discovery)} and {len(heldout)} that share nothing: "
            "ask for fewer"
        )
    return Panels(discovery=tuple(discovery), heldout=tuple(heldout))


def panel_digest(panels: Panels) -> str:
    """SHA-256 over the ordered ids of both panels."""
    text = "\n".join([*(one.id for one in panels.discovery), "", *(one.id for one in panels.heldout)])
    return sha256(text.encode()).hexdigest()


def _place(seed: int, name: str) -> str:
    return sha256(f"{seed}\n{name}".encode()).hexdigest()


def _refuse_repeated(examples: Sequence[Example]) -> None:
    if not examples:
        raise InvalidInput("the task has no examples")
    repeated = [name for name, times in Counter(one.id for one in examples).items() if times > 1]
    if repeated:
        raise InvalidInput(f"example ids are unique, but {_some(repeated)} occur more than once")


def _some(names: set[str] | Sequence[str]) -> str:
    shown = sorted(names)[:3]
    rest = len(names) - len(shown)
    return ", ".join(repr(name if len(name) <= 60 else name[:57] + "...") for name in shown) + (
        f" and {rest} more" if rest else ""
    )


def _by_stratum(examples: Sequence[Example], *, once: bool) -> dict[str, list[Example]]:
    """Examples of each stratum in order; with ``once``, only the first of each group."""
    found: dict[str, list[Example]] = {}
    seen: set[str] = set()
    for one in examples:
        group = one.group or one.id
        if once and group in seen:
            continue
        seen.add(group)
        found.setdefault(one.stratum, []).append(one)
    return dict(sorted(found.items()))


def _fill(n: int, capacity: Mapping[str, int]) -> dict[str, int]:
    """Share n places evenly among strata of limited capacity."""
    shares = dict.fromkeys(capacity, 0)
    left = min(n, sum(capacity.values()))
    while left:
        open_ones = [name for name in shares if shares[name] < capacity[name]]
        step = max(1, min(left // len(open_ones), *(capacity[name] - shares[name] for name in open_ones)))
        for name in open_ones[:left]:
            shares[name] += step
            left -= step
    return shares


def _allot(
    front: Mapping[str, int], back: Mapping[str, int], sizes: Mapping[str, int], wanted: tuple[int, int]
) -> tuple[dict[str, int], dict[str, int]]:
    """How many of each stratum go to each panel; a stratum too small for both is split in proportion."""
    caps_front, caps_back = dict(front), dict(back)
    for _ in range(len(sizes) + 1):
        first, last = _fill(wanted[0], caps_front), _fill(wanted[1], caps_back)
        short = [name for name in sizes if first.get(name, 0) + last.get(name, 0) > sizes[name]]
        if not short or len(sizes) == 1:
            break
        for name in short:
            caps_front[name] = min(front.get(name, 0), round(sizes[name] * wanted[0] / sum(wanted)))
            caps_back[name] = min(back.get(name, 0), sizes[name] - caps_front[name])
    return first, last


def _take(
    strata: Mapping[str, Sequence[Example]], shares: Mapping[str, int], taken: set[str]
) -> list[Example]:
    """The first examples of each stratum outside the taken groups, strata taking turns."""
    columns = [
        [one for one in found if (one.group or one.id) not in taken][: shares.get(name, 0)]
        for name, found in strata.items()
    ]
    longest = max((len(column) for column in columns), default=0)
    return [column[place] for place in range(longest) for column in columns if place < len(column)]


def _top_up(
    strata: Mapping[str, Sequence[Example]],
    discovery: Sequence[Example],
    heldout: Sequence[Example],
    missing: int,
) -> list[Example]:
    """Further held-out examples where groups that span strata left a stratum short."""
    if missing <= 0:
        return []
    groups = {one.group or one.id for one in discovery}
    present = {one.id for one in heldout}
    rest = [one for found in strata.values() for one in found if one.id not in present]
    return [one for one in rest if (one.group or one.id) not in groups][:missing]
