"""Small transformers: made by their seed alone, and fit for everything that loaded models are fit for."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from cel_lens.errors import InvalidInput
from cel_lens.models import load_model, model_facts
from cel_lens.models.small import SmallShape, small_transformer

VOCABULARY = ("left", "right", "?")


def test_the_seed_alone_decides_the_weights_and_no_global_generator_moves() -> None:
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first = small_transformer(VOCABULARY, SmallShape(), seed=5)
    assert torch.equal(before, torch.get_rng_state())
    torch.manual_seed(2)
    again = small_transformer(VOCABULARY, SmallShape(), seed=5)
    other = small_transformer(VOCABULARY, SmallShape(), seed=6)
    weights = [dict(model.named_parameters()) for model in (first, again, other)]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
    assert not torch.equal(weights[0]["blocks.0.attn.W_Q"], weights[2]["blocks.0.attn.W_Q"])


def test_the_weights_have_the_scale_asked_for() -> None:
    shape = SmallShape(n_layers=2, d_mlp=48, normalize=True)
    model = small_transformer(VOCABULARY, shape, seed=0, init_scale=0.3)
    for name, weight in model.named_parameters():
        last = name.rpartition(".")[2]
        if last.startswith("W_"):
            n = weight.numel()
            assert abs(float(weight.detach().std()) - 0.3) < 4 * 0.3 / np.sqrt(2 * n), (
                name
            )  # four standard errors
        else:
            assert bool((weight == (1 if last == "w" else 0)).all()), name


def test_facts_words_and_checks_are_those_of_a_loaded_model() -> None:
    model = small_transformer(VOCABULARY, SmallShape(n_layers=2, n_heads=3), seed=0, name="mine")
    assert load_model(model) is model
    facts = model_facts(model)
    assert (facts.name, facts.n_layers, facts.n_heads, facts.prepends_bos) == ("mine", 2, 3, False)
    assert model.tokenizer.encode("right ? left", add_special_tokens=False) == [3, 4, 2]
    assert model(torch.tensor([[2, 3]]), prepend_bos=False).shape == (1, 2, 5)


@pytest.mark.parametrize("words", [(), ("a", "a"), ("a b",), ("",), ("<eos>",), "abc"])
def test_impossible_vocabularies_are_refused(words: tuple[str, ...]) -> None:
    with pytest.raises(InvalidInput):
        small_transformer(words, SmallShape(), seed=0)


def test_impossible_sizes_are_refused() -> None:
    for change in ({"n_layers": 0}, {"d_mlp": -1}, {"n_heads": True}, {"d_head": 2.0}):
        with pytest.raises(InvalidInput):
            SmallShape(**change)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="init_scale"):
        small_transformer(VOCABULARY, SmallShape(), seed=0, init_scale=0.0)
