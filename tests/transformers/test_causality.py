"""The class of a model says whose label a position predicts, or the config that a wrapper keeps."""

import ast
import re
from pathlib import Path

import pytest
import torch
import transformers
from torch import nn
from transformers import (
    BartConfig,
    BartForCausalLM,
    BertConfig,
    BertForMaskedLM,
    BertLMHeadModel,
    GPT2Config,
    GPT2ForTokenClassification,
    LlamaConfig,
    T5Config,
    T5ForConditionalGeneration,
    XLNetConfig,
    XLNetLMHeadModel,
)

from tests.transformers.cases import SIZE, VOCABULARY, bert_tagger, gpt2, llama, make_trainer, roberta, tagged
from torch_boc import BoCClassifier
from torch_boc.transformers import BoCTrainerMetrics
from torch_boc.transformers.causality import UNSHIFTED, find_causality, is_causal


def masked() -> nn.Module:
    return BertForMaskedLM(BertConfig(vocab_size=VOCABULARY, **SIZE))


def decoder() -> nn.Module:
    return BertLMHeadModel(BertConfig(vocab_size=VOCABULARY, is_decoder=True, **SIZE))


def t5() -> nn.Module:
    size = {"d_model": 16, "d_kv": 8, "d_ff": 16, "num_layers": 1, "num_heads": 2}
    return T5ForConditionalGeneration(T5Config(vocab_size=VOCABULARY, decoder_start_token_id=0, **size))


def bart_decoder() -> nn.Module:
    size = {"d_model": 16, "decoder_layers": 1, "decoder_attention_heads": 2, "decoder_ffn_dim": 16}
    return BartForCausalLM(BartConfig(vocab_size=VOCABULARY, **size))


def xlnet() -> nn.Module:
    return XLNetLMHeadModel(XLNetConfig(vocab_size=VOCABULARY, d_model=16, n_layer=1, n_head=2, d_inner=16))


class Adapted(nn.Module):
    """The interface of a model of peft."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def get_base_model(self) -> nn.Module:
        """The model without its adapters."""
        return self.model


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (gpt2, True),
        (llama, True),
        (decoder, True),
        (lambda: Adapted(llama()), True),
        (bert_tagger, False),
        (masked, False),
        (t5, False),
        (bart_decoder, False),
        (xlnet, False),
        (roberta, None),
        (lambda: nn.Linear(2, 2), None),
    ],
)
def test_the_class_of_a_model_says_whose_label_it_predicts(make, expected):
    assert is_causal(make()) is expected


@pytest.mark.parametrize(
    ("make", "causal"),
    [(gpt2, True), (decoder, True), (masked, False), (t5, False), (bart_decoder, False), (xlnet, False)],
)
def test_the_loss_of_transformers_says_the_same(make, causal):
    """The nll with the labels so aligned is the model's own loss."""
    model = make().eval()
    row = tagged(1, None)[0]
    batch = {key: x[None] for key, x in row.items()}
    batch["labels"][0, 0] = 5  # the first label counts for those alone that predict their own
    with torch.no_grad():
        output = model(**batch)
    boc = BoCTrainerMetrics(keys=["nll"])
    boc.arguments(model)
    predictions = boc.preprocess(output.logits, batch["labels"])
    found = boc(type("Outcome", (), {"predictions": predictions, "label_ids": None}))["boc_nll"]
    assert found == pytest.approx(output.loss.item(), rel=1e-5)
    other = BoCTrainerMetrics(keys=["nll"], causal=not causal)
    other.arguments(model)
    predictions = other.preprocess(output.logits, batch["labels"])
    stated = other(type("Outcome", (), {"predictions": predictions, "label_ids": None}))["boc_nll"]
    assert stated != pytest.approx(found, rel=1e-4)  # what was stated comes before the class


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


