"""What Trainer does not tell is found out: that an evaluation was interrupted, and which model is evaluated."""

import pytest
import torch
from torch import nn

from tests.transformers.cases import bert_tagger, by_hand, gpt2, make_trainer, roberta, tagged, texts
from torch_boc.transformers import BoCTrainerMetrics


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
    assert boc.preprocess(torch.randn(2, 3, 5))["columns"].shape == (2, 3, 5)


def test_the_model_of_the_last_trainer_counts():
    logits, labels = torch.randn(2, 3, 5), torch.zeros(2, 3, dtype=torch.long)
    boc = BoCTrainerMetrics()
    for model, counted in ((gpt2(), 4), (bert_tagger(), 6)):
        boc.arguments(model)
        assert (boc.preprocess(logits, labels)["columns"][..., 1] >= 0).sum() == counted
    boc.arguments()
    with pytest.raises(ValueError, match=r"got neither, nor a model of a known kind; give boc.arguments\(model\)"):
        boc.preprocess(logits, labels)
