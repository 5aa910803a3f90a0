"""The real Trainer on tiny models gives what `BoCMetric` gives on logits obtained by hand."""

import numpy as np
import pytest
import torch

from tests.hf.cases import bert_tagger, by_hand, gpt2, llama, make_trainer, roberta, tagged, texts
from torch_boc.functional import boc_summary
from torch_boc.functional.summary import SHORT_KEYS
from torch_boc.transformers import BoCTrainerMetrics

EVERY = tuple(boc_summary(torch.zeros(1, 3)))
LOOPS = {
    "plain": {},
    "accumulated": {"eval_accumulation_steps": 2},
    "by batch": {"batch_eval_metrics": True},
    "in pieces": {"eval_do_concat_batches": False},
}


def assert_results(results, expected, keys=SHORT_KEYS):
    found = {key.removeprefix("eval_boc_"): value for key, value in results.items() if key.startswith("eval_boc_")}
    assert set(found) == set(keys)
    assert found == pytest.approx({key: expected[key] for key in keys}, rel=1e-9, abs=1e-12, nan_ok=True)


@pytest.mark.parametrize("loop", LOOPS)
def test_sequence_classification(tmp_path, loop):
    trainer = make_trainer(roberta(), texts(), BoCTrainerMetrics(), tmp_path, **LOOPS[loop])
    assert_results(trainer.evaluate(), by_hand(trainer))


@pytest.mark.parametrize("loop", LOOPS)
def test_token_classification(tmp_path, loop):
    trainer = make_trainer(bert_tagger(), tagged(), BoCTrainerMetrics(keys=EVERY), tmp_path, **LOOPS[loop])
    expected = by_hand(trainer)
    assert expected["samples"] == sum((row["labels"] != -100).sum() for row in tagged())
    assert_results(trainer.evaluate(), expected, EVERY)


@pytest.mark.parametrize("make", [gpt2, llama])
@pytest.mark.parametrize("loop", ["plain", "by batch"])
def test_causal_language_model(tmp_path, make, loop):
    boc = BoCTrainerMetrics(causal=True, keys=EVERY)
    trainer = make_trainer(make(), tagged(classes=None), boc, tmp_path, **LOOPS[loop])
    assert_results(trainer.evaluate(), by_hand(trainer, causal=True), EVERY)


def test_loss_of_a_language_model_is_its_nll(tmp_path):
    trainer = make_trainer(gpt2(), tagged(5, None)[1:2], BoCTrainerMetrics(causal=True, keys=["nll"]), tmp_path)
    results = trainer.evaluate()
    assert results["eval_boc_nll"] == pytest.approx(results["eval_loss"], rel=1e-5)


def test_half_precision(tmp_path):
    trainer = make_trainer(roberta(), texts(), BoCTrainerMetrics(), tmp_path, bf16_full_eval=True)
    results = trainer.evaluate()
    assert trainer.model.dtype == torch.bfloat16
    assert_results(results, by_hand(trainer))


def test_more_outputs_than_logits(tmp_path):
    trainer = make_trainer(roberta(output_hidden_states=True), texts(), BoCTrainerMetrics(), tmp_path)
    assert_results(trainer.evaluate(), by_hand(trainer))


def test_evaluations_do_not_add_up(tmp_path):
    trainer = make_trainer(roberta(), {"all": texts(), "few": texts(6)}, BoCTrainerMetrics(keys=["samples"]), tmp_path)
    for _ in range(2):
        results = trainer.evaluate()
        assert (results["eval_all_boc_samples"], results["eval_few_boc_samples"]) == (21, 6)


@pytest.mark.parametrize("classes", [2, 3, 4096])
def test_what_is_gathered_does_not_depend_on_the_classes(tmp_path, classes):
    trainer = make_trainer(roberta(classes), texts(), BoCTrainerMetrics(), tmp_path)
    gathered = []
    gather = trainer.gather_function
    trainer.gather_function = lambda x: gathered.append(x.nbytes) or gather(x)
    output = trainer.predict(texts(classes=2))
    assert output.predictions.shape == (21, 6)
    assert output.predictions.dtype == np.float64
    assert max(gathered) == 4 * 6 * 8
    assert "test_boc_gap" in output.metrics


