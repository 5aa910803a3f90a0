"""The real Trainer on tiny models gives what `BoCMetric` gives on logits obtained by hand."""

import numpy as np
import pytest
import scipy.special
import torch
from transformers import Trainer, TrainingArguments

from tests.transformers.cases import bert_tagger, by_hand, collate, gpt2, llama, make_trainer, roberta, tagged, texts
from torch_boc.functional import boc_summary
from torch_boc.functional.summary import SHORT_KEYS
from torch_boc.transformers import BoCTrainerMetrics, Predictions

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
    boc = BoCTrainerMetrics(keys=EVERY)
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


def first_accuracy(outcome):
    """As users write it for models that return more than logits."""
    logits = outcome.predictions[0]
    return {"accuracy": (np.argmax(logits, -1) == outcome.label_ids).mean(), "outputs": len(outcome.predictions)}


@pytest.mark.parametrize("keep_logits", [None, True, False])
@pytest.mark.parametrize("loop", ["plain", "accumulated"])
def test_several_outputs_stay_a_tuple(tmp_path, loop, keep_logits):
    """As from Trainer itself; if the logits are not kept, nothing else is."""
    model = roberta(output_hidden_states=True)
    boc = BoCTrainerMetrics(compute_metrics=first_accuracy, keep_logits=keep_logits, keys=["accuracy"])
    trainer = make_trainer(model, texts(), boc, tmp_path, **LOOPS[loop])
    results, predictions = trainer.evaluate(), trainer.predict(texts()).predictions
    assert results["eval_accuracy"] == results["eval_boc_accuracy"] == by_hand(trainer)["accuracy"]
    plain = Trainer(model, trainer.args, collate, eval_dataset=texts()).predict(texts()).predictions
    np.testing.assert_array_equal(predictions[0].argmax(-1), plain[0].argmax(-1))
    assert len(predictions) == (1 if keep_logits is False else len(plain))
    if keep_logits is not False:
        np.testing.assert_array_equal(predictions[1][0], plain[1][0])
    assert results["eval_outputs"] == len(predictions)


def test_evaluations_do_not_add_up(tmp_path):
    trainer = make_trainer(roberta(), {"all": texts(), "few": texts(6)}, BoCTrainerMetrics(keys=["samples"]), tmp_path)
    for _ in range(2):
        results = trainer.evaluate()
        assert (results["eval_all_boc_samples"], results["eval_few_boc_samples"]) == (21, 6)


def nbytes(x):
    return sum(map(nbytes, x.values())) if isinstance(x, Predictions) else x.nbytes


@pytest.mark.parametrize("classes", [2, 3, 4096])
def test_what_is_gathered_does_not_depend_on_the_classes(tmp_path, classes):
    trainer = make_trainer(roberta(classes), texts(), BoCTrainerMetrics(), tmp_path)
    gathered = []
    gather = trainer.gather_function
    trainer.gather_function = lambda x: gathered.append(nbytes(x)) or gather(x)
    output = trainer.predict(texts(classes=2))
    assert output.predictions["columns"].shape == (21, 7)
    assert output.predictions["columns"].dtype == np.float64
    assert max(gathered) == 4 * (7 + 1) * 8  # seven columns, and the number of classes
    assert "test_boc_gap" in output.metrics


@pytest.mark.parametrize("make", [roberta, bert_tagger])
def test_without_labels(tmp_path, make):
    data = [{key: value for key, value in row.items() if key != "labels"} for row in tagged()]
    boc = BoCTrainerMetrics(keys=["samples", "gap", "accuracy"])
    trainer = make_trainer(make(), data, boc, tmp_path)
    output = trainer.predict(data)
    results = boc(output)
    assert set(results) == {"boc_samples", "boc_gap"}
    predicted = output.predictions["columns"][..., 0]
    if make is roberta:
        assert results["boc_samples"] == 21
        assert not (predicted == -100).any()
    else:
        assert (predicted == -100).any()  # padded by Trainer, and not counted
        assert results["boc_samples"] == (predicted != -100).sum()


def accuracy(outcome):
    """As in the documentation of transformers."""
    logits, labels = outcome
    predictions = np.argmax(logits, axis=-1)
    return {"hits": (predictions == labels)[labels != -100].mean()}


