"""What `preprocess` hands to Trainer, and what is made of it, without a Trainer."""

import sys

import numpy as np
import pytest
import torch
from transformers import EvalPrediction
from transformers.trainer_pt_utils import nested_numpify

from tests.dispatch import NoHostSync
from tests.metrics.cases import labelled_batches
from torch_boc.functional import boc_summary
from torch_boc.functional.summary import LABELLED_KEYS, summarize
from torch_boc.functional.tallies import empty_tally
from torch_boc.transformers import COLUMNS, BoCTrainerMetrics, Predictions

EVERY = tuple(summarize(empty_tally()))


def outcome(predictions, labels=None):
    """As Trainer hands it over."""
    return EvalPrediction(nested_numpify(predictions), None if labels is None else labels.numpy())


def assert_summary(results, expected):
    assert list(results) == [f"boc_{key}" for key in expected]
    for key, value in expected.items():
        assert results[f"boc_{key}"] == pytest.approx(value.item(), rel=1e-12, abs=1e-15, nan_ok=True), key


@pytest.mark.parametrize("block", [7, 2**20])
@pytest.mark.parametrize("shape", [(60,), (12, 5)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
def test_columns_tell_all_that_the_logits_do(shape, dtype, block, monkeypatch):
    monkeypatch.setattr("torch_boc.transformers.columns.BLOCK_SAMPLES", block)
    logits, target = labelled_batches(60, dtype=dtype)[0]
    logits, target = logits.reshape(*shape, 7), target.reshape(shape)
    boc = BoCTrainerMetrics(keys=EVERY, trials=30, bins=8, alpha=0.2, causal=False)
    predictions = boc.preprocess(logits, target)
    assert predictions["columns"].shape == (*shape, len(COLUMNS))
    assert predictions["columns"].dtype == torch.float64
    assert_summary(boc(outcome(predictions, target)), boc_summary(logits, target, dim=-1, trials=30, bins=8, alpha=0.2))


def test_without_labels_come_the_keys_that_need_none():
    logits = labelled_batches(30)[0][0]
    boc = BoCTrainerMetrics(keys=EVERY, compute_metrics=lambda outcome: pytest.fail("called without labels"))
    columns = boc.preprocess(logits)
    assert columns["columns"].shape == (30, 5)
    expected = {key: value for key, value in boc_summary(logits).items() if key not in LABELLED_KEYS}
    assert_summary(boc(outcome(columns)), expected)
    assert not any(value.isnan() for value in expected.values())


@pytest.mark.parametrize("labelled", [True, False])
def test_padding_of_trainer_does_not_count(labelled):
    logits, target = labelled_batches(60)[0]
    boc = BoCTrainerMetrics(keys=EVERY, causal=False)
    columns = boc.preprocess(logits.reshape(12, 5, 7), target.reshape(12, 5) if labelled else None)
    padded = torch.nn.functional.pad(columns["columns"], (0, 0, 0, 3), value=-100)
    padded = Predictions({"columns": padded, "classes": columns["classes"]})
    assert boc(outcome(padded)) == pytest.approx(boc(outcome(columns)), rel=1e-12, nan_ok=True)


@pytest.mark.parametrize("ignore_index", [-100, 3])
def test_ignored_labels_do_not_count(ignore_index):
    logits, target = labelled_batches(60)[0]
    target[::4] = -100  # with which Trainer pads the labels of several processes, whatever the index
    boc = BoCTrainerMetrics(keys=EVERY, ignore_index=ignore_index)
    keep = (target != -100) & (target != ignore_index)
    assert_summary(boc(outcome(boc.preprocess(logits, target))), boc_summary(logits[keep], target[keep]))


def test_causal_labels_are_those_of_the_next_position():
    logits, target = labelled_batches(60)[0]
    logits, target = logits.reshape(12, 5, 7), target.reshape(12, 5)
    boc = BoCTrainerMetrics(keys=EVERY, causal=True)
    columns = boc.preprocess(logits, target)
    assert columns.argmax(-1).equal(logits.argmax(-1))  # also of what does not count
    assert_summary(boc(outcome(columns)), boc_summary(logits[:, :-1], target[:, 1:], dim=-1))


def test_first_of_several_outputs_and_labels():
    logits, target = labelled_batches(20)[0]
    boc = BoCTrainerMetrics()
    expected = boc.preprocess(logits, target)["columns"]
    assert boc.preprocess((logits, torch.zeros(20, 8, 16)), (target, target))[0]["columns"].equal(expected)
    assert boc.preprocess([logits, (torch.zeros(1),)], [target])[0]["columns"].equal(expected)
    assert boc.preprocess(logits, ())["columns"].equal(expected[:, :5])


def test_preprocess_reads_nothing_back():
    logits, target = labelled_batches(60, dtype=torch.float32)[0]
    logits[3], target[::7] = torch.nan, -100
    with NoHostSync():
        BoCTrainerMetrics(ignore_index=2).preprocess(logits, target)
        BoCTrainerMetrics(causal=True).preprocess(logits.reshape(12, 5, 7), target.reshape(12, 5))
        BoCTrainerMetrics().preprocess(logits)


def test_columns_stay_on_the_device():
    logits, target = torch.randn(4, 6, 9, device="meta"), torch.zeros(4, 6, dtype=torch.long, device="meta")
    boc = BoCTrainerMetrics(causal=True, keep_logits=True)
    assert {part.device.type for part in boc.preprocess(logits, target).values()} == {"meta"}


def test_batches_add_up_and_the_next_evaluation_starts_anew():
    boc = BoCTrainerMetrics(keys=EVERY)
    for sizes in ((20, 7, 31), (5,), (8, 8)):
        batches = labelled_batches(*sizes)
        logits, target = (torch.cat(x) for x in zip(*batches, strict=True))
        for place, batch in enumerate(batches, 1):
            results = boc(EvalPrediction(boc.preprocess(*batch), batch[1]), compute_result=place == len(batches))
            assert place == len(batches) or results == {}
        assert_summary(results, boc_summary(logits, target))


def test_an_interrupted_evaluation_can_be_forgotten():
    boc = BoCTrainerMetrics(keys=["samples"])
    columns = boc.preprocess(*labelled_batches(20)[0])
    boc(outcome(columns), compute_result=False)
    boc.reset()
    assert boc(outcome(columns), compute_result=True) == {"boc_samples": 20}
    boc(outcome(columns), compute_result=False)
    assert boc(outcome(columns)) == {"boc_samples": 20}


def test_metric_keeps_the_last_evaluation():
    logits, target = labelled_batches(60)[0]
    boc = BoCTrainerMetrics(keys=["gap"])
    boc(outcome(boc.preprocess(logits, target)))
    torch.testing.assert_close(boc.metric.compute(), boc_summary(logits, target), rtol=1e-12, atol=1e-15)
    _, axes = boc.metric.plot()
    assert len(axes) == 3


def test_bad_rows_are_left_out_and_reported():
    logits, target = labelled_batches(60)[0]
    logits[:5] = torch.nan
    boc = BoCTrainerMetrics(keys=["samples", "invalid", "gap"])
    with pytest.warns(UserWarning, match="5 rows of logits with NaN"):
        results = boc(outcome(boc.preprocess(logits, target)))
    assert (results["boc_samples"], results["boc_invalid"]) == (55, 5)
    assert results["boc_gap"] == pytest.approx(boc_summary(logits[5:])["gap"].item(), rel=1e-12)


def test_labels_that_are_no_class_are_reported():
    logits, target = labelled_batches(60)[0]
    target[:2] = 7
    boc = BoCTrainerMetrics()
    with pytest.raises(ValueError, match=r"targets in \[0, 7\), got 2 outside"):
        boc(outcome(boc.preprocess(logits, target)))


@pytest.mark.parametrize("prefix", ["", "probe"])
def test_prefix(prefix):
    boc = BoCTrainerMetrics(keys=["gap"], prefix=prefix)
    assert list(boc(outcome(boc.preprocess(torch.randn(4, 3))))) == ["probe_gap" if prefix else "gap"]


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"keys": ["gap", "magic"]}, "among samples, invalid, confidence"),
        ({"keys": "gap"}, "list of names"),
        ({"alpha": 2}, "alpha in"),
        ({"bins": 0}, "at least 1 bin"),
        ({"trials": 0}, "positive integer"),
    ],
    ids=str,
)
def test_bad_arguments(arguments, match):
    with pytest.raises(ValueError, match=match):
        BoCTrainerMetrics(**arguments)


