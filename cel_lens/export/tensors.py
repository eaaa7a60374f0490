"""Safetensors files as bytes: where a tensor lies, and zeros written over a part of it.

Nothing is decoded, so every other byte stays as it was. A file is an 8-byte little-endian length, a JSON header of that
length with the type, shape and place of every tensor, and the tensors, row by row.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from cel_lens.errors import ModelLoadError

__all__ = ["TensorPlace", "read_places", "write_zeros"]

_BYTES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2}
"""Number formats in which zero bytes are the number zero and every number has whole bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorPlace:
    """Where a tensor lies.

    Attributes:
        file: The safetensors file.
        name: Name of the tensor.
        dtype: Its number format, as the file spells it, for example ``"BF16"``.
        shape: Its shape.
        start: Position of its first byte in the file.
    """

    file: Path
    name: str
    dtype: str
    shape: tuple[int, ...]
    start: int


def read_places(file: Path, model: str) -> dict[str, TensorPlace]:
    """Read the header of a safetensors file.

    Args:
        file: The file.
        model: How messages call the model.

    Returns:
        The place of every tensor, by name.

    Raises:
        ModelLoadError: If it is no safetensors file, or is cut short.
    """
    try:
        with file.open("rb") as stream:
            length = int.from_bytes(stream.read(8), "little")
            size = file.stat().st_size
            if length > size - 8:
                raise ValueError("its header is longer than the file")
            header = json.loads(stream.read(length))
        header.pop("__metadata__", None)
        places = {
            name: TensorPlace(
                file=file,
                name=name,
                dtype=str(entry["dtype"]),
                shape=tuple(int(one) for one in entry["shape"]),
                start=8 + length + int(entry["data_offsets"][0]),
            )
            for name, entry in header.items()
        }
        if any(8 + length + int(entry["data_offsets"][1]) > size for entry in header.values()):
            raise ValueError("it ends before its last tensor")
    except (ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
        raise ModelLoadError(f"{file.name} of {model!r} is no whole safetensors file: {error}") from error
    return places


def write_zeros(place: TensorPlace, axis: Literal["columns", "rows"], first: int, last: int) -> None:
    """Overwrite rows or columns of a matrix with zeros, in its file.

    Args:
        place: A matrix in 16-, 32- or 64-bit floating point.
        axis: What ``first`` and ``last`` count.
        first: The first row or column.
        last: The one after the last.

    Raises:
        ModelLoadError: If the tensor is not such a matrix.
        OSError: If the file cannot be written.
    """
    width = _BYTES.get(place.dtype)
    if width is None or len(place.shape) != 2:
        raise ModelLoadError(
            f"{place.name} is {place.dtype} of shape {list(place.shape)}: heads can be removed from matrices in "
            f"{', '.join(_BYTES)} only"
        )
    n_rows, n_columns = place.shape
    if axis == "rows":
        spans = [(first * n_columns, (last - first) * n_columns)]
    else:
        spans = [(row * n_columns + first, last - first) for row in range(n_rows)]
    with place.file.open("r+b") as stream:
        for at, count in spans:
            stream.seek(place.start + at * width)
            stream.write(bytes(count * width))
        stream.flush()
        os.fsync(stream.fileno())


def n_inputs(place: TensorPlace, axis: Literal["columns", "rows"]) -> int:
    """Length of an axis of a matrix; 0 if it is none."""
    return place.shape[1 if axis == "columns" else 0] if len(place.shape) == 2 else 0
