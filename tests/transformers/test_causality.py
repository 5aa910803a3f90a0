"""The class of a model says whose label a position predicts."""

import ast
import re
from pathlib import Path

import pytest
import torch
import transformers
from torch import nn

from tests.transformers.cases import SIZE, VOCABULARY, bert, gpt2, masked_bert, roberta, t5, tagged, tiny
from torch_boc import BoCMetric
from torch_boc.data.label_shift import UNSHIFTED, predicts_next
from torch_boc.transformers import BoCTrainerMetrics


def decoder():
    return bert(is_decoder=True)


def bart_decoder():
    size = {"d_model": 16, "decoder_layers": 1, "decoder_attention_heads": 2, "decoder_ffn_dim": 16}
    return tiny("Bart", **size)


def xlnet():
    return tiny("XLNet", "LMHeadModel", "lm_loss", d_model=16, n_layer=1, n_head=2, d_inner=16)


def tagger_from_a_decoder():
    """Its config still names the checkpoint's class."""
    size = {"n_positions": 40, "n_embd": 16, "n_layer": 1, "n_head": 2}
    return tiny("GPT2", "ForTokenClassification", "classifier", architectures=["GPT2LMHeadModel"], **size)


def instruct_blip():
    """Around T5, which shifts the input of its decoder: the outer config does not say so."""
    reader = {**SIZE, "vocab_size": VOCABULARY, "encoder_hidden_size": 16}
    parts = {"vision_config": {**SIZE, "image_size": 8, "patch_size": 4}, "qformer_config": reader}
    return tiny("InstructBlip", "ForConditionalGeneration", "language_projection", text_config=t5().config, **parts)


class Wrapper(nn.Module):
    """A module of somebody else, with these attributes."""

    def __init__(self, **parts):
        super().__init__()
        for name, part in parts.items():
            setattr(self, name, part)


class PeftModelForCausalLM(Wrapper):
    """As peft's, which has this name whatever is inside."""


KNOWN = [(gpt2, True), (decoder, True), *((make, False) for make in (masked_bert, t5, bart_decoder, xlnet))]
OTHERS = [(tagger_from_a_decoder, False), (instruct_blip, False), (roberta, None), (lambda: nn.Linear(2, 2), None)]


@pytest.mark.parametrize(("make", "expected"), KNOWN + OTHERS)
def test_the_class_of_a_model_says_whose_label_it_predicts(make, expected):
    """Also inside of wrappers that are known, or that have the config of the model."""
    model = make()
    adapted = PeftModelForCausalLM(base_model=model, get_base_model=lambda: model)
    adapted.config = getattr(model, "config", None)
    wrapped = Wrapper(metric=BoCMetric(), inner=model, config=adapted.config)
    for each in (model, nn.DataParallel(model), torch.compile(model), adapted, wrapped):
        assert predicts_next(each, VOCABULARY) is expected
        assert predicts_next(each, 5) is (None if expected else expected)  # another head on a causal model
    assert predicts_next(Wrapper(inner=model), VOCABULARY) is None


@pytest.mark.parametrize(("make", "causal"), KNOWN)
def test_the_loss_of_transformers_says_the_same(make, causal):
    """The nll with the labels so aligned is the model's own loss; what is stated comes before the class."""
    model = make().eval()
    batch = {key: x[None] for key, x in tagged(1, None)[0].items()}
    batch["labels"][0, 0] = 5  # the first label counts for those alone that predict their own
    with torch.no_grad():
        output = model(**batch)
    found = []
    for stated in (None, not causal):
        boc = BoCTrainerMetrics(keys=["nll"], causal=stated)
        boc.arguments(model)
        found.append(boc(transformers.EvalPrediction(boc.preprocess(output.logits, batch["labels"]), None))["boc_nll"])
    assert found[0] == pytest.approx(output.loss.item(), rel=1e-5)
    assert found[1] != pytest.approx(found[0], rel=1e-4)


@pytest.mark.slow
def test_every_decoder_of_transformers_that_does_not_shift_is_known():
    """Their own code says so: their loss takes logits and labels as they are."""
    plain = re.compile(
        r"loss = loss_\w+\(logits\.view\(-1, [^()]*(\([^()]*\))?\), labels\.view\(-1\)\)|_compute_loss\("
    )
    found = set()
    for path in (Path(transformers.__file__).parent / "models").glob("*/modeling_*.py"):
        source = path.read_text(encoding="utf8")
        for kind in ast.parse(source).body if plain.search(source) else ():
            if isinstance(kind, ast.ClassDef) and kind.name.endswith(("ForCausalLM", "LMHeadModel")):
                body = ast.get_source_segment(source, kind)
                if plain.search(body) and "loss_function(" not in body and "shift_logits" not in body:
                    found.add(kind.name)
    found = {name for name in found if not name.endswith("WithLMHeadModel")}
    assert len(found) > 5
    assert found <= set(UNSHIFTED)
