"""Fetch a checkpoint from Hugging Face, or find it in the cache."""

from __future__ import annotations

import logging
import warnings
from pathlib import Path

from cel_lens.errors import ModelLoadError
from cel_lens.models.checkpoints import first_line, read_config
from cel_lens.models.quiet import quiet
from cel_lens.models.sources import ModelSource

__all__ = ["fetch", "reachable"]

_SMALL = ["*.json", "*.model", "*.txt", "*.jinja"]
_SUBFOLDERS = ["*/*", "consolidated*"]  # other formats of the same weights


def fetch(source: ModelSource, *, local_files_only: bool) -> Path:
    """Download a repository's config, tokenizer and weights; without a network, use the cache.

    Args:
        source: A source of kind ``"hub"``.
        local_files_only: Look in the cache only.

    Returns:
        The folder of the snapshot.

    Raises:
        ModelLoadError: If it is not cached and cannot be reached, does not exist, or needs permission.
        UnsupportedModel: If its config says that it cannot be used.
    """
    if source.repo in _not_hosted():
        raise ModelLoadError(
            f"Hugging Face does not host {source.name!r}: convert its weights to the transformers format and "
            f"give that folder"
        )
    # Config first: what cannot be used is refused before its weights are downloaded.
    read_config(_snapshot(source, _SMALL, local_files_only), source.name)
    folder = _snapshot(source, [*_SMALL, "*.safetensors"], local_files_only)
    if source.listed and not any(folder.glob("*.safetensors")):
        # Some models that TransformerLens lists exist as pickles only; transformers reads their tensors.
        folder = _snapshot(source, [*_SMALL, "pytorch_model*.bin"], local_files_only)
    if not any(folder.glob("*.safetensors")) and not any(folder.glob("*.bin")):
        raise ModelLoadError(
            f"the weights of {source.name!r} are not in the Hugging Face cache or not on the hub as "
            f"safetensors: connect to the network once, or give a local folder or a .gguf file"
        )
    return folder


def reachable(source: ModelSource, *, local_files_only: bool) -> None:
    """Raise ``ModelLoadError`` at once, where other code would try for half a minute."""
    _snapshot(source, ["config.json"], local_files_only)


def _not_hosted() -> list[str]:
    with quiet():
        from transformer_lens.loading_from_pretrained import NON_HF_HOSTED_MODEL_NAMES

        return list(NON_HF_HOSTED_MODEL_NAMES)


def _snapshot(source: ModelSource, patterns: list[str], local_files_only: bool) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import (
        GatedRepoError,
        LocalEntryNotFoundError,
        RepositoryNotFoundError,
    )

    name = repr(source.name) + ("" if source.name == source.repo else f" ({source.repo})")
    disabled = logging.root.manager.disable
    logging.disable(logging.CRITICAL)  # the progress bar of a download stays
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            folder = snapshot_download(
                str(source.repo),
                allow_patterns=patterns,
                ignore_patterns=_SUBFOLDERS,
                local_files_only=local_files_only,
            )
        return Path(folder)
    except LocalEntryNotFoundError as error:
        why = (
            "and looking elsewhere was not allowed"
            if local_files_only
            else "and Hugging Face cannot be reached"
        )
        raise ModelLoadError(
            f"the model {name} is not in the Hugging Face cache {why}: connect to the network, or give a "
            f"local folder, a .gguf file or the embedded smollm2-135m-instruct"
        ) from error
    except GatedRepoError as error:
        raise ModelLoadError(
            f"the model {name} needs permission: accept its licence on huggingface.co and log in with hf auth login"
        ) from error
    except RepositoryNotFoundError as error:
        raise ModelLoadError(f"Hugging Face has no public model {name}: check owner and name") from error
    except Exception as error:
        raise ModelLoadError(f"the model {name} cannot be fetched: {first_line(error)}") from error
    finally:
        logging.disable(disabled)
