"""The real Trainer on tiny models gives what `BoCMetric` gives on logits obtained by hand."""

import copy
import pickle
import re

import numpy as np
import pytest
import scipy.special
import torch
from torch import nn
from torch._subclasses import FakeTensorMode
from transformers import EvalPrediction
from transformers.trainer_pt_utils import nested_numpify

from tests.dispatch import NoHostSync
from tests.metrics.cases import labelled_batches
from tests.transformers.cases import (
    EVERY,
    SUMMARY,
    bert_tagger,
    by_hand,
    gpt2,
    llama,
    make_trainer,
    masked_bert,
    roberta,
    tagged,
    texts,
)
from torch_boc.functional import boc_summary
from torch_boc.functional.summary import DEFAULT_KEYS
from torch_boc.transformers import BoCTrainerMetrics, Predictions

LOOPS = {
    "plain": {},
    "accumulated": {"eval_accumulation_steps": 2},
    "by batch": {"batch_eval_metrics": True},
    "in pieces": {"eval_do_concat_batches": False},
    "half": {"bf16_full_eval": True},
}


def assert_results(results, expected, keys=DEFAULT_KEYS):
    found = {key.removeprefix("eval_boc_"): value for key, value in results.items() if key.startswith("eval_boc_")}
    assert set(found) == set(keys)
    assert found == pytest.approx({key: expected[key] for key in keys}, rel=1e-6, abs=1e-9, nan_ok=True)


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize(("make", "data"), [(roberta, texts), (bert_tagger, tagged)], ids=["sequences", "tokens"])
def test_classification(tmp_path, make, data, loop):
    """The metrics are those by hand, and predict gives classes and logits as without the probe."""
    model, options = make(), LOOPS[loop]
    trainer = make_trainer(model, data(), BoCTrainerMetrics(keys=EVERY), tmp_path, **options)
    if loop == "half":
        model.bfloat16()
    expected = by_hand(trainer)
    for _ in range(2):  # evaluations do not add up
        assert_results(trainer.evaluate(), expected, EVERY)
    if loop in ("in pieces", "half"):
        return
    plain = make_trainer(model, data(), None, tmp_path, **{**options, "batch_eval_metrics": False})
    logits = plain.predict(data()).predictions
    boc = BoCTrainerMetrics(preprocess_logits_for_metrics=lambda logits, labels: logits)
    found = make_trainer(model, data(), boc, tmp_path, **options).predict(data()).predictions
    np.testing.assert_array_equal(found.prediction.clip(min=0), logits.argmax(-1))
    np.testing.assert_array_equal(found["own"], logits, strict=True)


@pytest.mark.parametrize("make", [gpt2, llama])
def test_causal_language_model(tmp_path, make):
    trainer = make_trainer(make(), tagged(classes=None), BoCTrainerMetrics(keys=EVERY), tmp_path)
    assert_results(trainer.evaluate(), by_hand(trainer, causal=True), EVERY)


def test_several_outputs_stay_a_tuple(tmp_path):
    """As from Trainer itself."""

    def own(outcome):
        return {**accuracy(outcome, outcome.predictions[0]), "outputs": len(outcome.predictions)}

    model = roberta(output_hidden_states=True)
    boc = BoCTrainerMetrics(compute_metrics=own, keys=["accuracy"])
    results = make_trainer(model, texts(), boc, tmp_path).evaluate()
    assert results["eval_hits"] == results["eval_boc_accuracy"]
    plain = make_trainer(model, texts(), None, tmp_path).predict(texts()).predictions
    assert results["eval_outputs"] == len(plain)


@pytest.mark.parametrize("classes", [2, 4096])
def test_what_is_gathered_does_not_depend_on_the_classes(tmp_path, classes):
    trainer = make_trainer(roberta(classes), texts(), BoCTrainerMetrics(), tmp_path)
    gathered, gather = [], trainer.gather_function

    def watched(x):
        gathered.append(sum(part.nbytes for part in x.values()) if isinstance(x, Predictions) else x.nbytes)
        return gather(x)

    trainer.gather_function = watched
    assert "test_boc_gap" in trainer.predict(texts(classes=2)).metrics
    assert max(gathered) == 4 * (7 + 1) * 8  # the columns, and the number of classes


@pytest.mark.parametrize("make", [roberta, bert_tagger])
def test_without_labels(tmp_path, make):
    data = [{key: value for key, value in row.items() if key != "labels"} for row in tagged()]
    boc = BoCTrainerMetrics(keys=["samples", "gap", "accuracy"])
    output = make_trainer(make(), data, boc, tmp_path).predict(data)
    results = boc(output)
    assert set(results) == {"boc_samples", "boc_gap"}
    predicted = output.predictions["columns"][..., 0]
    assert (predicted == -100).any() == (make is bert_tagger)  # padded by Trainer, and not counted
    assert results["boc_samples"] == (predicted != -100).sum()


