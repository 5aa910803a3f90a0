"""What an evaluation of texts refuses: other models, and what is no text."""

import math
from pathlib import Path

import pytest
import torch
from transformers import BertConfig, BertLMHeadModel, T5Config, T5ForConditionalGeneration

from torch_boc.transformers import evaluate_text

from .cases import SIZE, sharpened
from .text_cases import byte_model, byte_tokenizer, prose


@pytest.fixture(scope="module")
def model():
    return byte_model()


@pytest.fixture(scope="module")
def tokenizer():
    return byte_tokenizer()


def test_the_name_of_all_together_is_refused_before_the_work(model, tokenizer):
    said = []
    with pytest.raises(ValueError, match="all: expected another name for a text among several"):
        evaluate_text(model, tokenizer, {"a": prose(30), "all": prose(20)}, progress=said.append)
    assert said == []


def bert():
    return sharpened(BertLMHeadModel, BertConfig(vocab_size=300, **SIZE), "cls.predictions.decoder")


def t5():
    return T5ForConditionalGeneration(T5Config(vocab_size=300, d_model=16, d_kv=8, d_ff=16, num_layers=1, num_heads=2))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (bert, "expected a causal language model, got BertLMHeadModel, whose predictions change with later tokens"),
        (t5, "expected a causal language model, got T5ForConditionalGeneration, which has an encoder as well"),
    ],
)
def test_other_models_are_refused(tokenizer, make, message):
    with pytest.raises(ValueError, match=message):
        evaluate_text(make(), tokenizer, "some text")


def test_a_model_without_numbers_is_refused(tokenizer):
    model = byte_model()
    model.lm_head.weight.detach()[5] = torch.nan
    with pytest.raises(ValueError, match="expected logits that are numbers, got NaN or infinity from GPT2LMHeadModel"):
        evaluate_text(model, tokenizer, "some text")


def test_tokens_that_a_model_rules_out_do_not_hide_that_it_is_not_causal(tokenizer):
    never = torch.zeros(300)
    never[7] = -torch.inf
    for make, refused in ((bert, True), (byte_model, False)):
        model = make()
        model.get_output_embeddings().register_forward_hook(
            lambda module, args, found: found + never[: found.shape[-1]]
        )
        if refused:
            with pytest.raises(ValueError, match="whose predictions change with later tokens"):
                evaluate_text(model, tokenizer, "some text")
        else:
            assert math.isfinite(evaluate_text(model, tokenizer, "some text").accuracy)


@pytest.mark.parametrize(
    ("texts", "got"), [("", "an empty text"), ({"a": "xy", "b": [""]}, "an empty text"), ("x", "one token")]
)
def test_texts_without_a_prediction_are_refused(model, tokenizer, texts, got):
    with pytest.raises(ValueError, match=f"expected a text of at least two tokens, got {got}"):
        evaluate_text(model, tokenizer, texts)


@pytest.mark.parametrize(
    ("texts", "error", "message"),
    [
        ({}, ValueError, "expected at least one text, got an empty mapping"),
        (
            Path("a.txt"),
            TypeError,
            r"text: expected a text as str, .* got \w+Path; read it first, with path.read_text",
        ),
        ({"a": Path("a.txt")}, TypeError, r"a: expected a text as str, or an iterable of texts, got \w+Path"),
        ([Path("a.txt")], TypeError, r"text: expected a text as str, or an iterable of texts, got \w+Path"),
        (b"some text", TypeError, "text: expected a text as str, or an iterable of texts, got bytes"),
        ([b"some text"], TypeError, "got bytes"),
        ({"a": {"b": "some text"}}, TypeError, "a: expected a text as str, or an iterable of texts, got dict"),
        ([["some", 3]], TypeError, "text: expected the pieces of a text as str, got int"),
        (None, TypeError, "got NoneType"),
    ],
)
def test_what_is_no_text_is_refused(model, tokenizer, texts, error, message):
    with pytest.raises(error, match=message):
        evaluate_text(model, tokenizer, texts)


def test_something_else_is_refused(tokenizer):
    with pytest.raises(TypeError, match="expected a causal language model of transformers, got Linear"):
        evaluate_text(torch.nn.Linear(2, 2), tokenizer, "text")
