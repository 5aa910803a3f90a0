"""What Trainer does not tell is found out: that an evaluation was interrupted, and whose label a position predicts."""

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
    T5Config,
    T5ForConditionalGeneration,
    XLNetConfig,
    XLNetLMHeadModel,
)

from tests.transformers.cases import (
    SIZE,
    VOCABULARY,
    bert_tagger,
    by_hand,
    gpt2,
    llama,
    make_trainer,
    roberta,
    tagged,
    texts,
)
from torch_boc.transformers import BoCTrainerMetrics
from torch_boc.transformers.loop import UNSHIFTED, is_causal


class Interrupted(nn.Module):
    """A model whose call with this number, counted from 1, is interrupted."""

    def __init__(self, model: nn.Module, call: int, error: BaseException) -> None:
        super().__init__()
        self.model, self.call, self.error = model, call, error

    def forward(self, input_ids, labels=None):
        """What the model returns."""
        self.call -= 1
        if self.call == 0:
            raise self.error
        return self.model(input_ids=input_ids, labels=labels)


@pytest.mark.parametrize("error", [RuntimeError("CUDA error"), KeyboardInterrupt()], ids=["error", "Ctrl-C"])
@pytest.mark.parametrize("workers", [{}, {"dataloader_num_workers": 1, "dataloader_persistent_workers": True}], ids=str)
@pytest.mark.parametrize("times", [1, 2])
def test_an_interrupted_evaluation_leaves_nothing_behind(tmp_path, error, workers, times):
    """Persistent workers keep one loader for all evaluations."""
    model = Interrupted(roberta(), 3, error)
    boc = BoCTrainerMetrics(keys=["samples", "gap"])
    trainer = make_trainer(model, texts(), boc, tmp_path, batch_eval_metrics=True, **workers)
    held = []
    for _ in range(times):
        model.call = 3
        with pytest.raises(type(error)) as raised:
            trainer.evaluate()
        held.append(raised)  # as a notebook does, and with it the frames of the interrupted loop
    results = trainer.evaluate()
    assert results["eval_boc_samples"] == 21
    model.model, trainer.model = roberta(), roberta()
    assert results["eval_boc_gap"] == pytest.approx(by_hand(trainer)["gap"], rel=1e-6)


def test_an_error_in_the_users_function_leaves_nothing_behind(tmp_path):
    fails = [True]

    def compute_metrics(outcome, compute_result):
        if compute_result and fails.pop():
            raise ZeroDivisionError
        return {}

    boc = BoCTrainerMetrics(keys=["samples"], compute_metrics=compute_metrics)
    trainer = make_trainer(roberta(), texts(), boc, tmp_path, batch_eval_metrics=True)
    with pytest.raises(ZeroDivisionError):
        trainer.evaluate()
    fails.append(False)
    assert trainer.evaluate()["eval_boc_samples"] == 21


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


def test_a_model_of_an_unknown_kind_must_be_explained(tmp_path):
    model = Interrupted(gpt2(), 0, ValueError())
    model.model.config.use_cache = False
    with pytest.raises(ValueError, match=r"expected causal=True or causal=False for logits of shape \(4, 13, 50\)"):
        make_trainer(model, tagged(classes=None), BoCTrainerMetrics(), tmp_path).evaluate()
    for causal in (False, True):
        boc = BoCTrainerMetrics(causal=causal, keys=["samples"])
        results = make_trainer(model, tagged(classes=None), boc, tmp_path).evaluate()
        labels = [row["labels"][causal:] for row in tagged(classes=None)]
        assert results["eval_boc_samples"] == sum((x != -100).sum() for x in labels)


def test_without_labels_nothing_needs_to_be_explained():
    boc = BoCTrainerMetrics()
    assert boc.preprocess(torch.randn(2, 3, 5))["columns"].shape == (2, 3, 4)


def test_the_model_of_the_last_trainer_counts():
    logits, labels = torch.randn(2, 3, 5), torch.zeros(2, 3, dtype=torch.long)
    boc = BoCTrainerMetrics()
    for model, counted in ((gpt2(), 4), (bert_tagger(), 6)):
        boc.arguments(model)
        assert (boc.preprocess(logits, labels)["columns"][..., 1] >= 0).sum() == counted
    boc.arguments()
    with pytest.raises(ValueError, match=r"got neither, nor a model of a known kind; give boc.arguments\(model\)"):
        boc.preprocess(logits, labels)
