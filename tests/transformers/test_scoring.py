"""Teacher-forced passes in pieces against one plain forward of the same model."""

import math

import pytest
import torch
from torch import nn
from transformers import (
    BertConfig,
    BertLMHeadModel,
    Gemma2Config,
    Gemma2ForCausalLM,
    MambaConfig,
    MambaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    OpenAIGPTConfig,
    OpenAIGPTLMHeadModel,
    T5Config,
    T5ForConditionalGeneration,
)

from torch_boc.functional.tokens import TOKEN_COLUMNS, token_numbers
from torch_boc.transformers import logit_slices, score_tokens
from torch_boc.transformers import reading as reading_module
from torch_boc.transformers import windows as windows_module
from torch_boc.transformers.windows import Window, check_windows, windows

from .cases import SIZE, VOCABULARY, gpt2, llama, sharpened


def gemma2():
    """Scores are capped after the head, so that logits computed around the model's forward would be wrong."""
    config = Gemma2Config(
        vocab_size=VOCABULARY,
        num_key_value_heads=2,
        head_dim=8,
        sliding_window=6,
        final_logit_softcapping=3.0,
        layer_types=["sliding_attention"],
        **SIZE,
    )
    return sharpened(Gemma2ForCausalLM, config, "lm_head")


def mistral():
    config = MistralConfig(vocab_size=VOCABULARY, num_key_value_heads=2, sliding_window=5, **SIZE)
    return sharpened(MistralForCausalLM, config, "lm_head")


def mamba():
    """It has a state, but no cache of keys and values."""
    config = MambaConfig(vocab_size=VOCABULARY, hidden_size=16, state_size=4, num_hidden_layers=1)
    return sharpened(MambaForCausalLM, config, "lm_head")


def openai():
    """It has no cache at all."""
    config = OpenAIGPTConfig(vocab_size=VOCABULARY, n_positions=40, n_embd=16, n_layer=1, n_head=2)
    return sharpened(OpenAIGPTLMHeadModel, config, "lm_head")


def bert():
    return sharpened(BertLMHeadModel, BertConfig(vocab_size=VOCABULARY, **SIZE), "cls.predictions.decoder")


def t5():
    config = T5Config(vocab_size=VOCABULARY, d_model=16, d_kv=8, d_ff=16, num_layers=1, num_heads=2)
    return T5ForConditionalGeneration(config)


class Bare(nn.Module):
    """A model whose forward can neither keep a cache nor leave out logits."""

    def __init__(self, model):
        super().__init__()
        self.model, self.config, self.calls = model, model.config, 0

    @property
    def device(self):
        return self.model.device

    def forward(self, input_ids, return_dict=True):
        self.calls += 1
        return self.model(input_ids=input_ids, use_cache=False)


class Forgetful(Bare):
    """A model that takes a cache and returns none."""

    def forward(self, input_ids, past_key_values=None, use_cache=None, return_dict=True):
        return super().forward(input_ids)


MODELS = [gpt2, llama, gemma2, mistral, mamba, openai]


def ids(*shape):
    return torch.randint(3, VOCABULARY, shape, generator=torch.Generator().manual_seed(5))


@pytest.fixture
def small_pieces(monkeypatch):
    """Pieces of 7 places for one text, as if the vocabulary was large."""
    monkeypatch.setattr(windows_module, "MOST_LOGITS", 7 * VOCABULARY)
    monkeypatch.setattr(reading_module, "SILENT_PIECE", 4)


def whole(model, tokens):
    with torch.no_grad():
        return model.eval()(input_ids=tokens).logits


def collected(model, tokens, mask=None, **options):
    slices = list(logit_slices(model, tokens, mask, **options))
    starts = [piece.start for piece in slices]
    lengths = [piece.logits.shape[1] for piece in slices]
    assert starts == [1 + sum(lengths[:i]) for i in range(len(starts))]  # each place once, in order
    return torch.cat([piece.logits for piece in slices], 1), torch.cat([piece.target for piece in slices], 1), lengths


