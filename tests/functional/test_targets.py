"""Targets of every integer dtype mean the same: a class is its number, and -100 is never 156."""

import pytest
import torch

from tests.functional.cases import random_logits
from torch_boc import BoCMetric
from torch_boc.calibration.base import check_classes_of
from torch_boc.data.sets import LogitSet
from torch_boc.data.sources import logit_set
from torch_boc.functional import boc_summary
from torch_boc.functional.checks import as_indices, check_target
from torch_boc.inference.batches import BatchReader

NARROW = (torch.uint8, torch.int8, torch.int16, torch.int32)
WIDE = (torch.uint16, torch.uint32, torch.uint64)
over_dtypes = pytest.mark.parametrize("dtype", NARROW + WIDE)
CLASSES = 300


def samples(dtype):
    """Predictions of which a third is right, whose targets fit in `dtype`."""
    logits = random_logits(120, CLASSES)
    target = logits.argmax(-1) % min(256, torch.iinfo(dtype).max + 1)
    target[::3] = (target[::3] + 1) % 100
    return logits, target


@over_dtypes
def test_a_summary_is_that_of_int64(dtype):
    logits, target = samples(dtype)
    expected = boc_summary(logits, target)
    for key, value in boc_summary(logits, target.to(dtype)).items():
        torch.testing.assert_close(value, expected[key], rtol=0, atol=0, equal_nan=True)


@over_dtypes
def test_no_class_is_ignored_that_wraps_to_the_index(dtype):
    """In uint8, -100 is 156; in uint16 it is 65436."""
    logits, target = samples(dtype)
    target[:] = min(156, torch.iinfo(dtype).max)
    metric = BoCMetric(ignore_index=-100)
    metric.update(logits, target.to(dtype))
    assert metric.compute()["samples"] == len(logits)


@pytest.mark.parametrize("dtype", [torch.int8, torch.int16, torch.int32])
def test_a_signed_target_may_be_the_index(dtype):
    logits, target = samples(dtype)
    target[:40] = -100
    assert boc_summary(logits, target.to(dtype), ignore_index=-100)["samples"] == 80


def test_numbers_that_int64_does_not_hold_are_no_class_and_not_ignored():
    target = torch.tensor([0, 2, -100, -1]).to(torch.uint64)
    assert target.tolist()[2:] == [2**64 - 100, 2**64 - 1]
    assert as_indices(target).tolist() == [0, 2, 2**63 - 1, 2**63 - 1]
    summary = boc_summary(random_logits(4, 3), target, ignore_index=-100)
    assert summary["samples"] == 4
    metric = BoCMetric(ignore_index=-100)
    metric.update(random_logits(4, 3), target)
    with pytest.raises(ValueError, match="2 "):
        metric.compute()


@over_dtypes
def test_data_sets_calibrators_and_loaders_widen_them_too(dtype):
    logits, target = samples(dtype)
    narrow = target.to(dtype)
    for found in (
        LogitSet(logits, narrow).target,
        logit_set((logits, narrow.numpy()), "test").target,
        check_classes_of(logits, narrow),
        BatchReader(torch.nn.Linear(CLASSES, 2)).read((logits, narrow)).target,
    ):
        assert found.dtype == torch.int64
        assert torch.equal(found, target)


def test_the_callback_keeps_the_classes_that_wrap_to_the_index():
    """It masks what the metric's own `take` does not count."""
    taken = BoCMetric(ignore_index=-100).take(random_logits(2, CLASSES), torch.tensor([156, 3], dtype=torch.uint8))
    assert taken.counted.all()
    assert taken.target.dtype == torch.int64


def test_the_trainer_keeps_the_classes_that_wrap_to_the_index():
    transformers = pytest.importorskip("torch_boc.transformers")
    logits, labels = random_logits(3, CLASSES), torch.tensor([156, 3, 255], dtype=torch.uint8)
    for ignore_index in (-100, -1):
        columns = transformers.BoCTrainerMetrics(ignore_index=ignore_index).preprocess(logits, labels)["columns"]
        assert columns[:, -2].tolist() == [156, 3, 255]
        assert (columns[:, 1] >= 0).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bool, torch.complex64])
def test_what_are_no_indices_is_refused(dtype):
    with pytest.raises(TypeError, match="expected target as integer class indices"):
        check_target(torch.zeros(3).to(dtype), torch.Size([3]))