def accuracy(outcome, predictions=None):
    """As in the documentation of transformers."""
    predictions = outcome.predictions if predictions is None else predictions
    labels = outcome.label_ids
    return {"hits": (np.argmax(predictions, axis=-1) == labels)[labels != -100].mean()}


def log_loss(outcome):
    """What no one-hot rows would give."""
    logits, labels = outcome.predictions, outcome.label_ids
    chosen = np.take_along_axis(scipy.special.log_softmax(logits, -1), labels.clip(0)[..., None], -1)[..., 0]
    return {"nll": -chosen[labels != -100].mean()}


@pytest.mark.parametrize(("own", "key"), [(accuracy, "accuracy"), (log_loss, "nll")])
def test_own_metrics_get_the_logits(own, key, tmp_path):
    boc = BoCTrainerMetrics(compute_metrics=own, keys=[key])
    results = make_trainer(bert_tagger(), tagged(), boc, tmp_path).evaluate()
    name = "eval_hits" if own is accuracy else "eval_nll"
    assert results[name] == pytest.approx(results[f"eval_boc_{key}"], rel=1e-5)


def test_own_metrics_by_batch_see_inputs_and_losses(tmp_path):
    seen = []

    def compute_metrics(outcome, compute_result):
        predictions, labels, _, losses = outcome
        assert len(predictions) == len(labels) == len(losses)
        seen.append((predictions.argmax(dim=-1) == labels).float())
        return {"hits": torch.cat(seen).mean()} if compute_result else None

    boc = BoCTrainerMetrics(compute_metrics=compute_metrics, keys=["accuracy"])
    options = {"include_for_metrics": ["inputs", "loss"], "batch_eval_metrics": True}
    results = make_trainer(roberta(), texts(20), boc, tmp_path, **options).evaluate()
    assert results["eval_hits"] == pytest.approx(results["eval_boc_accuracy"])


@pytest.mark.parametrize("make", [roberta, gpt2, masked_bert])
def test_own_preprocess_is_called_as_in_the_scripts_of_transformers(tmp_path, make):
    """Its results and the metrics made of them are those without the probe."""

    def preprocess(logits, labels):
        assert labels.device.type == "cpu"
        return logits.argmax(dim=-1)

    def hits(outcome):
        predictions, labels = outcome
        if make is gpt2:
            predictions, labels = predictions[:, :-1], labels[:, 1:]
        return {"hits": (predictions == labels)[labels != -100].mean()}

    model, data = make(), texts() if make is roberta else tagged(classes=None)
    own = {"compute_metrics": hits, "preprocess_logits_for_metrics": preprocess}
    trainer = make_trainer(model, data, BoCTrainerMetrics(**own, keys=["accuracy"]), tmp_path)
    found = trainer.evaluate()
    assert found["eval_hits"] == pytest.approx(found["eval_boc_accuracy"])
    predictions = trainer.predict(data).predictions
    plain = make_trainer(model, data, None, tmp_path)
    plain.compute_metrics, plain.preprocess_logits_for_metrics = hits, preprocess
    np.testing.assert_array_equal(predictions["own"], plain.predict(data).predictions)
    assert plain.evaluate()["eval_hits"] == found["eval_hits"]


def test_the_best_checkpoint_is_that_of_the_lowest_nll(tmp_path):
    options = {"eval_strategy": "epoch", "save_strategy": "epoch", "load_best_model_at_end": True, "learning_rate": 0.1}
    options |= {"metric_for_best_model": "boc_nll", "greater_is_better": False, "num_train_epochs": 3}
    trainer = make_trainer(roberta(), texts(), BoCTrainerMetrics(), tmp_path, train_dataset=texts(8), **options)
    trainer.train()
    course = [row["eval_boc_nll"] for row in trainer.state.log_history if "eval_boc_nll" in row]
    assert trainer.state.best_metric == min(course)
    assert len(course) == 3


def test_heads_without_a_softmax_are_refused():
    model, boc = roberta(3), BoCTrainerMetrics()
    for kind, labels in (("multi_label_classification", 3), ("regression", 3), (None, 1)):
        model = roberta(labels, problem_type=kind)
        with pytest.raises(ValueError, match=f"one class per sample, got a head with problem_type={kind!r}"):
            boc.arguments(model)
    model = roberta(3)
    boc.arguments(model)
    rows, labels = torch.ones(2, 5, dtype=torch.long), torch.ones(2, 3)
    logits = model(rows, labels=labels).logits.detach()
    with pytest.raises(ValueError, match="got a head with problem_type='multi_label_classification'"):
        boc.preprocess(logits, labels)


