"""Summaries and calibration add up: blocks in any order give what all rows give at once. No cluster is needed here."""

from functools import partial
from itertools import pairwise

import pyarrow as pa
import pytest
import torch
from torch.testing import assert_close

from torch_boc import ConformalTest
from torch_boc.functional import boc_summary, sample_columns
from torch_boc.functional.summary import summarize as summary_of
from torch_boc.functional.tally import empty_tally
from torch_boc.ray.folding import packed, unpacked
from torch_boc.ray.summaries import Counting, Source, Tallying, add_held_out, add_tallies

ROWS, CLASSES = 120, 5
SOURCE = Source("logits", "target")


@pytest.fixture
def logits():
    return torch.randn(ROWS, CLASSES, generator=torch.Generator().manual_seed(0)) * 3


@pytest.fixture
def target():
    return torch.randint(CLASSES, (ROWS,), generator=torch.Generator().manual_seed(1))


def with_logits(logits, **more):
    return pa.table({"logits": logits.tolist(), **{name: x.numpy() for name, x in more.items()}})


def with_columns(logits, **more):
    columns = {name: x.numpy() for name, x in sample_columns(logits).items()}
    return pa.table({**columns, **{name: x.numpy() for name, x in more.items()}})


def folded(table, cuts, empty, add, merge):
    """What `fold` computes: a state for each part, which travels as bytes, merged in another order."""
    edges = [0, *cuts, table.num_rows]
    parts = [table.slice(i, j - i) for i, j in pairwise(edges)]
    total = empty()
    for part in reversed(parts):
        total = merge(total, unpacked(packed(add(empty(), part))))
    return total


def summary(table, cuts=(), *, alpha=0.05, ignore_index=None, source=SOURCE):
    return summary_of(folded(table, cuts, partial(empty_tally, 15), Tallying(source, alpha, ignore_index), add_tallies))


@pytest.mark.parametrize("cuts", [(), (1,), (40, 41, 100)])
def test_a_summary_of_logits(logits, target, cuts):
    table = with_logits(logits.double(), target=target)
    assert_close(summary(table, cuts), boc_summary(logits.double(), target), rtol=1e-8, atol=0)
    found = summary(table, cuts, alpha=0.2, ignore_index=3)
    assert_close(found, boc_summary(logits.double(), target, alpha=0.2, ignore_index=3), rtol=1e-8, atol=0)
    bare = summary(with_logits(logits.double()), cuts)
    assert_close(bare, boc_summary(logits.double()), rtol=1e-8, atol=0, equal_nan=True)


@pytest.mark.parametrize("ignore_index", [None, 2])
def test_a_summary_of_the_columns_of_a_predictor(logits, target, ignore_index):
    """All keys but the log loss, which needs the target's logit."""
    found = summary(with_columns(logits, target=target), (50, 90), ignore_index=ignore_index)
    whole = boc_summary(logits, target, ignore_index=ignore_index)
    assert found.pop("nll").isnan()
    assert_close(found, {key: x for key, x in whole.items() if key != "nll"}, rtol=1e-6, atol=1e-9)


def test_the_log_loss_of_right_predictions_is_known(logits):
    target = logits.argmax(-1)
    found, whole = summary(with_columns(logits, target=target)), boc_summary(logits, target)
    assert_close(found["nll"], whole["nll"], rtol=1e-9, atol=0)


@pytest.mark.parametrize(
    "options", [{}, {"groups": "prediction"}, {"score": "energy"}], ids=["plain", "groups", "energy"]
)
@pytest.mark.parametrize("make", [with_logits, with_columns])
def test_a_calibration(logits, options, make):
    whole = ConformalTest(**options).calibrate(logits)
    counting = Counting(SOURCE, ConformalTest(**options))
    found = folded(make(logits), (30, 31), counting.empty, counting, add_held_out)
    # A score from columns is rounded in another way, so that it may be counted in the next of the fine places.
    places = whole.counts.cumsum(-1) - found.counts.cumsum(-1)
    assert int(places.abs().max()) <= (0 if make is with_logits else 1)
    assert_close(found.samples, whole.samples)
    assert not counting.test.calibrated


def test_what_is_no_table_of_samples(logits):
    with pytest.raises(
        ValueError, match="expected a column 'logits', or those of a predictor: expected columns predic"
    ):
        summary(pa.table({"a": [1.0]}))
    with pytest.raises(ValueError, match="got none of the name 'odds'"):
        summary(with_columns(logits).drop_columns(["odds"]))