@pytest.mark.parametrize("make", MODELS)
def test_pieces_equal_one_forward(make, small_pieces):
    model, tokens = make(), ids(2, 30)
    logits, target, lengths = collected(model, tokens)
    assert max(lengths) == 3  # 7 places of one text
    assert torch.equal(target, tokens[:, 1:])
    torch.testing.assert_close(logits, whole(model, tokens)[:, :-1], atol=2e-5, rtol=2e-5)


@pytest.mark.parametrize("make", MODELS)
def test_windows_equal_a_forward_of_each(make, small_pieces):
    model, tokens = make(), ids(1, 50)
    logits, target, _ = collected(model, tokens, context=20, stride=8)
    assert torch.equal(target, tokens[:, 1:])
    expected = []
    for start, first, end in windows(50, 20, 8):
        expected.append(whole(model, tokens[:, start:end])[:, first - start - 1 : -1])
    torch.testing.assert_close(logits, torch.cat(expected, 1), atol=2e-5, rtol=2e-5)


@pytest.mark.parametrize("kind", [Bare, Forgetful])
def test_models_without_a_cache_read_a_window_at_once(kind, small_pieces):
    model, tokens = kind(llama()), ids(1, 50)
    logits, _, lengths = collected(model, tokens, context=20, stride=10)
    expected, _, _ = collected(model.model, tokens, context=20, stride=10)
    assert max(lengths) == 7
    checks = 1  # whether it is causal
    assert model.calls == checks + len(list(windows(50, 20, 10))) + (kind is Forgetful)
    torch.testing.assert_close(logits, expected, atol=2e-5, rtol=2e-5)


def test_the_vocabulary_bounds_what_exists_at_a_time(small_pieces):
    model, seen = llama(), []
    model.register_forward_hook(lambda module, args, output: seen.append(tuple(output.logits.shape)))
    collected(model, ids(1, 60), context=30, stride=10)
    assert max(shape[1] for shape in seen) == 7
    assert (1, 1, VOCABULARY) in seen  # of the tokens that only carry the context, one row of logits is made


@pytest.mark.parametrize("make", MODELS)
@pytest.mark.parametrize("side", ["left", "right", "both"])
def test_padding_does_not_change_the_numbers(make, side, small_pieces):
    model, texts = make(), [ids(1, n)[0] for n in (9, 4, 1, 14)]
    room = {"left": lambda n: (16 - n, 0), "right": lambda n: (0, 16 - n), "both": lambda n: (16 - n - 1, 1)}[side]
    padded = torch.stack([nn.functional.pad(text, room(len(text)), value=7) for text in texts])
    mask = torch.stack([nn.functional.pad(torch.ones_like(text), room(len(text))) for text in texts])
    for record, text in zip(score_tokens(model, padded, attention_mask=mask), texts, strict=True):
        assert torch.equal(record.tokens, text)
        assert record.prompt_length == 0
        assert list(record.numbers) == list(TOKEN_COLUMNS)
        expected = token_numbers(whole(model, text[None, :])[0, :-1], text[1:])
        for name, values in record.numbers.items():
            assert values.dtype == torch.float64
            assert math.isnan(values[0])
            torch.testing.assert_close(values[1:], getattr(expected, name).double(), atol=1e-4, rtol=1e-4)
        assert (record.rivals[0] == -1).all()
        assert record.rival_log_probabilities[0].isnan().all()
        assert torch.equal(record.rivals[1:], expected.rivals)
        assert record.rivals.shape == (len(text), 5)