@pytest.mark.parametrize("make", [roberta, bert_tagger])
def test_without_labels(tmp_path, make):
    data = [{key: value for key, value in row.items() if key != "labels"} for row in tagged()]
    boc = BoCTrainerMetrics(keys=["samples", "gap", "accuracy"])
    trainer = make_trainer(make(), data, boc, tmp_path)
    output = trainer.predict(data)
    results = boc(output)
    assert set(results) == {"boc_samples", "boc_gap"}
    if make is roberta:
        assert results["boc_samples"] == 21
        assert not (output.predictions == -100).any()
    else:
        assert (output.predictions[..., 0] == -100).any()  # padded by Trainer, and not counted
        assert results["boc_samples"] == (output.predictions[..., 0] != -100).sum()


def accuracy(outcome):
    predictions, labels = outcome.predictions, outcome.label_ids
    counted = labels != -100
    return {"hits": (predictions == labels)[counted].mean(), "kind": predictions.dtype.kind, "ndim": predictions.ndim}


@pytest.mark.parametrize(("make", "data"), [(roberta, texts), (bert_tagger, tagged)], ids=["sequences", "tokens"])
def test_own_metrics_join(tmp_path, make, data):
    boc = BoCTrainerMetrics(compute_metrics=accuracy, keys=["accuracy"])
    results = make_trainer(make(), data(), boc, tmp_path).evaluate()
    assert results["eval_hits"] == pytest.approx(results["eval_boc_accuracy"])
    assert (results["eval_kind"], results["eval_ndim"]) == ("i", 1 if make is roberta else 2)


def test_own_metrics_by_batch(tmp_path):
    seen = []

    def compute_metrics(outcome, compute_result):
        seen.append((outcome.predictions == outcome.label_ids).float())
        return {"hits": torch.cat(seen).mean()} if compute_result else None

    boc = BoCTrainerMetrics(compute_metrics=compute_metrics, keys=["accuracy"])
    results = make_trainer(roberta(), texts(), boc, tmp_path, batch_eval_metrics=True).evaluate()
    assert len(seen) == 6
    assert results["eval_hits"] == pytest.approx(results["eval_boc_accuracy"])


@pytest.mark.parametrize("by_batch", [False, True])
def test_own_metrics_see_inputs_and_losses(tmp_path, by_batch):
    def compute_metrics(outcome, compute_result=True):
        predictions, labels, _inputs, losses = outcome
        assert len(predictions) == len(labels) == len(losses)
        assert outcome.inputs is not None
        return {"seen": 1}

    options = {"include_for_metrics": ["inputs", "loss"], "batch_eval_metrics": by_batch}
    trainer = make_trainer(
        roberta(), texts(20), BoCTrainerMetrics(compute_metrics=compute_metrics), tmp_path, **options
    )
    assert trainer.evaluate()["eval_seen"] == 1


def test_training_is_steered_by_the_probe(tmp_path):
    options = {
        "num_train_epochs": 3,
        "learning_rate": 1e-2,
        "eval_strategy": "epoch",
        "save_strategy": "epoch",
        "load_best_model_at_end": True,
        "metric_for_best_model": "boc_free_gap",
        "greater_is_better": False,
        "logging_strategy": "no",
    }
    trainer = make_trainer(roberta(), texts(), BoCTrainerMetrics(), tmp_path, train_dataset=texts(24), **options)
    trainer.train()
    logged = [row for row in trainer.state.log_history if "eval_boc_gap" in row]
    assert [row["epoch"] for row in logged] == [1, 2, 3]
    assert trainer.state.best_metric == min(row["eval_boc_free_gap"] for row in logged)
    best = min(logged, key=lambda row: row["eval_boc_free_gap"])
    assert_results(best, by_hand(trainer))
