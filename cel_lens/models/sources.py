"""What a user may name as a model, told apart without reading any weight."""

from __future__ import annotations

import difflib
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from cel_lens.errors import InvalidInput, ModelLoadError
from cel_lens.models.quiet import quiet

__all__ = ["EMBEDDED_NAME", "ModelSource", "SourceKind", "resolve_source"]

SourceKind = Literal["object", "embedded", "folder", "gguf", "hub"]

EMBEDDED_NAME = "smollm2-135m-instruct"

_REPO_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSource:
    """Where a model comes from.

    Attributes:
        kind: Which of the ways of loading applies.
        name: What the user asked for, as written.
        path: The folder or file, for a folder or a GGUF file.
        repo: The Hugging Face repository, for a model on the hub.
        listed: Whether TransformerLens knows the repository by name.
    """

    kind: SourceKind
    name: str
    path: Path | None = None
    repo: str | None = None
    listed: bool = False


def resolve_source(source: str | os.PathLike[str]) -> ModelSource:
    """Tell which kind of source a name or path is.

    An existing folder or file wins over a name, unless the folder holds no ``config.json`` and
    TransformerLens knows the name.

    Args:
        source: Embedded name, folder, GGUF file, TransformerLens name or alias, or ``owner/name``.

    Raises:
        InvalidInput: If the source is empty, or is a file of another kind.
        ModelLoadError: If nothing with this name or path exists.
    """
    name = os.fspath(source)
    if not isinstance(name, str) or not name.strip() or "\0" in name:
        raise InvalidInput(f"a model is a name, a folder or a .gguf file, not {source!r}")
    name = name.strip()
    if name.lower() == EMBEDDED_NAME:
        return ModelSource(kind="embedded", name=EMBEDDED_NAME)
    path = _as_path(name)
    if path.is_file():
        return _file(name, path)
    if (path / "config.json").is_file():
        return ModelSource(kind="folder", name=name, path=path)
    if not isinstance(source, str) or _looks_like_path(name):
        return _local(name, path)
    aliases = _listed_names()
    if name.lower() in aliases:
        return ModelSource(kind="hub", name=name, repo=aliases[name.lower()], listed=True)
    if path.is_dir():
        return ModelSource(kind="folder", name=name, path=path)
    if _REPO_ID.fullmatch(name):
        return ModelSource(kind="hub", name=name, repo=name)
    raise ModelLoadError(_unknown(name, sorted({*aliases, *aliases.values()})))


def _as_path(name: str) -> Path:
    try:
        path = Path(name).expanduser()
        path.exists()  # raises for names that no file can have
    except (OSError, RuntimeError, ValueError) as error:
        raise InvalidInput(f"{name[:60]!r} cannot be the name or the path of a model") from error
    return path


def _file(name: str, path: Path) -> ModelSource:
    if path.suffix.lower() == ".gguf":
        return ModelSource(kind="gguf", name=name, path=path)
    raise InvalidInput(
        f"{name!r} is a file that is not a .gguf: give a .gguf file, or the folder that holds "
        f"config.json and the safetensors files"
    )


def _local(name: str, path: Path) -> ModelSource:
    if path.is_dir():
        return ModelSource(kind="folder", name=name, path=path)
    what = "file" if path.suffix.lower() == ".gguf" else "folder"
    raise ModelLoadError(f"there is no {what} {name!r}: check the path of the model")


def _looks_like_path(name: str) -> bool:
    return (
        name.startswith((".", "~", "/", "\\"))
        or name.endswith(("/", "\\"))
        or name.count("/") > 1
        or "\\" in name
        or name.lower().endswith(".gguf")
    )


def _listed_names() -> dict[str, str]:
    """Every name and alias of TransformerLens in lower case, with its Hugging Face repository."""
    with quiet():
        from transformer_lens.supported_models import MODEL_ALIASES, OFFICIAL_MODEL_NAMES

    found: dict[str, str] = {}
    for repo in OFFICIAL_MODEL_NAMES:
        found |= {alias.lower(): repo for alias in MODEL_ALIASES.get(repo, [])}
        found[repo.lower()] = repo
    return found


def _unknown(name: str, known: list[str]) -> str:
    # Keys in lower case and the repositories' own spelling both stand in `known`: keep one of each.
    spelled = {entry.lower(): entry for entry in [*known, EMBEDDED_NAME]}
    asked = name.lower()
    near = [entry for entry in spelled if asked in entry] if len(asked) > 3 else []
    near = sorted(near, key=len)[:4] + difflib.get_close_matches(asked, list(spelled), n=4, cutoff=0.5)
    names = [spelled[entry] for entry in dict.fromkeys([*near[:4], EMBEDDED_NAME])]
    return (
        f"there is no model {name!r}: the nearest names are {', '.join(names)}; a local folder, a .gguf file "
        f"and an owner/name on Hugging Face also work"
    )