@pytest.mark.parametrize(("make", "said"), [(gpt2, "the next label.*=True"), (bert_tagger, "its own label.*=False")])
def test_whether_labels_are_shifted_is_said_once(tmp_path, caplog, make, said):
    caplog.set_level("INFO", "torch_boc")
    trainer = make_trainer(make(), tagged(), BoCTrainerMetrics(), tmp_path)
    for _ in range(2):
        trainer.evaluate()
    (text,) = [record.getMessage() for record in caplog.records if "BoCTrainerMetrics" in record.getMessage()]
    assert re.search(f"each position predicts {said}", text)


class Interrupted(nn.Module):
    """A model whose call with this number, counted from 1, is interrupted."""

    def __init__(self, model, call=0):
        super().__init__()
        self.model, self.call = model, call

    def forward(self, input_ids, labels=None):
        """What the model returns."""
        self.call -= 1
        if self.call == 0:
            raise KeyboardInterrupt
        return self.model(input_ids=input_ids, labels=labels)


def test_an_interrupted_evaluation_is_forgotten_by_a_reset(tmp_path):
    model = Interrupted(roberta(), call=3)
    boc = BoCTrainerMetrics(keys=["samples", "gap"])
    trainer = make_trainer(model, texts(), boc, tmp_path, batch_eval_metrics=True)
    with pytest.raises(KeyboardInterrupt):
        trainer.evaluate()
    boc.reset()
    results = trainer.evaluate()
    trainer.model = roberta()
    assert_results(results, by_hand(trainer) | {"samples": 21}, ["samples", "gap"])


def test_a_model_of_an_unknown_kind_must_be_explained(tmp_path):
    model = Interrupted(gpt2())
    model.model.config.use_cache = False
    with pytest.raises(ValueError, match=r"expected causal=True or causal=False for logits of shape \(4, 13, 50\)"):
        make_trainer(model, tagged(classes=None), BoCTrainerMetrics(), tmp_path).evaluate()
    logits, labels = torch.randn(2, 3, 50), torch.zeros(2, 3, dtype=torch.long)
    boc = BoCTrainerMetrics()
    for known, counted in ((gpt2(), 4), (bert_tagger(), 6)):  # the model of the last Trainer counts
        boc.arguments(known)
        assert (boc.preprocess(logits, labels)["columns"][..., 1] >= 0).sum() == counted
    boc.arguments()
    assert boc.preprocess(logits)["columns"].shape == (2, 3, 5)  # without labels nothing needs to be explained


def called(boc, predictions, **options):
    """The call of Trainer after an evaluation, which has arrays."""
    return boc(EvalPrediction(nested_numpify(predictions), None), **options)


def assert_summary(results, expected):
    assert list(results) == [f"boc_{key}" for key in expected]
    for key, value in expected.items():
        assert results[f"boc_{key}"] == pytest.approx(value.item(), rel=1e-12, abs=1e-15, nan_ok=True), key


@pytest.mark.parametrize("shape", [(60,), (12, 5)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16], ids=str)
def test_columns_tell_all_that_the_logits_do(shape, dtype, monkeypatch):
    monkeypatch.setattr("torch_boc.transformers.trainer.BLOCK_SAMPLES", 7)
    logits, target = labelled_batches(60, dtype=dtype)[0]
    logits, target = logits.reshape(*shape, 7), target.reshape(shape)
    options = {"trials": 30, "bins": 8, "alpha": 0.2}
    boc = BoCTrainerMetrics(keys=SUMMARY, causal=False, **options)
    predictions, expected = boc.preprocess(logits, target), boc_summary(logits, target, dim=-1, **options)
    assert predictions["columns"].dtype == torch.float64
    assert_summary(called(boc, predictions), expected)


@pytest.mark.parametrize("causal", [False, True])
def test_what_does_not_count(causal):
    """Ignored labels, and rows that Trainer padded; the last position of a causal model has no label."""
    logits, target = labelled_batches(60)[0]
    logits, target = logits.reshape(12, 5, 7), target.reshape(12, 5)
    target[::4] = -100
    boc = BoCTrainerMetrics(keys=SUMMARY, causal=causal)
    predictions = boc.preprocess(logits, target)
    assert predictions.prediction.equal(logits.argmax(-1))  # also of what does not count
    padded = nn.functional.pad(predictions["columns"], (0, 0, 0, 3), value=-100)
    if causal:
        logits, target = logits[:, :-1], target[:, 1:]
    keep = target != -100
    for each in (predictions, Predictions(dict(predictions.items()) | {"columns": padded})):
        assert_summary(called(boc, each), boc_summary(logits[keep], target[keep]))


