"""The reference engine against a naive loop over the transformers model, and its promises about batches."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch

from cel_lens.errors import EvaluationError, InvalidInput
from cel_lens.evaluation import Evaluator, evaluate_heads
from cel_lens.heads import HeadSet
from cel_lens.models import zero_ablation
from cel_lens.models.hooked import HookedLens
from cel_lens.results import Outcomes, SearchConfig
from cel_lens.tasks import Choose, Example, Generate, Verdict
from tests.evaluation.asks import CHOICES, PROMPTS, Asks, choosing, writing
from tests.models.oracle import greedy, likelihood
from tests.models.planted import COPY, NameTheColour, Table, build_planted
from tests.models.tiny import FAMILIES, tiny_hf, tiny_model

CONDITIONS = ("", "L0H1", "L1H2+L2H0", "L0H0+L0H1+L0H2+L0H3")


def measure(model: Any, task: Any, heads: str, batch_size: int = 3) -> Outcomes:
    return evaluate_heads(model, task, heads, config=SearchConfig(batch_size=batch_size, engine="reference"))


def encode(model: Any, text: str) -> list[int]:
    """As the checkpoint's own tokenizer encodes raw text."""
    found: list[int] = model.tokenizer.encode(text, add_special_tokens=False)
    return [model.tokenizer.bos_token_id, *found] if model.cfg.default_prepend_bos else found


@pytest.mark.parametrize("heads", CONDITIONS)
@pytest.mark.parametrize("family", FAMILIES)
def test_generated_tokens_equal_the_naive_uncached_loop(family: str, heads: str) -> None:
    model, hf = tiny_model(family), tiny_hf(family)
    expected = [greedy(family, hf, heads, encode(model, one), n_tokens=9, eos=[1]) for one in PROMPTS]
    for batch_size in (1, 3, 64):
        found = measure(model, writing(max_new_tokens=9), heads, batch_size)
        assert [one.token_ids for one in found.details] == expected
        assert [one.text for one in found.details] == [
            model.tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
            for ids in expected
        ]


@pytest.mark.parametrize("heads", CONDITIONS)
@pytest.mark.parametrize("family", FAMILIES)
def test_choice_scores_equal_single_rows_of_transformers(family: str, heads: str) -> None:
    model, hf = tiny_model(family), tiny_hf(family)
    expected = [
        [
            likelihood(
                family,
                hf,
                heads,
                encode(model, one),
                model.tokenizer.encode(choice, add_special_tokens=False),
            )
            for choice in CHOICES
        ]
        for one in PROMPTS
    ]
    for batch_size in (1, 3, 64):
        found = measure(model, choosing(), heads, batch_size)
        for detail, scores in zip(found.details, expected, strict=True):
            assert detail.log_likelihoods == pytest.approx([one[0] for one in scores], abs=1e-4)
            assert detail.answer == str(tuple(one[1] for one in scores))


def test_the_tested_conditions_give_different_answers() -> None:
    for task in (writing(max_new_tokens=9), choosing()):
        answers = [measure(tiny_model("qwen2"), task, heads).details for heads in CONDITIONS]
        assert all(a != b for place, a in enumerate(answers) for b in answers[:place])


def test_greedy_paths_of_several_tokens_are_recognised() -> None:
    model, hf = tiny_model("llama"), tiny_hf("llama")
    requests, wanted = {}, []
    for place, prompt in enumerate(PROMPTS):
        path = greedy("llama", hf, "L1H1", encode(model, prompt), n_tokens=3)
        text = model.tokenizer.decode(path, skip_special_tokens=False)
        round_trip = tuple(encode(model, prompt + text)) == (*encode(model, prompt), *path)
        if round_trip and text.strip():
            requests[str(place)] = Choose(context=prompt, choices=(text, text + "Z"))
            wanted.append(str((True, False)))
    assert len(wanted) >= 2, "no greedy path reads back as the same tokens, so the test proves nothing"
    found = measure(model, Asks(requests), "L1H1")
    assert [one.answer.split(",")[0] for one in found.details if one.answer] == ["(True"] * len(wanted)
    assert all(found.correct)


