"""Laws of the sums: any cut of the rows into parts, in any order, gives the same state."""

import pickle
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from tests.evaluation.streamed.tables import some_samples
from torch_boc.calibration import DominanceConfidence, TemperatureScaling, Uncalibrated
from torch_boc.evaluation.judged import Judged, tally_both, tally_judged
from torch_boc.evaluation.streamed.calibration import both_of
from torch_boc.evaluation.streamed.sample import RowSample
from torch_boc.evaluation.streamed.state import Block, Plan, SetState
from torch_boc.functional import gather, restore_evidence, sample_columns

LOGITS, TARGET = some_samples(600)
LOGITS = LOGITS.double()  # the sums of a row in float32 depend a little on where the row is in a batch
FITTED = TemperatureScaling().fit(*some_samples(300, seed=9))
PLAN = Plan("x", methods=(("", Uncalibrated()), ("val", FITTED), ("", DominanceConfidence())), sample_rows=50)


def block(rows):
    evidence = gather(LOGITS[rows], TARGET[rows], extras=True)
    return Block(evidence, LOGITS[rows], torch.arange(len(LOGITS))[rows])


def state_of(*parts):
    state = SetState(PLAN)
    for rows in parts:
        state.add(block(rows))
    return state


def assert_same(one, other):
    assert one.samples == other.samples
    assert (one.num_classes, one.labelled, one.scores) == (other.num_classes, other.labelled, other.scores)
    assert_close(one.moments.means(), other.moments.means(), rtol=1e-9, atol=1e-12)
    assert_close(one.moments.bins, other.moments.bins, rtol=1e-12, atol=1e-12)
    for name in ("places", "held_out"):
        assert_close(getattr(one, name), getattr(other, name), rtol=0, atol=0)
    assert torch.equal(one.rejected, other.rejected)
    assert torch.equal(one.sizes, other.sizes)
    for mine, theirs in zip(one.judged, other.judged, strict=True):
        assert_close(tuple(mine), tuple(theirs), rtol=1e-12, atol=1e-12)
    assert one.both.keys() == other.both.keys()
    for key, mine in one.both.items():
        assert_close(mine.cells, other.both[key].cells, rtol=1e-12, atol=1e-12)
    assert torch.equal(one.sample.order, other.sample.order)
    assert_close(one.sample.columns, other.sample.columns, rtol=1e-9, atol=1e-12)


@settings(max_examples=15, deadline=None)
@given(st.lists(st.integers(0, 600), max_size=4), st.booleans())
def test_parts_merged_in_any_order_are_the_whole(cuts, backwards):
    edges = [0, *sorted(cuts), 600]
    parts = [slice(a, b) for a, b in pairwise(edges)]
    total = SetState(PLAN)
    for part in reversed(parts) if backwards else parts:
        total = total.merge(pickle.loads(pickle.dumps(state_of(part))))
    assert_same(total, state_of(slice(0, 600)))
    assert_same(state_of(*parts), state_of(slice(0, 600)))


def test_the_sums_of_a_calibrator_are_those_of_its_confidences():
    state = state_of(slice(0, 250), slice(250, 600))
    evidence = gather(LOGITS, TARGET)
    right = evidence.coins.prediction == TARGET
    nll = torch.nn.functional.cross_entropy(LOGITS.double(), TARGET, reduction="none")
    judged = [Judged(x, right, nll) for x in (evidence.coins.confidence, evidence.coins.dominance)]
    for place, expected in ((0, judged[0]), (2, judged[1])):
        assert_close(tuple(state.judged[place]), tuple(tally_judged(expected, 15)), rtol=1e-6, atol=1e-9)
    assert state.judged[1].accuracy() == pytest.approx(float(right.double().mean()))
    calibrated = torch.nn.functional.cross_entropy(LOGITS.double() / FITTED.temperature, TARGET)
    assert state.judged[1].mean_nll() == pytest.approx(float(calibrated), rel=1e-5)
    for pair, other in (((0, 2), judged), ((2, 0), judged[::-1])):
        assert_close(both_of(state, *pair).cells, tally_both(*other, 15).cells, rtol=1e-6, atol=1e-9)


def test_halves_are_random_and_about_equal():
    state = state_of(slice(0, 600))
    assert abs(int(state.sizes[0]) - 300) < 60
    for name, counts in state.held_out.items():
        assert int(counts.sum()) == int(state.sizes[0]), name
        assert int(state.places[name].sum()) == 600, name


def test_columns_know_the_scores_that_follow_from_them():
    evidence = restore_evidence(sample_columns(LOGITS) | {"target": TARGET})
    state = SetState(Plan("x"))
    state.add(Block(evidence, None, torch.arange(600)))
    whole = state_of(slice(0, 600))
    assert set(whole.scores) - set(state.scores) == {"entropy", "gen", "logit_gap_top", "tempered_dominance"}
    for name, counts in state.places.items():
        # A number at the edge of a place may fall into the next one by rounding.
        assert int((counts - whole.places[name]).abs().sum()) <= 4, name
    assert_close(state.moments.means(), whole.moments.means(), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("change", ["classes", "target", "columns"])
def test_rows_of_another_kind_are_refused(change):
    state = state_of(slice(0, 100))
    evidence = gather(
        LOGITS[:, :4] if change == "classes" else LOGITS, None if change == "target" else TARGET, extras=True
    )
    if change == "columns":
        evidence = restore_evidence(sample_columns(LOGITS) | {"target": TARGET})
    new = Block(evidence, None if change == "columns" else LOGITS, torch.arange(600))
    with pytest.raises(ValueError, match={"classes": "5 classes", "target": "targets", "columns": "columns"}[change]):
        state.add(new)


def test_sample_is_that_of_the_lowest_numbers():
    order, columns = (
        torch.rand(1000, generator=torch.Generator().manual_seed(1)).double(),
        torch.arange(1000.0).double(),
    )
    sample, other = RowSample(64), RowSample(64)
    sample.add(order[:700], columns[None, :700])
    other.add(order[700:], columns[None, 700:])
    sample.merge(other)
    assert torch.equal(sample.columns[0], columns[order.argsort()[:64]])
