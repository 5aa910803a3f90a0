"""Teacher-forced passes in pieces against one plain forward of the same model."""

import math

import pytest
import torch
from torch import nn

from tests.transformers.cases import SIZE, VOCABULARY, bert, forward, gpt2, llama, t5, tiny
from torch_boc.functional.tokens import TOKEN_COLUMNS, token_numbers
from torch_boc.transformers import score_tokens, teacher_forcing
from torch_boc.transformers.teacher_forcing import causal_model, check_windows, text_logits, token_windows


def gemma2():
    """Scores are capped after the head, so that logits computed around the model's forward would be wrong."""
    more = {"num_key_value_heads": 2, "head_dim": 8, "sliding_window": 6, "layer_types": ["sliding_attention"]}
    return tiny("Gemma2", final_logit_softcapping=3.0, **more, **SIZE)


def mamba():
    """It has a state, but no cache of keys and values."""
    return tiny("Mamba", hidden_size=16, state_size=4, num_hidden_layers=1)


def openai():
    """It has no cache at all."""
    return tiny("OpenAIGPT", "LMHeadModel", n_positions=40, n_embd=16, n_layer=1, n_head=2)


def jamba():
    """With a recurrent state that transformers does not carry into a piece of several tokens."""
    experts = {"expert_layer_period": 2, "expert_layer_offset": 1, "num_experts": 2, "num_experts_per_tok": 1}
    layers = {"attn_layer_period": 2, "attn_layer_offset": 1, "mamba_d_state": 4, "mamba_dt_rank": 4}
    model = tiny("Jamba", **{**SIZE, "num_hidden_layers": 2}, num_key_value_heads=2, **layers, **experts)
    for name, weights in model.named_parameters():
        if weights.ndim > 1 and "lm_head" not in name and "embed" not in name:
            weights.detach().mul_(10)
    return model


class Bare(nn.Module):
    """A model whose forward can neither keep a cache nor leave out logits."""

    def __init__(self, model):
        super().__init__()
        self.model, self.config, self.device, self.calls = model, model.config, model.device, 0

    def forward(self, input_ids, return_dict=True):
        self.calls += 1
        return self.model(input_ids=input_ids, use_cache=False)


class Forgetful(Bare):
    """A model that takes a cache and returns none."""

    def forward(self, input_ids, past_key_values=None, use_cache=None, return_dict=True):
        return super().forward(input_ids)


MODELS = [gpt2, llama, gemma2, mamba, openai, jamba]


def ids(length):
    return torch.randint(3, VOCABULARY, (length,), generator=torch.Generator().manual_seed(5)).tolist()


def batch(length):
    return torch.tensor([ids(length)])


@pytest.fixture
def small_pieces(monkeypatch):
    """Pieces of 7 places for one text, as if the vocabulary was large."""
    monkeypatch.setattr(teacher_forcing, "MOST_LOGITS", 7 * VOCABULARY)
    monkeypatch.setattr(teacher_forcing, "SILENT_PIECE", 4)


def collected(model, tokens, **options):
    """The logits of all places of a text, which come in order, and the lengths of the pieces."""
    with causal_model(model) as cached:
        windows = check_windows(options.get("context"), options.get("stride"), model.config)
        logits, targets = zip(*text_logits(model, [tokens], *windows, cached=cached), strict=True)
    assert torch.cat(targets).tolist() == tokens[1:]
    return torch.cat(logits), [len(piece) for piece in logits]


@pytest.mark.parametrize("make", MODELS)
def test_pieces_equal_one_forward_of_each_window(make, small_pieces):
    model, tokens = make().eval(), ids(50)
    logits, lengths = collected(model, tokens[:30])
    assert max(lengths) == 7
    torch.testing.assert_close(logits, forward(model, tokens[:30])[:-1], atol=2e-5, rtol=2e-5)
    logits, _ = collected(model, tokens, context=20, stride=8)
    windows = token_windows([tokens], 20, 8)
    expected = torch.cat([forward(model, window)[first - 1 : -1] for window, first in windows])
    torch.testing.assert_close(logits, expected, atol=2e-5, rtol=2e-5)


@pytest.mark.parametrize("kind", [Bare, Forgetful])
def test_models_without_a_cache_read_a_window_at_once(kind, small_pieces):
    model, tokens = kind(llama()), ids(50)
    logits, lengths = collected(model, tokens, context=20, stride=10)
    expected, _ = collected(model.model, tokens, context=20, stride=10)
    assert max(lengths) == 7
    assert model.calls == 1 + 4 + (kind is Forgetful)  # whether it is causal, four windows, and whether it has a cache
    torch.testing.assert_close(logits, expected, atol=2e-5, rtol=2e-5)