def test_a_tie_goes_to_the_lower_token() -> None:
    model = build_planted({"L0H0": {"red": {"red": 4.0, "blue": 4.0}}})
    scored = measure(model, choosing(("red ?",), (" red", " blue", " green")), "")
    assert scored.details[0].answer == str((True, False, False))
    low, tied, other = scored.details[0].log_likelihoods
    assert low == tied > other
    assert measure(model, writing(("red ?",), max_new_tokens=1), "").details[0].text == "red"
    assert measure(model, writing(("red ?",), max_new_tokens=1), "L0H0").details[0].token_ids == (0,)


def test_results_come_in_panel_order_whatever_the_batches() -> None:
    model = tiny_model("gpt2")
    task = writing(max_new_tokens=4)
    backwards = Asks(dict(reversed(task.requests.items())))
    found, reversed_found = measure(model, task, "L0H1", 2), measure(model, backwards, "L0H1", 2)
    assert found.example_ids == tuple(task.requests)
    assert reversed_found.example_ids == found.example_ids[::-1]
    assert reversed_found.details == found.details[::-1]


@pytest.mark.parametrize("task", [writing(max_new_tokens=5), choosing()], ids=["writing", "choosing"])
def test_intact_and_ablated_models_get_the_same_batches(task: Asks, monkeypatch: pytest.MonkeyPatch) -> None:
    fed: list[tuple[Any, Any]] = []
    original = HookedLens.residual

    def spy(self: HookedLens, tokens: Any, mask: Any, cache: Any = None) -> Any:
        if tokens.shape[1] > 1:
            fed.append((tokens.tolist(), mask.tolist()))
        return original(self, tokens, mask, cache)

    monkeypatch.setattr(HookedLens, "residual", spy)
    evaluator = Evaluator(tiny_model("qwen2"), task, batch_size=3, engine="reference")
    engine = evaluator.engine(task.examples())
    batches = []
    for heads in ("", "L0H1", "L1H2+L2H0"):
        list(engine.evaluate([HeadSet.of(heads)]))
        batches.append(fed.copy())
        fed.clear()
    assert batches[0] == batches[1] == batches[2]
    assert len(batches[0]) == 3, "seven examples in batches of three"
    widths = [len(mask[0]) for _, mask in batches[0]]
    assert widths == sorted(widths), "those of similar length share a batch"