def log_loss(outcome):
    """What no one-hot rows would give."""
    logits, labels = outcome.predictions, outcome.label_ids
    counted = labels != -100
    chosen = np.take_along_axis(scipy.special.log_softmax(logits, -1), labels.clip(0)[..., None], -1)[..., 0]
    return {"nll": -chosen[counted].mean()}


MODELS = {"sequences": (roberta, texts), "tokens": (bert_tagger, tagged)}


@pytest.mark.parametrize(("make", "data"), MODELS.values(), ids=MODELS)
@pytest.mark.parametrize("keep_logits", [None, False, True])
def test_the_usual_accuracy_is_right(tmp_path, make, data, keep_logits):
    boc = BoCTrainerMetrics(compute_metrics=accuracy, keys=["accuracy"], keep_logits=keep_logits)
    results = make_trainer(make(), data(), boc, tmp_path).evaluate()
    assert results["eval_hits"] == pytest.approx(results["eval_boc_accuracy"])


@pytest.mark.parametrize(("make", "data"), MODELS.values(), ids=MODELS)
def test_probabilities_are_right_or_refused(tmp_path, make, data):
    boc = BoCTrainerMetrics(compute_metrics=log_loss, keys=["nll"])
    results = make_trainer(make(), data(), boc, tmp_path).evaluate()
    assert results["eval_nll"] == pytest.approx(results["eval_boc_nll"], rel=1e-5)
    boc = BoCTrainerMetrics(compute_metrics=log_loss, keep_logits=False)
    with pytest.raises(TypeError, match=r"not kept, to save memory: .*BoCTrainerMetrics\(keep_logits=True\)"):
        make_trainer(make(), data(), boc, tmp_path).evaluate()


def test_a_model_that_is_always_right_has_accuracy_1(tmp_path):
    """As users met it: the labels are the model's own answers, and there are as many classes as columns."""
    data = texts(classes=6)
    plain = Trainer(roberta(6), TrainingArguments(str(tmp_path), report_to="none", use_cpu=True), collate)
    own = torch.tensor(plain.predict(data).predictions.argmax(-1))
    data = [{**row, "labels": label} for row, label in zip(data, own, strict=True)]
    for options in ({"compute_metrics": accuracy}, {}):
        boc = BoCTrainerMetrics(**options)
        trainer = make_trainer(roberta(6), data, boc, tmp_path)
        assert trainer.evaluate().get("eval_hits", 1.0) == 1.0
        assert (trainer.predict(data).predictions.argmax(-1) == own.numpy()).all()


@pytest.mark.parametrize(("make", "data"), MODELS.values(), ids=MODELS)
@pytest.mark.parametrize("loop", ["plain", "accumulated", "by batch"])
def test_predict_gives_classes_and_logits_as_without_the_probe(tmp_path, make, data, loop):
    options = {**LOOPS[loop], "batch_eval_metrics": False}
    plain = make_trainer(make(), data(), BoCTrainerMetrics(), tmp_path, **options)
    plain.preprocess_logits_for_metrics = plain.compute_metrics = None
    expected = plain.predict(data()).predictions
    for keep_logits in (False, True):
        boc = BoCTrainerMetrics(keep_logits=keep_logits)
        found = make_trainer(make(), data(), boc, tmp_path, **LOOPS[loop]).predict(data()).predictions
        np.testing.assert_array_equal(found.argmax(-1), expected.argmax(-1))
        np.testing.assert_array_equal(np.argmax(found, axis=-1), expected.argmax(-1))
    assert found.shape == expected.shape
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(np.asarray(found), expected)


@pytest.mark.parametrize("keep_logits", [None, False])
def test_own_metrics_by_batch(tmp_path, keep_logits):
    seen = []

    def compute_metrics(outcome, compute_result):
        seen.append((outcome.predictions.argmax(dim=-1) == outcome.label_ids).float())
        return {"hits": torch.cat(seen).mean()} if compute_result else None

    boc = BoCTrainerMetrics(compute_metrics=compute_metrics, keys=["accuracy"], keep_logits=keep_logits)
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
