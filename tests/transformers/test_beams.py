"""Rows are matched by the tokens in them, and a sequence is followed through the rows that it was in."""

import pytest
import torch

from tests.dispatch import NoHostSync
from torch_boc.transformers.beams import Fingerprints, choose, match, walk
from torch_boc.transformers.buffers import Steps


def test_fingerprints_tell_sequences_apart():
    random = torch.Generator().manual_seed(0)
    ids = torch.randint(50_000, (300, 700), generator=random)
    changed = ids.clone()
    changed[torch.arange(300), torch.randint(700, (300,), generator=random)] += 1
    swapped = ids.clone()
    swapped[:, [3, 600]] = ids[:, [600, 3]]
    prints = Fingerprints()
    found = torch.cat([prints.of(x) for x in (ids, changed, swapped)])
    assert len(found.unique()) == 900
    assert torch.equal(prints.of(ids), Fingerprints().of(ids))
    assert prints.of(ids[:, :0]).tolist() == [0] * 300


def test_rows_of_one_text_match_each_other_only():
    """Two texts with two beams and four candidates each; all of their sequences look alike."""
    parents, children = torch.tensor([1, 2, 1, 2]), torch.tensor([1, 2, 2, 1, 2, 2, 1, 1])
    with NoHostSync():
        found = choose(match(children, parents, 2))
    assert found.tolist() == [0, 1, 1, 0, 3, 3, 2, 2]
    assert choose(match(torch.tensor([7, 1]), parents[:2], 1)).tolist() == [-1, 0]


@pytest.mark.parametrize(("tops", "expected"), [([-0.5, -0.50001, -2.0], [0, 2]), ([-0.5, -0.7, -2.0], [-1, 2])])
def test_rows_with_other_logits_are_not_the_same_text(tops, expected):
    matched = match(torch.tensor([4, 9]), torch.tensor([4, 4, 9]))
    assert choose(matched, torch.tensor(tops)).tolist() == expected


def steps(token, previous):
    empty = torch.zeros(len(token), len(token[0]), 0)
    stopped = torch.zeros(len(token), len(token[0]), dtype=torch.bool)
    return Steps({}, torch.tensor(token), torch.tensor(previous), stopped, empty, empty)


def test_a_sequence_is_followed_from_row_to_row():
    recorded = steps([[5, 6, 5], [7, 7, 8], [9, 9, 9]], [[0, 0, 0], [1, 0, 0], [2, 0, 1]])
    assert walk([6, 7, 9], recorded, [0, 1, 2]) == [1, 0, 1]
    assert walk([5, 8, 9], recorded, [0, 1, 2]) == [0, 2, 0]
    assert walk([5, 7, 9], recorded, [0, 1, 2]) == [0, 1, 2]
    assert walk([5, 7, 4], recorded, [0, 1, 2]) == [0, 1]
    assert walk([6, 8], recorded, [0, 1, 2]) == [1]
    assert walk([5, 8], recorded, [2]) == [2]  # row 2 has the same token, but nothing continues it
    assert walk([4], recorded, [0, 1, 2]) == []
    assert walk([], recorded, [0]) == []
    assert walk([6, 7, 9, 0, 0], recorded, [1]) == [1, 0, 1]  # what follows was not recorded