def test_a_batch_pads_generation_on_the_left_and_choices_on_the_right(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    masks = []
    original = HookedLens.residual

    def spy(self: HookedLens, tokens: Any, mask: Any, cache: Any = None) -> Any:
        masks.append(mask.tolist())
        return original(self, tokens, mask, cache)

    monkeypatch.setattr(HookedLens, "residual", spy)
    measure(tiny_model("qwen2"), writing(("a", "1 2 3"), max_new_tokens=1), "")
    measure(tiny_model("qwen2"), choosing(("a", "1 2 3"), ("x",)), "")
    assert masks == [[[0, 0, 0, 0, 1], [1] * 5], [[1, 0, 0, 0, 0], [1] * 5]]


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_every_listed_end_token_ends_an_answer(family: str) -> None:
    hf = tiny_hf(family)
    plain = tiny_model(family)
    paths = [greedy(family, hf, "", encode(plain, one), n_tokens=8) for one in PROMPTS]
    ends = [1, paths[0][3], paths[2][1]]
    model = tiny_model(family, eos_token_id=ends)
    found = measure(model, writing(max_new_tokens=8), "", 4)
    expected = [greedy(family, hf, "", encode(model, one), n_tokens=8, eos=ends) for one in PROMPTS]
    assert [one.token_ids for one in found.details] == expected
    assert len({len(one) for one in expected}) > 1, "answers of different length share a batch"
    assert [("capped" in one.flags) for one in found.details] == [one[-1] not in ends for one in expected]


def test_answers_that_end_early_do_not_disturb_the_others() -> None:
    # "wrong" is written while 5 per "y" beat 3.5 per "wrong" written so far; then the end follows.
    tables: dict[str, Table] = {"L0H0": {"y": {"wrong": 5.0}}, "L1H2": {"wrong": {"<eos>": 3.5}}}
    model = build_planted(tables)
    prompts = ("y ?", "y y ?", "o y o o y o y ?", "y o o o o o o o ?")
    task = writing(prompts, max_new_tokens=6)
    wrong, eos = 5, 0
    for batch_size in (1, 4):
        intact = measure(model, task, "", batch_size)
        lengths = [len(one.token_ids) for one in intact.details]
        # 5 < 2 * 3.5, 10 < 3 * 3.5, 15 < 5 * 3.5, 5 < 2 * 3.5
        assert lengths == [3, 4, 6, 3]
        for one in intact.details:
            assert one.token_ids == (wrong,) * (len(one.token_ids) - 1) + (eos,)
        assert intact.count("capped") == 0
        endless = measure(model, task, "L1H2", batch_size)
        assert [one.token_ids for one in endless.details] == [(wrong,) * 6] * 4
        assert endless.count("capped") == 4


def test_a_finished_answer_is_not_checked_any_more() -> None:
    # Behind the end, both heads write without limit until the sum overflows; nobody reads that.
    tables: dict[str, Table] = {
        "L0H0": {"x": {"<eos>": 1.0}, "o": {"red": 1.0}, "<eos>": {"<eos>": 3.3e38}},
        "L1H1": {"<eos>": {"<eos>": 3.3e38}},
    }
    task = writing(("x ?", "o ?"), max_new_tokens=12)
    found = measure(build_planted(tables), task, "")
    assert [len(one.token_ids) for one in found.details] == [1, 12]


def test_a_stop_marker_ends_an_answer_and_stays_out_of_its_text() -> None:
    hf, model = tiny_hf("llama"), tiny_model("llama")
    paths = [greedy("llama", hf, "", encode(model, one), n_tokens=8) for one in PROMPTS]
    texts = [model.tokenizer.decode(one, skip_special_tokens=True) for one in paths]
    marker = texts[0][3:5]
    found = measure(model, writing(max_new_tokens=8, stop=(marker,)), "", 7)
    for detail, path, text in zip(found.details, paths, texts, strict=True):
        assert detail.text == text.partition(marker)[0]
        assert detail.token_ids == path[: len(detail.token_ids)]
        assert ("capped" in detail.flags) == (marker not in text)
    assert len(found.details[0].token_ids) < 8


def test_examples_at_the_very_end_of_the_context_still_work() -> None:
    model, hf = tiny_model("gpt2"), tiny_hf("gpt2")
    prompt = "7" * 250
    found = measure(model, writing((prompt, "a"), max_new_tokens=6), "L0H1")
    assert found.details[0].token_ids == greedy("gpt2", hf, "L0H1", encode(model, prompt), n_tokens=6)
    scored = measure(model, choosing((prompt,), ("8" * 6,)), "L0H1")
    expected = likelihood("gpt2", hf, "L0H1", encode(model, prompt), encode(model, "8" * 6))
    assert scored.details[0].log_likelihoods[0] == pytest.approx(expected[0], abs=1e-4)


@pytest.mark.parametrize(
    "task", [writing(("7" * 251,), max_new_tokens=6), choosing(("7" * 251,), ("8" * 6,))]
)
def test_a_prompt_that_leaves_no_room_for_its_answer_is_refused(task: Asks) -> None:
    with pytest.raises(InvalidInput, match=r"(write|choose)/0 needs 257 tokens .* context is 256"):
        measure(tiny_model("gpt2"), task, "")


def test_continuations_that_read_the_same_input_share_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    shapes = []
    original = HookedLens.residual
    monkeypatch.setattr(
        HookedLens,
        "residual",
        lambda self, tokens, mask, cache=None: (
            shapes.append(tuple(tokens.shape)),
            original(self, tokens, mask, cache),
        )[1],
    )
    measure(tiny_model("qwen2"), choosing(("1 2", "1 2 3"), ("4", "5", "6")), "")
    assert shapes == [(2, 5)]


# What is not an answer.


BOOM = "boom boom boom boom"  # four of six words, so 3e38 becomes 2e38 and twice that overflows


def overflowing() -> Any:
    """Removing L1H0 makes the logit of "wrong" infinite behind "boom"; intact, it cancels on the way."""
    loud: Table = {"boom": {"wrong": 3e38}}
    return build_planted(
        {"L0H0": COPY, "L0H1": loud, "L1H0": {"boom": {"wrong": -3e38}}, "L2H0": loud}, n_layers=3
    )


@pytest.mark.parametrize("generates", [True, False])
def test_a_logit_that_is_not_finite_names_head_set_and_example(generates: bool) -> None:
    task = NameTheColour(generates=generates, discovery={"o": 2, BOOM: 1}, heldout={"o": 2})
    model = overflowing()
    measure(model, task, "")
    measure(model, task, "L0H2")
    for batch_size in (1, 8):
        with pytest.raises(
            EvaluationError, match=r"not finite with L1H0 on discovery/boom-boom-boom-boom/0$"
        ):
            measure(model, task, "L1H0", batch_size)


def test_infinite_logits_of_the_intact_model_are_called_intact() -> None:
    loud: Table = {"boom": {"wrong": 3e38}}
    task = NameTheColour(discovery={BOOM: 1}, heldout={"o": 1})
    with pytest.raises(EvaluationError, match=r"with intact on discovery/boom-boom-boom-boom/0$"):
        measure(build_planted({"L0H1": loud, "L1H1": loud}), task, "")


def test_hooks_are_gone_after_an_evaluation_that_fails() -> None:
    model, task = overflowing(), NameTheColour(discovery={BOOM: 1}, heldout={"o": 1})
    with pytest.raises(EvaluationError):
        measure(model, task, "L1H0")
    assert sum(len(module._forward_hooks) for module in model.modules()) == 0


# The caller's model is the caller's.


def test_the_callers_hooks_stay_and_take_part() -> None:
    model = copy.deepcopy(tiny_model("qwen2"))
    expected = measure(model, writing(max_new_tokens=4), "L0H1+L2H3")

    def remove(z: torch.Tensor, hook: Any) -> torch.Tensor:
        z = z.clone()
        z[:, :, 1] = 0
        return z

    model.add_hook("blocks.0.attn.hook_z", remove, is_permanent=True)
    assert measure(model, writing(max_new_tokens=4), "L2H3").details == expected.details
    assert len(model.blocks[0].attn.hook_z._forward_hooks) == 1
    assert len(model.blocks[2].attn.hook_z._forward_hooks) == 0


def test_hooks_on_the_final_layers_see_batch_and_position() -> None:
    model = copy.deepcopy(tiny_model("qwen2"))
    shapes = []
    for name in ("ln_final.hook_normalized", "unembed.hook_out"):
        model.add_hook(name, lambda x, hook: shapes.append(x.ndim))
    measure(model, writing(max_new_tokens=2), "")
    measure(model, choosing(), "")
    assert set(shapes) == {3}


def test_an_evaluation_inside_a_block_adds_to_it() -> None:
    model = tiny_model("gpt2")
    expected = measure(model, choosing(), "L0H1+L2H3")
    with zero_ablation(model, "L0H1"):
        assert measure(model, choosing(), "L2H3").details == expected.details


def test_a_model_can_be_trained_after_long_prompts_were_evaluated(monkeypatch: pytest.MonkeyPatch) -> None:
    from transformer_lens.components.abstract_attention import AbstractAttention

    # TransformerLens keeps rotary tables in the model and grows them for longer prompts.
    monkeypatch.setattr(AbstractAttention, "ROTARY_INITIAL_CACHE_SIZE", 8)
    model = tiny_model("llama", max_position_embeddings=128)
    assert model.blocks[0].attn.rotary_sin.shape[0] < 60
    measure(model, choosing(("7" * 60,)), "L0H1")
    assert model.blocks[0].attn.rotary_sin.shape[0] > 60
    model.requires_grad_(True)
    model(torch.arange(3, 70)[None], return_type="loss").backward()
    assert model.embed.W_E.grad.any()


def test_a_head_without_values_is_reported() -> None:
    model = copy.deepcopy(tiny_model("gpt2"))
    with torch.no_grad():
        model.blocks[1].attn.W_V[2] = 0
        model.blocks[1].attn.b_V[2] = 0
    for task in (writing(max_new_tokens=2), choosing()):
        assert measure(model, task, "L0H0+L1H2").inactive == HeadSet.of("L1H2")
        assert measure(model, task, "L0H0").inactive == HeadSet()


# What evaluate_heads takes.


def test_a_number_of_examples_takes_the_first_ones() -> None:
    task = writing(max_new_tokens=1)
    assert evaluate_heads(tiny_model("gpt2"), task, "", n=2).example_ids == ("write/0", "write/1")
    assert evaluate_heads(tiny_model("gpt2"), task, "").n == len(PROMPTS)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"n": 0}, "n is a whole number from 1, not 0"),
        ({"n": True}, "not True"),
        ({"n": 2.0}, "not 2.0"),
        ({"n": 99}, "n=99 examples were asked for, but the task has 7"),
        ({"panel": "test"}, "a panel is 'discovery' or 'heldout', not 'test'"),
        ({"panel": "heldout"}, "ask for fewer"),
        ({"heads": "L3H0"}, r"L3H0 does not exist in this model: it has layers 0-2 with query heads 0-3"),
        ({"heads": "H3"}, "'H3' is not a head"),
        ({"task": "arithmetics"}, "did you mean 'arithmetic'"),
        ({"task": 7}, "int is not a task"),
        ({"task": Asks}, "the class Asks is not a task"),
        ({"model": 7}, "not int"),
    ],
)
def test_arguments_that_cannot_be_used_are_refused(given: dict[str, Any], message: str) -> None:
    usual = {"model": tiny_model("gpt2"), "task": writing(max_new_tokens=1), "heads": ""}
    with pytest.raises(InvalidInput, match=message):
        evaluate_heads(**(usual | given))


