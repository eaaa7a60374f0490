"""How much memory a checkpoint needs, from the headers of its files, before a weight is read."""

from __future__ import annotations

import json
import math
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cel_lens.errors import ModelLoadError
from cel_lens.models.embedded import cached_folder
from cel_lens.models.sources import ModelSource

if TYPE_CHECKING:
    import torch

__all__ = ["MemoryNeed", "check_memory", "free_memory", "memory_need"]

_TABLE_POSITIONS = 2048  # with which TransformerLens starts; tables grow when a prompt is longer

_JOINT = ("c_attn.", "query_key_value.", "qkv_proj.", "attn_qkv.")


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryNeed:
    """Bytes, to a few per cent.

    Attributes:
        loaded: The loaded model.
        loading: The most at any time while it is loaded, on the processor's side: transformers' copy is still
            there while TransformerLens makes its own.
    """

    loaded: int
    loading: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sizes:
    """Numbers in a checkpoint.

    Attributes:
        weights: In its files.
        shared: In an embedding that is also the unembedding; ``HookedTransformer`` keeps both.
        tables: In the cosines and sines that ``HookedTransformer`` keeps in every layer.
        joint: In weights that hold queries, keys and values together, which the bridge also keeps apart.
    """

    weights: int
    shared: int
    tables: int
    joint: int


def memory_need(path: Path, dtype: torch.dtype, *, hooked: bool) -> MemoryNeed | None:
    """Estimate what a checkpoint needs.

    Args:
        path: A folder with safetensors files, or a GGUF file.
        dtype: Precision it is loaded in.
        hooked: Whether it becomes a ``HookedTransformer``, a copy in another layout, rather than a bridge.

    Returns:
        The estimate; ``None`` if the headers cannot be read, or the weights are pickles.
    """
    import torch

    sizes = _gguf_sizes(path) if path.is_file() else _folder_sizes(path)
    if sizes is None:
        return None
    each = torch.empty(0, dtype=dtype).element_size()
    if not hooked:
        bridged = each * (sizes.weights + sizes.joint)
        return MemoryNeed(loaded=bridged, loading=bridged)
    loaded = each * (sizes.weights + sizes.shared + sizes.tables)
    return MemoryNeed(loaded=loaded, loading=loaded + each * sizes.weights)


def free_memory(device: torch.device) -> int:
    """Bytes that can still be used on a device."""
    import psutil
    import torch

    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    return int(psutil.virtual_memory().available)


def check_memory(source: ModelSource, dtype: torch.dtype, device: torch.device, *, hooked: bool) -> None:
    """Refuse a model that does not fit; warn of one that fits but not while it is being loaded.

    Args:
        source: Where it lies; what is not on this machine yet is passed over.
        dtype: Precision it will be loaded in.
        device: Where it will run; it is read into the processor's memory first.
        hooked: Whether ``HookedTransformer`` is tried, which needs two copies for a while.

    Raises:
        ModelLoadError: If the loaded model is larger than what is free.
    """
    import torch

    path = cached_folder() if source.kind == "embedded" else source.path
    need = None if path is None else memory_need(path, dtype, hooked=hooked)
    if need is None:
        return
    format_name = str(dtype).removeprefix("torch.")
    narrower = "" if torch.empty(0, dtype=dtype).element_size() <= 2 else "dtype bfloat16, "
    host = torch.device("cpu")
    for place in dict.fromkeys((device, host)):
        free = free_memory(place)
        if need.loaded > free:
            raise ModelLoadError(
                f"{source.name!r} needs about {_gigabytes(need.loaded)} in {format_name} on {place}; "
                f"{_gigabytes(free)} free: use {narrower}another device or a smaller model"
            )
    if need.loading > (free := free_memory(host)):
        warnings.warn(
            f"{source.name!r} needs about {_gigabytes(need.loading)} in {format_name} while it is loaded; "
            f"{_gigabytes(free)} free: backend bridge needs about {_gigabytes(need.loading - need.loaded)}",
            stacklevel=3,
        )


def _gigabytes(size: int) -> str:
    return f"{size / 1e9:.1f} GB" if size >= 5e7 else f"{size / 1e6:.1f} MB"


def _folder_sizes(folder: Path) -> _Sizes | None:
    from safetensors import SafetensorError, safe_open

    shapes: dict[str, list[int]] = {}
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        for name in _files(folder):
            with safe_open(folder / name, "pt") as file:
                shapes |= {key: file.get_slice(key).get_shape() for key in file.keys()}  # noqa: SIM118
    except (OSError, ValueError, SafetensorError):  # reading the weights will say what is wrong
        return None
    if not shapes or not isinstance(config, dict):
        return None
    tied = not any(key.endswith(("lm_head.weight", "embed_out.weight")) for key in shapes)
    width, vocabulary = (_number(config, *names) for names in (("hidden_size", "n_embd"), ("vocab_size",)))
    return _Sizes(
        weights=sum(math.prod(shape) for shape in shapes.values()),
        shared=width * vocabulary if tied else 0,
        tables=_tables(config),
        joint=sum(math.prod(shape) for key, shape in shapes.items() if any(one in key for one in _JOINT)),
    )


def _files(folder: Path) -> list[str]:
    """The files that transformers would read; other copies of the weights may lie beside them."""
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        return sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
    if (folder / "model.safetensors").is_file():
        return ["model.safetensors"]
    return sorted(file.name for file in folder.glob("*.safetensors"))


def _tables(config: dict[str, Any]) -> int:
    """Cosines and sines of all layers, where positions are rotated."""
    rope = config.get("rope_parameters") or {}
    if not (rope or "rope_theta" in config or "rotary_pct" in config or "rotary_dim" in config):
        return 0
    layers = _number(config, "num_hidden_layers", "n_layer")
    heads = _number(config, "num_attention_heads", "n_head")
    width = _number(config, "head_dim") or _number(config, "hidden_size", "n_embd") // max(1, heads)
    part = (
        rope.get("partial_rotary_factor") or config.get("partial_rotary_factor") or config.get("rotary_pct")
    )
    positions = _number(config, "max_position_embeddings", "n_positions")
    return (
        2 * layers * min(positions, _TABLE_POSITIONS) * int(width * (part if isinstance(part, float) else 1))
    )


def _number(entries: dict[str, Any], *names: str) -> int:
    return next((entries[name] for name in names if isinstance(entries.get(name), int)), 0)


def _gguf_sizes(file: Path) -> _Sizes | None:
    import gguf

    try:
        reader = gguf.GGUFReader(file)
        fields = {key: field.contents() for key, field in reader.fields.items() if "tokenizer" not in key}
    except Exception:  # reading the weights will say what is wrong; gguf has no exceptions of its own
        return None
    kind = fields.get("general.architecture")
    entries = {key.removeprefix(f"{kind}."): value for key, value in fields.items()}
    elements = {tensor.name: int(tensor.n_elements) for tensor in reader.tensors}
    layers = _number(entries, "block_count")
    positions = min(_number(entries, "context_length"), _TABLE_POSITIONS)
    return _Sizes(
        weights=sum(elements.values()),
        shared=0 if "output.weight" in elements else elements.get("token_embd.weight", 0),
        tables=2 * layers * positions * _number(entries, "rope.dimension_count"),
        joint=sum(size for name, size in elements.items() if any(one in name for one in _JOINT)),
    )
