"""A real language model on a real text: SmolLM2, in the folder that TORCH_BOC_SMOLLM2 names."""

import os
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from torch_boc.transformers import evaluate_text

FOLDER = os.environ.get("TORCH_BOC_SMOLLM2")


@pytest.mark.slow
@pytest.mark.skipif(not FOLDER, reason="TORCH_BOC_SMOLLM2 names no folder; see benchmarks/language/fetch.py")
def test_it_predicts_the_licence():
    """14.0 was measured, with windows of 512 tokens; a model of random weights has about 49,152."""
    found = sorted(Path(FOLDER).glob("*.gguf"))  # or the files of transformers
    options = {"gguf_file": found[0].name} if found else {}
    model = AutoModelForCausalLM.from_pretrained(FOLDER, dtype=torch.float32, **options).eval()
    tokenizer = AutoTokenizer.from_pretrained(FOLDER, **options)
    text = (Path(__file__).parents[2] / "LICENSE").read_text()
    numbers = evaluate_text(model, tokenizer, text, context=512)["text"]
    assert 13 < numbers["perplexity"] < 15
    assert 0.4 < numbers["accuracy"] < 0.55
    assert numbers["ece_confidence"] < 0.06
    assert numbers["forced_gap"] / numbers["gap"] > 0.9999