def test_a_task_asks_all_examples_in_one_form() -> None:
    mixed = Asks({"a": Generate(prompt="x"), "b": Choose(context="x", choices=(" y",))})
    with pytest.raises(InvalidInput, match="asks for text of some examples and for choices of others"):
        measure(tiny_model("gpt2"), mixed, "")


def test_a_task_without_examples_is_refused() -> None:
    with pytest.raises(InvalidInput, match="no examples"):
        measure(tiny_model("gpt2"), Asks({}), "")


def test_a_request_of_another_kind_is_refused_with_the_example() -> None:
    class Odd(Asks):
        def request(self, example: Example) -> Any:
            return "x"

    with pytest.raises(InvalidInput, match="request for a is a str, not a Generate or Choose"):
        measure(tiny_model("gpt2"), Odd({"a": Generate(prompt="x")}), "")


def test_a_model_without_a_tokenizer_is_refused() -> None:
    model = copy.deepcopy(tiny_model("gpt2"))
    model.tokenizer = None
    with pytest.raises(InvalidInput, match="no tokenizer"):
        measure(model, writing(), "")


def test_flags_of_the_task_are_kept_and_missing_answers_flagged() -> None:
    class Flagging(Asks):
        def judge(self, example: Example, response: Any) -> Verdict:
            return Verdict(correct=False, answer=None, flags=("tie",))

    found = measure(tiny_model("gpt2"), Flagging({"a": Generate(prompt="x", max_new_tokens=2)}), "")
    assert found.details[0].flags == ("tie", "no-answer", "capped")
    assert (found.count("no-answer"), found.count("other")) == (1, 0)
