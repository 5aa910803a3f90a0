"""Evaluation of texts against the loss of transformers and direct computations in float64."""

import math

import pytest
import torch
from sklearn.metrics import roc_auc_score

from torch_boc.functional import bag_of_coins
from torch_boc.transformers import evaluate_text, score_tokens
from torch_boc.transformers import windows as windows_module
from torch_boc.transformers.text import first_tokens
from torch_boc.transformers.windows import check_windows, token_windows, windows

from .text_cases import byte_model, byte_tokenizer, plain_logits, prose


@pytest.fixture(scope="module")
def model():
    return byte_model()


@pytest.fixture(scope="module")
def tokenizer():
    return byte_tokenizer()


def test_perplexity_is_that_of_the_loss_of_transformers(model, tokenizer):
    text = prose(40)
    ids = torch.tensor([tokenizer(text)["input_ids"]])
    with torch.no_grad():
        loss = model(input_ids=ids, labels=ids).loss
    report = evaluate_text(model, tokenizer, text)
    assert report.perplexity == pytest.approx(float(loss.exp()), rel=1e-5)
    assert report.tokens == ids.numel() - 1
    assert report["bytes"] == len(text.encode()) - len(text[0].encode())
    assert report["bits_per_byte"] == pytest.approx(float(loss) / math.log(2), rel=1e-5)  # a token is a byte
    assert report["bits_per_token"] == pytest.approx(report["bits_per_byte"])


def test_long_texts_follow_the_recipe_of_windows(model, tokenizer, monkeypatch):
    monkeypatch.setattr(windows_module, "MOST_LOGITS", 11 * model.config.vocab_size)
    text = prose(400)
    ids = tokenizer(text)["input_ids"]
    rows = [plain_logits(model, ids[a:c])[b - a - 1 :] for a, b, c in windows(len(ids), 64, 32)]
    logits, target = torch.cat(rows).double(), torch.tensor(ids[1:])
    p, coins = logits.softmax(-1), bag_of_coins(logits)
    right = p.argmax(1) == target
    report = evaluate_text(model, tokenizer, text)
    assert report.nll == pytest.approx(float(torch.nn.functional.cross_entropy(logits, target)), rel=1e-5)
    assert report.accuracy == pytest.approx(float(right.double().mean()))
    assert report.confidence == pytest.approx(float(p.amax(1).mean()), rel=1e-5)
    assert report.brier_confidence == pytest.approx(float((p.amax(1) - right.double()).square().mean()), rel=1e-5)
    assert report.free_gap == pytest.approx(float(coins.free_gap.mean()), rel=1e-4)
    auroc = roc_auc_score(right, p.amax(1))
    assert report.auroc_confidence == pytest.approx(auroc, abs=1e-6 + report.auroc_confidence_error)
    (record,) = score_tokens(model, torch.tensor([ids]))
    assert report.nll == pytest.approx(-float(record.numbers["log_probability"][1:].mean()), rel=1e-6)


def test_a_text_in_pieces_is_the_whole_text(model, tokenizer):
    text = prose(500)
    whole = evaluate_text(model, tokenizer, text, context=20, stride=7)
    pieces = evaluate_text(model, tokenizer, [iter([text[:3], text[3:200], "", text[200:]])], context=20, stride=7)
    assert pieces.numbers["text"] == pytest.approx(whole.numbers["text"], rel=1e-9)


def test_texts_of_a_list_are_read_apart(model, tokenizer):
    texts = [prose(30), prose(50)[20:]]
    apart = [evaluate_text(model, tokenizer, text) for text in texts]
    report = evaluate_text(model, tokenizer, texts)
    assert report.documents == 2
    assert report.tokens == sum(x.tokens for x in apart)
    assert report.nll * report.tokens == pytest.approx(sum(x.nll * x.tokens for x in apart))


def test_names_get_a_row_each_and_one_for_all(model, tokenizer):
    said = []
    report = evaluate_text(model, tokenizer, {"a": prose(30), "b": [prose(20), prose(60)]}, progress=said.append)
    assert list(report.numbers) == ["a", "b", "all"] == list(report.table.index)
    assert report.table.loc["all", "tokens"] == report.table.loc[["a", "b"], "tokens"].sum()
    assert report.numbers["b"]["documents"] == 2
    assert said[-1] == f"b: {report.numbers['b']['tokens']:,} tokens"
    assert report.settings["num_classes"] == model.config.vocab_size
    assert (report.settings["context"], report.settings["stride"]) == (64, 32)