class Keeper(nn.Module):
    """A wrapper of somebody else, which keeps the config."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.inner, self.config = model, model.config

    def forward(self, input_ids, attention_mask=None, labels=None):
        """What the model returns."""
        return self.inner(input_ids=input_ids, attention_mask=attention_mask, labels=labels)


class Headed(nn.Module):
    """A model with a head of its own; its config is all that is known of it."""

    def __init__(self, config) -> None:
        super().__init__()
        self.config = config


def tagger_from_a_decoder() -> nn.Module:
    """Its config still names the checkpoint's class."""
    size = {"n_positions": 40, "n_embd": 16, "n_layer": 1, "n_head": 2}
    config = GPT2Config(vocab_size=VOCABULARY, architectures=["GPT2LMHeadModel"], **size)
    return GPT2ForTokenClassification(config)


@pytest.mark.parametrize("wrap", [nn.DataParallel, torch.compile, Adapted, Keeper, BoCClassifier])
@pytest.mark.parametrize(("make", "expected"), [(gpt2, True), (bert_tagger, False), (t5, False), (roberta, None)])
def test_wrappers_are_opened(wrap, make, expected):
    assert find_causality(wrap(make())).of(5) is expected


def test_the_class_inside_of_a_wrapper_comes_before_the_config():
    for model in (tagger_from_a_decoder(), Keeper(tagger_from_a_decoder())):
        assert find_causality(model).of(VOCABULARY) is False


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (LlamaConfig(vocab_size=VOCABULARY), True),
        (GPT2Config(vocab_size=VOCABULARY), True),
        (LlamaConfig(vocab_size=VOCABULARY, architectures=["LlamaForTokenClassification"]), False),
        (LlamaConfig(vocab_size=VOCABULARY, architectures=["LlamaModel"]), None),
        (BertConfig(vocab_size=VOCABULARY), None),  # there are BERTs of both kinds
        (BertConfig(vocab_size=VOCABULARY, architectures=["BertForMaskedLM"]), False),
        (BertConfig(vocab_size=VOCABULARY, architectures=["BertLMHeadModel"]), True),
        (XLNetConfig(vocab_size=VOCABULARY, architectures=["XLNetLMHeadModel"]), False),
        (XLNetConfig(vocab_size=VOCABULARY), False),
        (type("Config", (), {}), None),
    ],
)
def test_a_config_speaks_for_logits_over_the_vocabulary(config, expected):
    """With another number of classes, the head is not that of the language model."""
    found = find_causality(Headed(config))
    assert found.of(VOCABULARY) is expected
    assert found.of(7) is None


def test_a_config_with_an_encoder_speaks_for_all_logits():
    assert find_causality(Headed(BartConfig(vocab_size=VOCABULARY))).of(7) is False


def test_a_wrapped_model_is_shifted_in_an_evaluation(tmp_path):
    results = [
        make_trainer(model, tagged(classes=None), BoCTrainerMetrics(keys=["samples", "gap"]), tmp_path).evaluate()
        for model in (gpt2(), Keeper(gpt2()))
    ]
    for key in ("eval_boc_samples", "eval_boc_gap"):
        assert results[0][key] == pytest.approx(results[1][key], rel=1e-6)


def test_what_is_stated_comes_before_the_config():
    logits, labels = torch.randn(2, 3, VOCABULARY), torch.zeros(2, 3, dtype=torch.long)
    for causal, counted in ((None, 4), (False, 6)):
        boc = BoCTrainerMetrics(causal=causal)
        boc.arguments(Headed(LlamaConfig(vocab_size=VOCABULARY)))
        assert (boc.preprocess(logits, labels)["columns"][..., 1] >= 0).sum() == counted
    boc = BoCTrainerMetrics()
    boc.arguments(Headed(LlamaConfig(vocab_size=VOCABULARY)))
    with pytest.raises(ValueError, match="expected causal=True or causal=False for logits of shape"):
        boc.preprocess(logits[..., :7], labels)