def test_preprocess_reads_nothing_back():
    """Also not whether the first batch has probabilities, which on a GPU is read with the results."""
    for boc in (BoCTrainerMetrics(causal=True, compute_metrics=accuracy), BoCTrainerMetrics(causal=False)):
        with FakeTensorMode(), NoHostSync():
            logits, target = torch.randn(12, 5, 7, device="cuda"), torch.randint(7, (12, 5), device="cuda")
            found = boc.preprocess(logits, target)
            assert {part.device.type for part in found.values()} == {"cuda"}


def test_probabilities_are_refused():
    """At once on a CPU, and before any number where that would make the host wait."""
    chances, labels = torch.randn(8, 5).softmax(-1), torch.arange(8) % 5
    with pytest.raises(ValueError, match=r"got probabilities \(every row of the first batch .* return logits"):
        BoCTrainerMetrics().preprocess(chances, labels)
    boc = BoCTrainerMetrics()
    boc.preprocess(chances.to("meta"), labels.to("meta"))
    boc._first.found = torch.tensor(True)  # as a GPU leaves it
    with pytest.raises(ValueError, match="got probabilities"):
        called(boc, BoCTrainerMetrics().preprocess(chances.log(), labels))


def test_bad_rows_and_labels_are_reported():
    logits, target = labelled_batches(60)[0]
    bad = target.clone()
    bad[:2] = 7
    boc = BoCTrainerMetrics(keys=["samples", "invalid"])
    with pytest.raises(ValueError, match=r"targets in \[0, 7\), got 2 outside"):
        called(boc, boc.preprocess(logits, bad))
    logits[:5] = torch.nan
    with pytest.warns(UserWarning, match="5 rows of logits with NaN"):
        assert called(boc, boc.preprocess(logits, target)) == {"boc_samples": 55, "boc_invalid": 5}


def test_predictions_know_their_number_of_classes():
    """Another evaluation, of a model with other classes, comes between; or another object asks."""
    boc, other = (BoCTrainerMetrics(keys=["forced_gap"], prefix=prefix) for prefix in ("boc", ""))
    predictions = boc.preprocess(torch.randn(4, 5))
    before = called(boc, predictions)
    called(boc, boc.preprocess(torch.randn(4, 9)))
    assert called(boc, predictions) == before
    assert called(other, predictions) == {"forced_gap": before["boc_forced_gap"]}


def refused(*given, **options):
    return lambda: BoCTrainerMetrics(**options).preprocess(*given)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            refused(torch.randn(4, 1025), torch.arange(4), compute_metrics=accuracy),
            "expected preprocess_logits_for_metrics= for a compute_metrics of 1025 classes",
        ),
        (lambda: BoCTrainerMetrics(keys=["gap", "magic"]), "among samples, invalid, confidence"),
        (refused(torch.randn(4, 3), torch.arange(4), causal=True), r"\(N, T\) with causal"),
        (refused(torch.randn(4, 3, 8, 8)), r"\(N, T, C\), got shape \(4, 3, 8, 8\)"),
        (refused(torch.zeros(4, 6, dtype=torch.long)), "with predict_with_generate"),
        (
            lambda: BoCTrainerMetrics()(EvalPrediction(torch.randn(10, 6), None)),
            r"got a Tensor \(10, 6\); .*Trainer\(model, ..., \*\*boc.arguments\(model\)\)",
        ),
    ],
)
def test_what_is_refused(call, message):
    with pytest.raises((ValueError, TypeError), match=message):
        call()


@pytest.mark.parametrize("shape", [(20,), (4, 5)], ids=str)
def test_predicted_classes_are_those_of_the_logits(shape):
    """Of tensors, and of arrays as after an evaluation, also of a copy."""
    logits = torch.randn(*shape, 7, generator=torch.Generator().manual_seed(0))
    tensors = BoCTrainerMetrics().preprocess(logits)
    copied = pickle.loads(pickle.dumps(copy.deepcopy(nested_numpify(tensors))))
    np.testing.assert_array_equal(copied.prediction, logits.numpy().argmax(-1), strict=True)
    assert tensors.prediction.equal(logits.argmax(-1))


@pytest.mark.parametrize(
    ("options", "kept"),
    [
        ({}, []),
        ({"compute_metrics": accuracy}, ["logits"]),
        ({"keys": ["ece_classwise"]}, ["logits"]),
        ({"compute_metrics": accuracy, "preprocess_logits_for_metrics": lambda logits, labels: labels}, ["own"]),
    ],
)
def test_what_is_kept_for_own_metrics(options, kept):
    predictions = BoCTrainerMetrics(**options).preprocess(torch.randn(4, 1024), torch.arange(4))
    assert [*predictions] == ["columns", "classes", *kept]
