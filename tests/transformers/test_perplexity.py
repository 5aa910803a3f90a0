"""Evaluation of texts against the loss of transformers and direct computations in float64."""

import math
from pathlib import Path

import pytest
import torch

from tests.dispatch import MemoryMeter
from tests.transformers.cases import byte_model, byte_tokenizer, forward, prose
from torch_boc.functional import bag_of_coins, boc_summary
from torch_boc.transformers import evaluate_text, score_tokens, teacher_forcing
from torch_boc.transformers.perplexity import first_tokens
from torch_boc.transformers.teacher_forcing import token_windows


@pytest.fixture(scope="module")
def model():
    """What a token says depends on those before it."""
    model = byte_model()
    for weights in (model.transformer.h[0].attn.c_attn.weight, model.transformer.h[0].attn.c_proj.weight):
        weights.detach().mul_(20)
    return model


TOKENIZER = byte_tokenizer()


def test_perplexity_is_that_of_the_loss_of_transformers(model, monkeypatch):
    """One of several processes may evaluate: it waits for no other."""
    monkeypatch.setattr("torchmetrics.metric.jit_distributed_available", lambda: True)
    text = prose(40)
    ids = torch.tensor([TOKENIZER(text)["input_ids"]])
    with torch.no_grad():
        loss = float(model(input_ids=ids, labels=ids).loss)
    found = evaluate_text(model, TOKENIZER, text)
    numbers = found["text"]
    assert numbers["perplexity"] == pytest.approx(math.exp(loss), rel=1e-5)
    assert numbers["tokens"] == ids.numel() - 1
    assert numbers["bytes"] == len(text.encode()) - len(text[0].encode())
    assert numbers["bits_per_byte"] == pytest.approx(loss / math.log(2), rel=1e-5)  # a token is a byte


@pytest.mark.parametrize("bos", [False, True])
def test_long_texts_are_read_in_windows(model, monkeypatch, bos):
    """Each of which begins with the first token."""
    tokenizer = byte_tokenizer(adds_bos=bos)
    monkeypatch.setattr(teacher_forcing, "MOST_LOGITS", 11 * model.config.vocab_size)
    text = prose(400)
    ids = TOKENIZER(text)["input_ids"]
    windows = token_windows([ids], 64, 32, [0] if bos else [])
    logits = torch.cat([forward(model, window)[first - 1 : -1] for window, first in windows])
    numbers = evaluate_text(model, tokenizer, text)["text"]
    expected = boc_summary(logits, torch.tensor(ids if bos else ids[1:]))
    for key in set(expected) - {"samples"}:
        assert numbers[key] == pytest.approx(expected[key].item(), rel=1e-4, abs=1e-9), key
    lost = bag_of_coins(logits.double()).loss.mean() * (model.config.vocab_size - 1)
    assert numbers["lost_coins"] == pytest.approx(lost.item(), rel=1e-5)
    if not bos:
        (record,) = score_tokens(model, torch.tensor([ids]))
        assert numbers["nll"] == pytest.approx(-float(record.numbers["log_probability"][1:].mean()), rel=1e-6)
    pieces = iter([text[:3], text[3:200], "", text[200:]])  # which are the whole text
    assert evaluate_text(model, tokenizer, [pieces])["text"] == pytest.approx(numbers, rel=1e-5)


def test_names_get_a_row_each_and_one_for_all(model):
    texts = {"a": prose(30), "b": [prose(20), prose(60)]}
    found = evaluate_text(model, TOKENIZER, texts)
    assert list(found) == ["a", "b", "all"]
    apart = [evaluate_text(model, TOKENIZER, text)["text"] for text in (prose(30), prose(20), prose(60))]
    for key in ("tokens", "bytes"):
        assert found["all"][key] == found["a"][key] + found["b"][key] == sum(x[key] for x in apart)
    total = sum(x["nll"] * x["tokens"] for x in apart)
    assert found["all"]["nll"] * found["all"]["tokens"] == pytest.approx(total)
    assert list(found.to_frame()["nll"]) == [x["nll"] for x in found.values()]


def test_invalid_predictions_are_told():
    model, text = byte_model(), prose(300)
    letter = TOKENIZER("\n")["input_ids"][0]

    def broken(module, args, found):
        """What follows the end of a line cannot be predicted."""
        return found.masked_fill(args[0].unsqueeze(-1) == letter, torch.nan)

    model.transformer.wte.register_forward_hook(broken)
    with pytest.warns(UserWarning, match=r"rows of logits with NaN"):
        numbers = evaluate_text(model, byte_tokenizer(adds_bos=True), text.split(" "), context=64)["text"]
    assert numbers["invalid"] > 0
    assert numbers["tokens"] + numbers["invalid"] == len(text.replace(" ", "").encode())
    assert math.isnan(numbers["bits_per_byte"])


def test_the_first_token():
    assert first_tokens(TOKENIZER) == []
    assert first_tokens(byte_tokenizer(adds_bos=True)) == [0]  # nothing of what it adds at the end


def peak(texts, vocabulary=1000):
    model = byte_model(vocabulary=vocabulary)
    with MemoryMeter() as meter:
        evaluate_text(model, TOKENIZER, texts)
    return meter.peak


def test_peak_memory(monkeypatch):
    """It grows neither with the length of a text nor, beyond a slice, with the vocabulary."""
    monkeypatch.setattr(teacher_forcing, "MOST_LOGITS", 2**16)
    short, long = (peak([iter([prose(50)] * times)]) for times in (6, 40))
    assert long <= 1.02 * short
    few, many = (peak(prose(100), vocabulary) for vocabulary in (4096, 32_768))
    assert many - few < 2**16 * 4 * 8  # a whole window would have 16 times as many bytes


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ({}, "expected at least one text, .* got an empty mapping"),
        ({"a": prose(30), "all": prose(20)}, "among several none called 'all', got a, all"),
        ("x", "expected a text of at least two tokens, got an empty text or one token"),
        (Path("a.txt"), r"text: expected a text as str, .* got \w+Path; read it first, with path.read_text"),
        (b"some text", "text: expected a text as str, or an iterable of texts, got bytes"),
        ([["some", 3]], "text: expected the pieces of a text as str, got int"),
    ],
)
def test_what_is_refused(model, texts, message):
    with pytest.raises((ValueError, TypeError), match=message):
        evaluate_text(model, TOKENIZER, texts)
