"""Read a checkpoint with transformers: a folder of safetensors, or a GGUF file."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cel_lens.errors import ModelLoadError, UnsupportedModel
from cel_lens.models.facts import tokenizer_eos
from cel_lens.models.quiet import quiet

if TYPE_CHECKING:
    import torch

__all__ = ["Checkpoint", "first_line", "read_config", "read_folder", "read_gguf"]

_TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer.model",
    "vocab.json",
    "vocab.txt",
    "spiece.model",
    "tekken.json",
)


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """A model as transformers reads it, before TransformerLens.

    Attributes:
        name: How messages call it.
        config: The entries of ``config.json``, with ``architectures`` filled in.
        hf_model: The transformers model, on the CPU.
        tokenizer: Its own tokenizer, unchanged.
        eos_token_ids: From the generation config, else the config, else the tokenizer.
    """

    name: str
    config: dict[str, Any]
    hf_model: Any
    tokenizer: Any
    eos_token_ids: tuple[int, ...]


def read_config(folder: Path, name: str) -> dict[str, Any]:
    """Read and check ``config.json``: a decoder-only language model whose weights are not packed.

    Raises:
        ModelLoadError: If the folder or the file is missing or is no JSON object.
        UnsupportedModel: If it is another kind of model or holds packed, quantised weights.
    """
    if not folder.is_dir():
        raise ModelLoadError(f"there is no folder {name!r}: check the path of the model")
    file = folder / "config.json"
    if not file.is_file():
        raise ModelLoadError(
            f"{name!r} has no config.json: give the folder that holds it beside the safetensors files"
        )
    config = _read_json(file, name)
    quantization = config.get("quantization_config") or config.get("compression_config")
    if quantization:
        method = quantization.get("quant_method", "unknown") if isinstance(quantization, dict) else "unknown"
        raise UnsupportedModel(
            f"{name!r} holds packed, quantised weights (method {method}): use the unquantised checkpoint, "
            f"or a .gguf file, which is unpacked while loading"
        )
    return {**config, "architectures": [_architecture(config, name)]}


def _read_json(file: Path, name: str) -> dict[str, Any]:
    try:
        entries = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelLoadError(f"{file.name} of {name!r} cannot be read: {first_line(error)}") from error
    if not isinstance(entries, dict):
        raise ModelLoadError(f"{file.name} of {name!r} is not a JSON object")
    return entries


def _architecture(config: dict[str, Any], name: str) -> str:
    model_type = config.get("model_type")
    if config.get("is_encoder_decoder"):
        raise UnsupportedModel(
            f"{name!r} is an encoder-decoder ({model_type}): only decoder-only models work"
        )
    declared = (config.get("architectures") or [None])[0]
    if declared is None or str(declared).endswith("Model"):  # absent, or the body without its language head
        with quiet():
            from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

            declared = MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.get(str(model_type), declared)
    if not str(declared).endswith(("ForCausalLM", "LMHeadModel", "LMHeadCustomModel")):
        raise UnsupportedModel(
            f"{name!r} is no decoder-only language model that transformers knows "
            f"(model_type {model_type}, architecture {declared})"
        )
    return str(declared)


def read_folder(folder: Path, name: str, dtype: torch.dtype, *, pickles: bool = False) -> Checkpoint:
    """Read a folder with ``config.json``, safetensors and tokenizer files.

    Args:
        folder: The folder.
        name: How messages call it.
        dtype: Precision to read the weights in.
        pickles: Whether PyTorch ``.bin`` files will do; transformers reads only tensors from them.

    Raises:
        ModelLoadError: If something is missing or damaged.
        UnsupportedModel: If the model is of another kind or quantised.
    """
    config = read_config(folder, name)
    if not any(folder.glob("*.safetensors")):
        has_pickles = any(folder.glob("*.bin")) or any(folder.glob("*.pt*"))
        if not has_pickles:
            raise ModelLoadError(f"{name!r} has no .safetensors file: the weights are missing")
        if not pickles:
            raise ModelLoadError(
                f"{name!r} holds its weights as PyTorch pickles only: convert them first, with "
                f"save_pretrained of transformers, to safetensors"
            )
    if (folder / "generation_config.json").exists():
        # transformers would pass over a damaged one, and the end-of-text tokens with it.
        _read_json(folder / "generation_config.json", name)
    _check_known(folder, name)
    tokenizer = _read_tokenizer(folder, name)
    with quiet():
        hf_model, info = _from_pretrained(name, folder, dtype=dtype)
    absent = sorted(info.get("missing_keys", ()))
    if absent:
        raise ModelLoadError(
            f"{name!r} is incomplete: {len(absent)} weights are missing from its files, the first is {absent[0]!r}"
        )
    return Checkpoint(
        name=name,
        config=config,
        hf_model=hf_model,
        tokenizer=tokenizer,
        eos_token_ids=_eos_ids(hf_model, config, tokenizer),
    )


def read_gguf(file: Path, name: str, dtype: torch.dtype) -> Checkpoint:
    """Read a GGUF file; transformers unpacks its quantised weights.

    Raises:
        ModelLoadError: If the file is missing or damaged.
        UnsupportedModel: If transformers does not know the architecture in the file.
    """
    if not file.is_file():
        raise ModelLoadError(f"there is no file {name!r}: check the path of the model")
    digits = _gguf_pre_tokenizer(file, name) == "smollm"
    with quiet():
        from transformers import AutoTokenizer

        try:
            tokenizer = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
        except Exception as error:
            raise UnsupportedModel(f"transformers cannot unpack {name!r}: {first_line(error)}") from error
        if digits:
            _split_digits(tokenizer)
        hf_model, _ = _from_pretrained(name, file.parent, dtype=dtype, gguf_file=file.name)
    # The weights are ordinary tensors now: forget that they were packed, so that they can be saved.
    if hasattr(hf_model.config, "quantization_config"):
        del hf_model.config.quantization_config
    hf_model.hf_quantizer = None
    config = hf_model.config.to_dict()
    config["architectures"] = [_architecture({**config, "architectures": None}, name)]
    return Checkpoint(
        name=name,
        config=config,
        hf_model=hf_model,
        tokenizer=tokenizer,
        eos_token_ids=_eos_ids(hf_model, config, tokenizer),
    )


def _gguf_pre_tokenizer(file: Path, name: str) -> str:
    """The rule by which text is split before the merges; also proves that the file is readable."""
    with quiet():
        import gguf

        try:
            field = gguf.GGUFReader(file).fields.get("tokenizer.ggml.pre")
            return "" if field is None else str(field.contents())
        except Exception as error:
            raise ModelLoadError(f"{name!r} is not a readable GGUF file: {first_line(error)}") from error


def _split_digits(tokenizer: Any) -> None:
    """Give the tokenizer the digit rule that the conversion from GGUF leaves out."""
    from tokenizers.pre_tokenizers import ByteLevel, Digits, Sequence

    tokenizer.backend_tokenizer.pre_tokenizer = Sequence(
        [Digits(individual_digits=True), ByteLevel(add_prefix_space=False, use_regex=True)]
    )


def _check_known(folder: Path, name: str) -> None:
    """Refuse a config that transformers does not know or does not accept, before anything is read with it."""
    with quiet():
        from transformers import AutoConfig

        try:
            AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        except Exception as error:
            if "trust_remote_code" in str(error):
                raise UnsupportedModel(
                    f"{name!r} needs Python code of its own, which cel_lens does not run"
                ) from error
            text = first_line(error)
            if "recogni" in text:
                raise UnsupportedModel(f"transformers does not know the kind of {name!r}: {text}") from error
            raise ModelLoadError(f"config.json of {name!r} cannot be used: {text}") from error


def _read_tokenizer(folder: Path, name: str) -> Any:
    if not any((folder / file).is_file() for file in _TOKENIZER_FILES):
        raise ModelLoadError(
            f"{name!r} has no tokenizer files, such as tokenizer.json, beside its config.json"
        )
    with quiet():
        from transformers import AutoTokenizer

        try:
            return AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        except Exception as error:
            raise ModelLoadError(f"the tokenizer of {name!r} cannot be read: {first_line(error)}") from error


def _from_pretrained(name: str, folder: Path, **options: Any) -> tuple[Any, dict[str, Any]]:
    from transformers import AutoModelForCausalLM

    loader: Any = AutoModelForCausalLM  # its annotation does not know output_loading_info
    try:
        model, info = loader.from_pretrained(
            folder,
            local_files_only=True,
            trust_remote_code=False,
            attn_implementation="eager",  # like TransformerLens, so that rounding agrees
            output_loading_info=True,
            **options,
        )
    except MemoryError:
        raise
    except Exception as error:
        text = first_line(error)
        if isinstance(error, ValueError) and ("architecture" in text or "nrecognized" in text):
            raise UnsupportedModel(
                f"transformers does not know the kind of model in {name!r}: {text}"
            ) from error
        raise ModelLoadError(
            f"the weights of {name!r} cannot be read, a file may be damaged or cut short: {text}"
        ) from error
    return model.eval().requires_grad_(False), info


def _eos_ids(hf_model: Any, config: dict[str, Any], tokenizer: Any) -> tuple[int, ...]:
    for holder in (getattr(hf_model, "generation_config", None), config):
        ids = (
            holder.get("eos_token_id") if isinstance(holder, dict) else getattr(holder, "eos_token_id", None)
        )
        listed = ids if isinstance(ids, (list, tuple)) else (ids,)
        found = tuple(dict.fromkeys(i for i in listed if isinstance(i, int) and i >= 0))
        if found:
            return found
    return tokenizer_eos(tokenizer)


def first_line(error: BaseException) -> str:
    """What another library complained about, short enough for one sentence."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = lines[0] if lines else type(error).__name__
    if text.endswith(":") and len(lines) > 1:
        text = f"{text} {lines[1]}"
    return (text if len(text) <= 200 else text[:197] + "...").rstrip(".")