@pytest.mark.parametrize(
    ("logits", "labels", "options", "error", "match"),
    [
        (torch.randn(4, 1), torch.randn(4), {}, ValueError, "at least 2 classes"),
        (torch.randn(4, 3), torch.randn(4, 3), {}, TypeError, "integer class indices"),
        (
            torch.randn(4, 6, 3),
            torch.zeros(4, dtype=torch.long),
            {"causal": False},
            ValueError,
            r"target of shape \(4, 6\)",
        ),
        (torch.randn(4, 3), torch.zeros(4, dtype=torch.long), {"causal": True}, ValueError, r"\(N, T\) with causal"),
        (torch.zeros(4, 6, dtype=torch.long), None, {}, TypeError, "floating-point"),
    ],
    ids=["regression", "multi-label", "shape", "causal", "generated"],
)
def test_bad_logits_and_labels(logits, labels, options, error, match):
    with pytest.raises(error, match=match):
        BoCTrainerMetrics(**options).preprocess(logits, labels)


def test_forgotten_preprocess():
    boc = BoCTrainerMetrics()
    with pytest.raises(TypeError, match=r"got a Tensor \(10, 6\); .*Trainer\(model, ..., \*\*boc.arguments\(model\)\)"):
        boc(EvalPrediction(torch.randn(10, 6), None))
    with pytest.raises(TypeError, match=r"got a ndarray \(10, 3\)"):
        boc(EvalPrediction(np.zeros((10, 3)), None))
    with pytest.raises(TypeError, match=r"got a tuple of ndarray \(10, 6\), ndarray \(10, 8, 16\)"):
        boc(EvalPrediction((np.zeros((10, 6)), np.zeros((10, 8, 16))), None))


def test_missing_library_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    for name in [name for name in sys.modules if name.startswith("torch_boc.transformers")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(ImportError, match=r"pip install 'torch-boc\[transformers\]'"):
        import torch_boc.transformers  # noqa: F401
