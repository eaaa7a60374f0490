"""The model card of an export: what was removed, what was measured, and what was not."""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass
from typing import Literal

import cel_lens
from cel_lens.heads import Head, HeadSet
from cel_lens.models.originals import Original
from cel_lens.results import BeneficialHeads

__all__ = ["Removal", "model_card"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Removal:
    """The weights that became zero for one head.

    Attributes:
        head: The head.
        tensor: Name of the weight in the checkpoint.
        axis: What ``first`` and ``last`` count.
        first: The first row or column that is zero.
        last: The one after the last.
    """

    head: Head
    tensor: str
    axis: Literal["columns", "rows"]
    first: int
    last: int

    @property
    def where(self) -> str:
        """As one would write it in Python, for example ``weight[:, 64:128]``."""
        span = f"{self.first}:{self.last}"
        return f"{self.tensor}[:, {span}]" if self.axis == "columns" else f"{self.tensor}[{span}, :]"


def model_card(
    original: Original, heads: HeadSet, removals: tuple[Removal, ...], evidence: BeneficialHeads | None
) -> str:
    """The text of ``README.md``.

    Args:
        original: The checkpoint that was copied.
        heads: The removed heads.
        removals: What became zero.
        evidence: The search that chose the heads.
    """
    base = original.repo or original.name
    parts = [
        _front_matter(original),
        f"# {base} without {heads}\n",
        f"This is `{base}` with {_count(len(heads), 'attention head')} removed: {', '.join(map(str, heads))} (layer "
        "and query head, both counted from 0). The weights by which the output projection of their layer reads "
        "these heads are zero; every other byte of the weights, the tokenizer and the configuration are those of "
        f"the original. Written by cel_lens {cel_lens.__version__}.\n",
        "## What was measured\n",
        _measured(evidence) if evidence else _UNMEASURED,
        "## Limits\n",
        _limits(evidence),
        "## What was changed\n",
        "| head | zero in the checkpoint |\n|---|---|\n"
        + "".join(f"| {one.head} | `{one.where}` |\n" for one in removals),
        "## Use\n",
        _USE,
        "## How to reproduce\n",
        _reproduce(original, heads, evidence),
    ]
    return "\n".join(parts)


_UNMEASURED = "Nothing: these heads were named by hand, and no search stands behind them.\n"

_USE = """The architecture is unchanged, so everything that loads the original loads this folder:

```python
from transformers import AutoModelForCausalLM, AutoTokenizer

model = AutoModelForCausalLM.from_pretrained("path/to/this/folder")
tokenizer = AutoTokenizer.from_pretrained("path/to/this/folder")
```
"""


def _front_matter(original: Original) -> str:
    base = f"base_model: {json.dumps(original.repo)}\n" if original.repo else ""
    return (
        "---\nlibrary_name: transformers\npipeline_tag: text-generation\n"
        f"{base}tags:\n- cel-lens\n- attention-head-ablation\n---\n"
    )


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def _measured(result: BeneficialHeads) -> str:
    held, found, settings = result.heldout, result.provenance, result.config
    rows = [
        ("heads", str(result.heads)),
        ("task", f"`{found.task}`"),
        ("protocol", f"`{found.protocol}`"),
        ("metric", f"`{found.metric}`"),
        ("held-out examples", f"{held.n:,}, seed {settings.seed}"),
        ("intact", f"{held.intact_correct}/{held.n} = {100 * held.intact_accuracy:.1f} %"),
        ("without the heads", f"{held.ablated_correct}/{held.n} = {100 * held.ablated_accuracy:.1f} %"),
        ("**gain**", f"**{100 * held.gain:+.1f} percentage points**"),
        (
            f"{100 * held.confidence:.0f} % interval",
            f"{100 * held.ci_low:+.1f} to {100 * held.ci_high:+.1f} points",
        ),
        ("exact McNemar p", f"{held.p_value:.2g}"),
        ("rescued, damaged", f"{held.rescued} wrong answers became right, {held.damaged} right ones wrong"),
        (
            "on discovery",
            f"{100 * result.discovery.gain:+.1f} points, n = {result.discovery.n} ({result.discovery.note})",
        ),
        ("precision, device", f"{found.dtype}, {found.device}"),
        ("model as loaded", f"weights {found.weights_digest[:16]}"),
    ]
    table = "| | |\n|---|---|\n" + "".join(f"| {name} | {value} |\n" for name, value in rows)
    return f"{result.headline}\n\n{table}"


def _limits(result: BeneficialHeads | None) -> str:
    lines = []
    if result is not None:
        held = result.heldout
        n_screened = len(result.screening) + len(result.eliminated)
        if held.ci_low <= 0 <= held.ci_high:
            lines.append("The interval contains 0: chance explains the difference.")
        lines += [
            f"The heads were chosen as the best of {_count(n_screened, 'single head')} and "
            f"{_count(len(result.subsets), 'head set')} on {_count(result.discovery.n, 'other example')}; the figure "
            "on those is optimistic. Held-out was looked at once, after the choice.",
            f"The gain is that of `{result.provenance.task}` asked as `{result.provenance.protocol}`. Another wording, "
            "another task or another language may gain nothing or lose.",
            "A head can help by changing what the model knows or only how it writes it down: read some answers.",
        ]
    lines.append(
        "General abilities were not measured. Removing heads may damage them, and whatever the original model does "
        "wrong, this one may do too. The licence of the original holds."
    )
    return "".join(f"- {line}\n" for line in lines)


def _reproduce(original: Original, heads: HeadSet, result: BeneficialHeads | None) -> str:
    name = shlex.quote(original.name)
    if result is None:
        return f"```sh\ncel-lens export --model {name} --heads {heads} --to FOLDER\n```\n"
    found, settings = result.provenance, result.config
    layers = "" if settings.layers is None else f" --layers {','.join(map(str, settings.layers))}"
    versions = ", ".join(f"{name} {text}" for name, text in found.versions.items())
    command = (
        f"cel-lens search --model {name} --task {shlex.quote(found.task)} \\\n"
        f"    --discovery {settings.n_discovery} --heldout {settings.n_heldout} --seed {settings.seed} \\\n"
        f"    --k {settings.max_heads} --pool {settings.pool_size}{layers} --screening {settings.screening} \\\n"
        f"    --engine {settings.engine} --dtype {found.dtype} --out run\n"
    )
    return (
        f"```sh\n{command}cel-lens export run --to FOLDER\n```\n\n"
        f"with the options of the task that give the protocol `{found.protocol}` and the metric `{found.metric}`, and, "
        f"if the examples came from a file, that file. Run on {found.started[:10]} with {versions}.\n"
    )
