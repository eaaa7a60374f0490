"""Where a result comes from: enough to say whether two results may be compared."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["Provenance"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """The circumstances of a search.

    Attributes:
        model: Name or folder the model was loaded from.
        backend: ``"hooked"`` for a ``HookedTransformer``.
        n_layers: Layers of the model.
        n_heads: Query heads in each layer.
        n_key_value_heads: Key/value heads in each layer; equal to ``n_heads`` without grouping.
        dtype: Number format of the weights, for example ``"float32"``.
        device: Device type, for example ``"cpu"``.
        weights_digest: SHA-256 over a fixed sample of every weight tensor.
        prepends_bos: Whether prompts start with a beginning-of-sequence token.
        task: Name of the task.
        protocol: How the model was asked.
        metric: How right and wrong were told apart.
        engine: ``"sweep"`` or ``"reference"``, the latter with a reason where the model forced it.
        prompt_digest: SHA-256 over the rendered prompts of both panels.
        panel_digest: SHA-256 over the example ids of both panels.
        freeze_digest: SHA-256 over the choice as it stood before anything of held-out was read.
        started: Start of the search, ISO 8601 with time zone.
        seconds: Wall time of each stage, in seconds.
        versions: Version of Python and of each package that influences the answers; for tasks that run
            programs also how these are shut in, and their limits.
        discovery_flags: For the intact model and for the chosen heads, how many discovery examples
            carried each flag (``"no-answer"``, ``"capped"``, ...): ``{"intact": {...}, "ablated": {...}}``.
        heldout_flags: The same on held-out.
        inactive: Screened heads whose output was zero everywhere, as names.
    """

    model: str
    backend: str
    n_layers: int
    n_heads: int
    n_key_value_heads: int
    dtype: str
    device: str
    weights_digest: str
    prepends_bos: bool
    task: str
    protocol: str
    metric: str
    engine: str
    prompt_digest: str
    panel_digest: str
    freeze_digest: str
    started: str
    seconds: dict[str, float] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    discovery_flags: dict[str, dict[str, int]] = field(default_factory=dict)
    heldout_flags: dict[str, dict[str, int]] = field(default_factory=dict)
    inactive: tuple[str, ...] = ()
