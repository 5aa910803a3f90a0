"""A real language model on a real text: SmolLM2, in the folder that TORCH_BOC_SMOLLM2 names."""

import os
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from torch_boc.functional.bounds import forced_gap
from torch_boc.functional.tokens import token_numbers
from torch_boc.transformers import evaluate_text

FOLDER = os.environ.get("TORCH_BOC_SMOLLM2")
LICENSE = Path(__file__).parents[2] / "LICENSE"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not FOLDER, reason="TORCH_BOC_SMOLLM2 names no folder; see benchmarks/language/fetch.py"),
]


@pytest.fixture(scope="module")
def loaded():
    """The model and its tokenizer, from a GGUF file or from the files of transformers."""
    found = sorted(Path(FOLDER).glob("*.gguf"))
    options = {"gguf_file": found[0].name} if found else {}
    model = AutoModelForCausalLM.from_pretrained(FOLDER, dtype=torch.float32, **options)
    return model.eval(), AutoTokenizer.from_pretrained(FOLDER, **options)


@pytest.fixture(scope="module")
def rows(loaded):
    """The logits of one forward over the beginning of the licence, and the tokens that they predict."""
    model, tokenizer = loaded
    ids = torch.tensor([tokenizer(LICENSE.read_text())["input_ids"][:400]])
    with torch.no_grad():
        return model(input_ids=ids).logits[0, :-1], ids[0, 1:]


def test_it_predicts_the_licence(loaded):
    """14.0 was measured, with windows of 512 tokens; a model of random weights has about 49,152."""
    numbers = evaluate_text(*loaded, LICENSE.read_text(), context=512)["text"]
    assert 13 < numbers["perplexity"] < 15
    assert 0.4 < numbers["accuracy"] < 0.55
    assert numbers["ece_confidence"] < 0.06
    assert numbers["forced_gap"] / numbers["gap"] > 0.9999


def test_numbers_of_tokens_are_those_of_float64(rows):
    logits, target = rows
    numbers, log_p = token_numbers(logits, target), logits.double().log_softmax(-1)
    own = log_p.gather(1, target[:, None])
    u = (log_p - log_p.amax(1, keepdim=True)).exp()
    lost = (u / (1 + u)).sum(1) - 0.5  # without the coin of the top against itself
    odds = u.sum(1) - 1
    expected = {
        "log_probability": own.squeeze(1),
        "rank": (log_p > own).sum(1) + 1,
        "confidence": log_p.amax(1).exp(),
        "lost_coins": lost,
        "gap": odds / (1 + odds) - lost / (logits.shape[1] - 1),
        "entropy": -(log_p.exp() * log_p).sum(1),
    }
    for name, value in expected.items():
        torch.testing.assert_close(getattr(numbers, name).double(), value.double(), rtol=2e-5, atol=1e-6, msg=name)
    assert float((forced_gap(numbers.odds, logits.shape[1]) / numbers.gap).amin()) > 0.999