def test_the_vocabulary_bounds_what_exists_at_a_time(small_pieces):
    model, seen = llama(), []
    model.register_forward_hook(lambda module, args, output: seen.append(tuple(output.logits.shape)))
    collected(model, ids(60), context=30, stride=10)
    assert max(shape[1] for shape in seen) == 7
    assert (1, 1, VOCABULARY) in seen  # of the tokens that only carry the context, one row of logits is made


@pytest.mark.parametrize("make", [llama, mamba])
@pytest.mark.parametrize("after", [0, 1, 16], ids=["left", "both", "right"])
def test_padding_does_not_change_the_numbers(make, after, small_pieces):
    model, texts = make().eval(), [torch.tensor(ids(n)) for n in (9, 4, 1, 14)]
    rooms = [(16 - len(text) - min(after, 16 - len(text)), min(after, 16 - len(text))) for text in texts]
    padded, mask = (
        torch.stack([nn.functional.pad(x, room, value=fill) for x, room in zip(rows, rooms, strict=True)])
        for rows, fill in ((texts, 7), ([torch.ones_like(text) for text in texts], 0))
    )
    for record, text in zip(score_tokens(model, padded, attention_mask=mask), texts, strict=True):
        assert torch.equal(record.tokens, text)
        assert list(record.numbers) == list(TOKEN_COLUMNS)
        expected = token_numbers(forward(model, text)[:-1], text[1:])
        for name, values in record.numbers.items():
            assert math.isnan(values[0])
            torch.testing.assert_close(values[1:], getattr(expected, name).double(), atol=1e-4, rtol=1e-4)
        assert torch.equal(record.rivals, torch.cat([torch.full((1, 5), -1), expected.rivals]))


def test_the_model_is_left_as_it_was():
    model = gpt2().train()
    first, second = (score_tokens(model, batch(9))[0].numbers["log_probability"][1:] for _ in range(2))
    assert torch.equal(first, second)  # no dropout
    with pytest.raises(ValueError, match="at most 40"):
        score_tokens(model, batch(9), context=41)
    assert model.training


@pytest.mark.parametrize(("context", "stride", "before"), [(5, 1, 0), (5, 4, 1), (7, 3, 2), (64, 32, 0), (3, 1, 2)])
@pytest.mark.parametrize("sizes", [[23], [1] * 23, [0, 7, 0, 16]])
def test_windows_score_every_token_once(sizes, context, stride, before):
    head, tokens = [-1] * before, list(range(23))
    pieces = [tokens[sum(sizes[:i]) : sum(sizes[: i + 1])] for i in range(len(sizes))]
    found = list(token_windows(pieces, context, stride, head))
    scored = [token for window, first in found for token in window[first:]]
    assert scored == (tokens if before else tokens[1:])
    for window, first in found:
        assert window[:before] == head
        assert len(window) <= context
        assert first == (max(1, before) if window[before] == 0 else context - stride)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: score_tokens(gpt2(), batch(5)[0]), r"integers of shape \(B, T\), got a Tensor \(5,\); use ids"),
        (lambda: score_tokens(gpt2(), batch(2), attention_mask=torch.ones(1, 3)), "expected attention_mask of shape"),
        (lambda: score_tokens(gpt2(), batch(2), attention_mask=torch.zeros(1, 2)), "with 1 rows of padding only"),
        (lambda: score_tokens(gpt2(), batch(2), context=41), "at most 40, the context of the model, got 41"),
        (lambda: check_windows(5, 4, gpt2().config, before=2), "expected a stride from 1 to 3, below the context of 5"),
        (lambda: score_tokens(bert(), batch(9)), "got BertLMHeadModel, whose predictions change with later tokens"),
        (lambda: score_tokens(t5(), batch(9)), "got T5ForConditionalGeneration, which has an encoder as well"),
        (lambda: score_tokens(nn.Linear(2, 2), batch(9)), "expected a causal language model of .*, got Linear"),
    ],
)
def test_what_is_refused(call, message):
    with pytest.raises((ValueError, TypeError), match=message):
        call()


def test_tokens_that_a_model_rules_out_do_not_hide_that_it_is_not_causal():
    never = torch.zeros(VOCABULARY).index_fill(0, torch.tensor([7]), -torch.inf)
    other, model = bert(), gpt2()
    for each in (other, model):
        each.get_output_embeddings().register_forward_hook(lambda module, args, found: found + never)
    with pytest.raises(ValueError, match="whose predictions change with later tokens"):
        score_tokens(other, batch(9))
    assert score_tokens(model, batch(9))[0].numbers["confidence"][1:].isfinite().all()
    model.lm_head.weight.detach()[5] = torch.nan
    with pytest.raises(ValueError, match="expected logits that are numbers, got NaN or infinity from GPT2LMHeadModel"):
        score_tokens(model, batch(9))
