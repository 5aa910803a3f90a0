"""Blocks of a Ray data set, without Ray: what a worker does with each of them."""

import pickle

import pytest

from tests.evaluation.streamed.tables import column_table, logit_table, some_samples
from torch_boc.evaluation.streamed.blocks import Reader
from torch_boc.evaluation.streamed.sets import RaySet, add_table, fingerprint, merge_states
from torch_boc.evaluation.streamed.state import Plan, SetState


def state_of(*tables):
    total = SetState(Plan("x"))
    for table in tables:
        total = merge_states(total, pickle.loads(pickle.dumps(add_table(Reader(), SetState(Plan("x")), table))))
    return total


def test_the_halves_of_many_blocks_are_random():
    """Rows of different blocks have numbers of their own, so that not all first rows fall into one half."""
    blocks = [logit_table(*some_samples(3, seed=seed)) for seed in range(120)]
    assert len({fingerprint(block) for block in blocks}) == 120
    state = state_of(*blocks)
    assert state.samples == 360
    assert abs(int(state.sizes[0]) - 180) < 40
    firsts = [int(state_of(block.slice(0, 1)).sizes[0]) for block in blocks[:60]]
    assert 15 < sum(firsts) < 45


def test_slices_of_one_table_have_fingerprints_of_their_own():
    table = logit_table(*some_samples(40))
    assert fingerprint(table.slice(10, 5)) == fingerprint(table.slice(10, 5)) != fingerprint(table.slice(11, 5))


def test_later_rows_of_a_block_have_the_classes_of_the_first(monkeypatch):
    """Rows that are sure do not tell the number of classes."""
    monkeypatch.setattr("torch_boc.evaluation.streamed.blocks.LARGEST_BLOCK", 50)
    logits = some_samples(100)[0]
    logits[50:, 0] += 90
    assert state_of(column_table(logits)).num_classes == 5


def test_a_data_set_without_rows_is_refused():
    class Nothing:
        def schema(self):
            return None

    with pytest.raises(ValueError, match="id: expected at least one row, got a data set without rows"):
        RaySet(Nothing(), "id").from_columns()
