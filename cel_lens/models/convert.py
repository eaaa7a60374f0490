"""Turn what transformers read into TransformerLens' ``HookedTransformer``, with raw weights."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from cel_lens.errors import ModelLoadError, UnsupportedModel
from cel_lens.models.backends import has_hooked, transformer_lens_name
from cel_lens.models.checkpoints import Checkpoint, first_line
from cel_lens.models.quiet import quiet
from cel_lens.models.sources import ModelSource

if TYPE_CHECKING:
    import torch
    from transformer_lens import HookedTransformer

__all__ = ["RESEARCH_OWNERS", "attach_tokenizer", "load_research_model", "to_hooked"]

# Owners of repositories in TransformerLens' own format, which transformers cannot read.
RESEARCH_OWNERS = ("NeelNanda/", "ArthurConmy/", "Baidicoot/")

# TransformerLens takes these words in the *path* of a checkpoint for its architecture.
_TELLING_WORDS = ("llama", "gemma", "wav2vec2", "hubert", "bert", "t5", "pythia")

# Architectures that it configures by the name of the repository only.
_BY_NAME = ("Gemma", "OlmoForCausalLM", "Olmo2ForCausalLM")

# Rope types that its branch for the architecture carries over.
_ROPE_TYPES = {
    "GptOssForCausalLM": {"yarn"},
    "LlamaForCausalLM": {"default", "llama3"},
    "Olmo3ForCausalLM": {"default", "yarn"},
}


def to_hooked(checkpoint: Checkpoint, dtype: torch.dtype, *, listed: str | None = None) -> HookedTransformer:
    """Convert a checkpoint without any processing: no folding, no centring, on the CPU.

    Args:
        checkpoint: What transformers read.
        dtype: Precision of the result.
        listed: The repository by which TransformerLens knows the model, if it does.

    Raises:
        UnsupportedModel: If TransformerLens cannot express the model.
    """
    with quiet():
        from transformer_lens import HookedTransformer
        from transformer_lens.loading_from_pretrained import get_pretrained_state_dict

        with _neutral_folder(checkpoint.config) as folder:
            by_name = checkpoint.config["architectures"][0].startswith(_BY_NAME)
            where = listed if listed is not None and by_name else str(folder)
            try:
                cfg = _config(checkpoint, where, dtype)
                state = get_pretrained_state_dict(where, cfg, checkpoint.hf_model, dtype=dtype)
                model = HookedTransformer(cfg, None, move_to_device=False)
                model.load_and_process_state_dict(
                    state,
                    fold_ln=False,
                    center_writing_weights=False,
                    center_unembed=False,
                    fold_value_biases=False,
                    refactor_factored_attn_matrices=False,
                )
            except MemoryError:
                raise
            except Exception as error:
                raise _refusal(checkpoint, first_line(error)) from error
        attach_tokenizer(model, checkpoint.tokenizer, checkpoint.eos_token_ids)
    model.eval()
    return model


def load_research_model(source: ModelSource, dtype: torch.dtype) -> HookedTransformer:
    """Load one of the small models that exist in TransformerLens' own format only, on the CPU.

    There is no transformers model to compare with.

    Raises:
        ModelLoadError: If it cannot be fetched or read.
        UnsupportedModel: If the installed TransformerLens has no ``HookedTransformer``.
    """
    if not has_hooked():
        raise UnsupportedModel(
            f"{source.name!r} exists for HookedTransformer only, which {transformer_lens_name()} does not have: "
            f"install transformer-lens below version 4"
        )
    with quiet():
        from transformer_lens import HookedTransformer
        from transformers import AutoTokenizer

        try:
            loaded = HookedTransformer.from_pretrained_no_processing(
                str(source.repo), device="cpu", dtype=dtype
            )
            model = cast("HookedTransformer", loaded)
            if model.cfg.tokenizer_name is not None:
                tokenizer = AutoTokenizer.from_pretrained(model.cfg.tokenizer_name, trust_remote_code=False)
                attach_tokenizer(model, tokenizer, ())
        except MemoryError:
            raise
        except Exception as error:
            raise ModelLoadError(
                f"the model {source.name!r} cannot be loaded: {first_line(error)}"
            ) from error
    model.eval()
    return model


def _refusal(checkpoint: Checkpoint, reason: str) -> UnsupportedModel:
    architecture = checkpoint.config["architectures"][0]
    return UnsupportedModel(
        f"HookedTransformer cannot express {checkpoint.name!r} ({architecture}): {reason}"
    )


@contextmanager
def _neutral_folder(config: dict[str, Any]) -> Iterator[Path]:
    """A temporary folder with only ``config.json``, whose path says nothing about the architecture."""
    parents = [tempfile.gettempdir(), "/var/tmp", "/tmp", "."]
    plain = [p for p in parents if not any(w in str(Path(p).resolve()).lower() for w in _TELLING_WORDS)]
    entries = dict(config)
    if "n_positions" in entries:
        entries.setdefault("n_ctx", entries["n_positions"])  # gone from transformers' GPT-2, still read there
    with tempfile.TemporaryDirectory(prefix="checkpoint-", dir=(plain or parents)[0]) as folder:
        (Path(folder) / "config.json").write_text(json.dumps(entries), encoding="utf-8")
        yield Path(folder)


def _config(checkpoint: Checkpoint, where: str, dtype: torch.dtype) -> Any:
    from transformer_lens.loading_from_pretrained import get_pretrained_model_config

    hf_config = checkpoint.hf_model.config
    cfg = get_pretrained_model_config(
        where, hf_cfg=hf_config.to_dict(), device="cpu", dtype=dtype, local_files_only=True
    )
    cfg.model_name = Path(checkpoint.name).name
    cfg.tokenizer_name = None  # else the constructor would look for it; ours is attached afterwards
    if cfg.positional_embedding_type == "rotary":
        _check_rope(checkpoint, cfg, listed=not Path(where).exists())
        # TransformerLens caps some contexts to save memory that it no longer spends.
        longest = getattr(hf_config, "max_position_embeddings", None) or cfg.n_ctx
        cfg.n_ctx = min(longest, _window(hf_config, cfg) or longest)
    return cfg


def _check_rope(checkpoint: Checkpoint, cfg: Any, *, listed: bool) -> None:
    """Refuse position rules that a short parity check would not notice."""
    rope = getattr(checkpoint.hf_model.config, "rope_parameters", None) or {}
    if listed or not isinstance(rope.get("rope_type", "default"), str):
        return
    kind = rope.get("rope_type", "default")
    allowed = _ROPE_TYPES.get(checkpoint.config["architectures"][0], {"default"})
    if kind not in allowed:
        raise ValueError(f"its rotary position scaling {kind!r} would be ignored")
    theta = rope.get("rope_theta")
    if theta is not None and int(theta) != int(cfg.rotary_base):
        raise ValueError(f"its rotary base {theta} would become {cfg.rotary_base}")


def _window(hf_config: Any, cfg: Any) -> int | None:
    """The sliding window, where layers have one that TransformerLens would leave out."""
    if cfg.use_local_attn or "sliding_attention" not in (getattr(hf_config, "layer_types", None) or ()):
        return None
    return getattr(hf_config, "sliding_window", None)


def attach_tokenizer(model: Any, tokenizer: Any, eos_token_ids: tuple[int, ...]) -> None:
    """Give the model its checkpoint's own tokenizer, which goes on encoding as the checkpoint does.

    ``HookedTransformer.set_tokenizer`` would load it again with a BOS token forced on.

    Args:
        model: Gets ``tokenizer`` and the two BOS settings of its ``cfg``.
        tokenizer: Gets an EOS and a padding token where it has none.
        eos_token_ids: The first one stands in for a missing EOS token.
    """
    if tokenizer.eos_token is None and eos_token_ids:
        tokenizer.eos_token = tokenizer.convert_ids_to_tokens(eos_token_ids[0])
    # Some tokenizer classes bring a padding token that this checkpoint has no embedding for.
    if tokenizer.pad_token is None or tokenizer.pad_token_id >= model.cfg.d_vocab:
        tokenizer.pad_token = tokenizer.eos_token or tokenizer.convert_ids_to_tokens(0)
    tokenizer.clean_up_tokenization_spaces = False  # decoding would drop spaces before punctuation
    bare = tokenizer("a", add_special_tokens=False)["input_ids"]
    full = tokenizer("a")["input_ids"]
    prepends = len(full) > len(bare) and full[0] == tokenizer.bos_token_id
    model.cfg.tokenizer_prepends_bos = prepends
    model.cfg.default_prepend_bos = prepends
    model.tokenizer = tokenizer
