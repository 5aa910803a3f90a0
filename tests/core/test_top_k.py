"""The k largest logits are those that sorting finds."""

import pytest
import torch

from tests.dispatch import NoHostSync
from torch_boc.core.top_k import CHUNK, TWO_STEP_CLASSES, find_top_k

SIZES = [3, CHUNK, TWO_STEP_CLASSES - 1, TWO_STEP_CLASSES, TWO_STEP_CLASSES + 1, TWO_STEP_CLASSES + CHUNK - 1, 49152]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("classes", SIZES)
@pytest.mark.parametrize("k", [1, 3, 40])
def test_they_are_those_of_a_sort(classes, k, dtype):
    rows = torch.randn(2, 3, classes, generator=torch.Generator().manual_seed(0), dtype=torch.float64).to(dtype)
    k = min(k, classes)
    values, places = find_top_k(rows, k)
    torch.testing.assert_close(values, rows.sort(-1, descending=True).values[..., :k], rtol=0, atol=0)
    torch.testing.assert_close(rows.gather(-1, places), values, rtol=0, atol=0)
    assert all(len(set(row)) == k for row in places.flatten(0, -2).tolist())
    assert places.dtype == torch.int64


@pytest.mark.parametrize("start", [0, 100, TWO_STEP_CLASSES - 3])
def test_neighbours_in_one_chunk_or_in_the_rest(start):
    rows = torch.zeros(TWO_STEP_CLASSES + 5)
    rows[start : start + 6] = torch.arange(6.0, 0.0, -1.0)
    assert find_top_k(rows, 6)[1].tolist() == list(range(start, start + 6))


def test_masked_rows():
    rows = torch.full((3, TWO_STEP_CLASSES), -torch.inf)
    rows[0, 7], rows[1, 2000], rows[2, 5] = 1.0, torch.inf, torch.nan
    values, places = find_top_k(rows, 3)
    assert places[:, 0].tolist() == [7, 2000, 5]
    assert (values[:2, 1:] == -torch.inf).all()


def test_nothing_is_read_back():
    with NoHostSync():
        find_top_k(torch.randn(2, 5000), 4)


def test_compiled():
    rows = torch.randn(2, 5000, generator=torch.Generator().manual_seed(0))
    found = torch.compile(find_top_k, fullgraph=True, backend="eager")(rows, 4)
    for x, y in zip(found, find_top_k(rows, 4), strict=True):
        assert torch.equal(x, y)