def test_invalid_predictions_are_told(tokenizer):
    model, text = byte_model(), prose(300)
    letter = tokenizer("\n")["input_ids"][0]

    def broken(module, args, found):
        """What follows the end of a line cannot be predicted."""
        return found.masked_fill(args[0].unsqueeze(-1) == letter, torch.nan)

    model.transformer.wte.register_forward_hook(broken)
    with pytest.warns(UserWarning, match=r"predictions were NaN or \+inf and are left out"):
        report = evaluate_text(model, tokenizer, text.split(" "), context=64, bos=True)
    assert report["invalid"] > 0
    assert report.tokens + report["invalid"] == len(text.replace(" ", "").encode())
    assert math.isnan(report.bits_per_byte)


def test_the_first_token(model, tokenizer):
    text = prose(25)
    assert first_tokens(tokenizer, None) == []
    assert first_tokens(tokenizer, True) == [0]
    assert first_tokens(byte_tokenizer(adds_bos=True), None) == [0]  # and nothing of what it adds at the end
    assert first_tokens(byte_tokenizer(adds_bos=True), False) == []
    one, other = (evaluate_text(model, tokenizer, text, bos=bos) for bos in (False, True))
    ids = tokenizer(text)["input_ids"]
    assert (one.tokens, other.tokens) == (len(ids) - 1, len(ids))
    assert other["bytes"] == len(text.encode())
    log_p = plain_logits(model, [0, *ids]).double().log_softmax(-1)
    assert other.nll == pytest.approx(-float(log_p[torch.arange(len(ids)), torch.tensor(ids)].mean()), rel=1e-5)


def test_every_window_begins_with_the_first_token(tokenizer):
    model, text = byte_model(), prose(200)
    for weights in (model.transformer.h[0].attn.c_attn.weight, model.transformer.h[0].attn.c_proj.weight):
        weights.detach().mul_(20)  # so that what a token says depends on those before it
    ids = tokenizer(text)["input_ids"]
    parts = [([0, *ids[a:c]], b - a) for a, b, c in [(0, 0, 19), (10, 19, 29), (20, 29, 39)]]
    nll = []
    for window, known in parts:
        log_p = plain_logits(model, window).double().log_softmax(-1)
        nll += [-float(log_p[i, window[i + 1]]) for i in range(known, len(window) - 1)]
    short = tokenizer.decode(ids[:39])
    report = evaluate_text(model, tokenizer, short, context=20, stride=10, bos=True)
    assert report.tokens == 39 == len(nll)
    assert report.nll == pytest.approx(sum(nll) / len(nll), rel=1e-5)


@pytest.mark.parametrize(("context", "stride", "before"), [(5, 2, 1), (5, 4, 1), (7, 3, 2), (7, 5, 2), (3, 1, 2)])
@pytest.mark.parametrize("sizes", [[23], [1] * 23, [0, 7, 0, 16]])
def test_windows_with_tokens_before_score_every_token_once(sizes, context, stride, before):
    head, tokens = [-1] * before, list(range(23))
    pieces = [tokens[sum(sizes[:i]) : sum(sizes[: i + 1])] for i in range(len(sizes))]
    found = list(token_windows(pieces, context, stride, head))
    assert [token for window, first in found for token in window[first:]] == tokens
    for window, first in found:
        assert window[:before] == head
        assert len(window) <= context
        assert first == (before if window[before] == 0 else context - stride)


def test_the_default_context_is_bounded(tokenizer):
    model = byte_model(context=5000)
    assert evaluate_text(model, tokenizer, prose(30)).settings["context"] == 4096
    assert evaluate_text(model, tokenizer, prose(30), context=5000).settings["context"] == 5000


def test_the_first_token_takes_a_place_of_the_window(model, tokenizer):
    report = evaluate_text(model, tokenizer, prose(20), context=2, bos=True)
    assert report.tokens == len(prose(20).encode())
    with pytest.raises(ValueError, match="expected a stride from 1 to 3, below the context of 5, got 4"):
        check_windows(5, 4, model.config, before=2)
    with pytest.raises(ValueError, match="expected a context of at least 3 tokens and at most 64"):
        check_windows(2, None, model.config, before=2)


@pytest.mark.parametrize(("context", "stride"), [(5, 1), (5, 2), (5, 4), (64, 32)])
@pytest.mark.parametrize("sizes", [[23], [1] * 23, [0, 7, 0, 16], [5, 18], [10, 13]])
def test_windows_of_a_stream_are_those_of_the_whole(sizes, context, stride):
    tokens = list(range(23))
    pieces = [tokens[sum(sizes[:i]) : sum(sizes[: i + 1])] for i in range(len(sizes))]
    starts = range(0, 23 - context + stride, stride) if context < 23 else [0]
    expected = [(tokens[at : at + context], context - stride if at else 1) for at in starts]
    assert list(token_windows(pieces, context, stride)) == expected
    assert list(windows(23, context, stride)) == [(x[0], x[first], x[-1] + 1) for x, first in expected]