def test_scores_are_those_of_a_float64_softmax():
    model, tokens = llama(), ids(3, 12)
    log_p = whole(model, tokens).double().log_softmax(-1)[:, :-1]
    for row, record in enumerate(score_tokens(model, tokens, rivals=3)):
        own = log_p[row].gather(-1, tokens[row, 1:, None]).squeeze(-1)
        torch.testing.assert_close(record.numbers["log_probability"][1:], own, atol=1e-5, rtol=1e-5)
        entropy = -(log_p[row].exp() * log_p[row]).sum(-1)
        torch.testing.assert_close(record.numbers["entropy"][1:], entropy, atol=1e-5, rtol=1e-5)
        assert torch.equal(record.rivals[1:], log_p[row].topk(3).indices)


def test_long_texts_are_scored_over_several_contexts():
    (record,) = score_tokens(gpt2(), ids(1, 130))  # the context is 40 tokens
    assert len(record) == 130
    assert not record.numbers["rank"][1:].isnan().any()


def test_the_model_is_left_as_it_was():
    model = gpt2().train()
    model.config.resid_pdrop = 0.5
    first, second = (score_tokens(model, ids(1, 9))[0].numbers["log_probability"][1:] for _ in range(2))
    assert model.training
    assert torch.equal(first, second)  # no dropout
    slices = logit_slices(model, ids(1, 9))
    next(slices)
    slices.close()
    assert model.training


def test_many_texts_are_scored_a_few_at_a_time(monkeypatch):
    model, tokens = llama(), ids(9, 6)
    expected = score_tokens(model, tokens)
    monkeypatch.setattr(windows_module, "MOST_LOGITS", 2 * 16 * VOCABULARY)
    for one, other in zip(score_tokens(model, tokens), expected, strict=True):
        torch.testing.assert_close(one.numbers["entropy"], other.numbers["entropy"], equal_nan=True)


@pytest.mark.parametrize(("length", "context", "stride"), [(1, 4, 2), (4, 4, 2), (5, 4, 3), (100, 10, 5), (23, 7, 1)])
def test_every_token_but_the_first_is_scored_once(length, context, stride):
    found = list(windows(length, context, stride))
    scored = [place for window in found for place in range(window.first, window.end)]
    assert scored == list(range(1, length))
    for start, first, end in found:
        assert end - start <= context
        assert start == 0 or first - start >= context - stride


def test_default_windows():
    assert check_windows(None, None, gpt2().config) == (40, 20)
    assert check_windows(None, None, mamba().config) == (1024, 512)
    assert check_windows(10, 3, mamba().config) == (10, 3)
    assert next(windows(10, 6, 3)) == Window(0, 1, 6)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: score_tokens(gpt2(), ids(5)), r"expected input_ids as integers of shape \(B, T\), got shape \(5,\)"),
        (lambda: score_tokens(gpt2(), [[1, 2]]), "got list"),
        (lambda: score_tokens(gpt2(), ids(1, 0)), "expected at least one token"),
        (lambda: score_tokens(gpt2(), ids(1, 2), attention_mask=torch.ones(1, 3)), "expected attention_mask of shape"),
        (lambda: score_tokens(gpt2(), ids(1, 2), attention_mask=torch.zeros(1, 2)), "a row with padding alone"),
        (lambda: score_tokens(gpt2(), ids(1, 2), context=41), "at most 40, the context of the model, got 41"),
        (lambda: score_tokens(gpt2(), ids(1, 2), context=1), "at least 2 tokens"),
        (lambda: score_tokens(gpt2(), ids(1, 2), context=8, stride=8), "expected a stride from 1 to 7"),
    ],
)
def test_what_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("call", [score_tokens, lambda model, tokens: list(logit_slices(model, tokens))])
@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (bert, ValueError, "got BertLMHeadModel, whose predictions change with later tokens"),
        (t5, ValueError, "got T5ForConditionalGeneration, which has an encoder as well"),
        (lambda: nn.Linear(2, 2), TypeError, "got Linear"),
    ],
)
def test_models_that_are_not_causal_are_refused(call, make, error, message):
    with pytest.raises(error, match=f"expected a causal language model.*, {message}"):
        call(make(), ids(1, 9))
