"""The largest logits are those that argmax and sorting find; a bad row stays in its row."""

from functools import partial

import pytest
import torch

from tests.functional.cases import INF, NAN, random_logits
from torch_boc.core import topk
from torch_boc.core.topk import CHUNK, TWO_STEP_CLASSES, TWO_STEP_TOP_K, find_top_k
from torch_boc.functional import bag_of_coins

WIDTHS = [TWO_STEP_CLASSES, CHUNK * 32 + 1, CHUNK * 33 - 1]


def assert_same_as_argmax(z):
    """The value, and the index itself: of several equal tops the first, of several NaN too."""
    value, place = topk._max_in_two_steps(z)
    assert place.squeeze(-1).tolist() == z.argmax(-1).tolist()
    torch.testing.assert_close(value.squeeze(-1), z.amax(-1), rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("width", WIDTHS)
def test_two_steps_find_the_top_wherever_it_is(width):
    places = sorted({0, 1, CHUNK - 1, CHUNK, width // 2, width // CHUNK * CHUNK - 1, width - 2, width - 1})
    z = random_logits(len(places) + 8, width)
    for row, place in enumerate(places, 8):
        z[row, place] = 100.0
    z[0, 3] = z[0, -1] = 50.0
    z[6] = -1.0
    z[6, [CHUNK + 3, 2 * CHUNK + 1]] = torch.tensor([-0.0, 0.0], dtype=z.dtype)
    z[7, [CHUNK + 3, 2 * CHUNK + 1, -1]] = 70.0
    z[1] = 0.0
    z[2, 5] = INF
    z[3, :] = -INF
    z[4, -1] = NAN
    z[5, 7] = NAN
    assert_same_as_argmax(z)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("classes", [2, 37, 512, 2053])
def test_the_prediction_is_that_of_argmax_at_ties(classes, dtype):
    """bfloat16 logits of many classes nearly always tie."""
    z = random_logits(12, classes, scale=2.0, dtype=dtype).round()
    z[0] = -INF
    z[1, classes // 2] = z[1, -1] = NAN
    assert bag_of_coins(z).prediction.tolist() == z.argmax(-1).tolist()
    fine = random_logits(12, classes, dtype=dtype)
    assert bag_of_coins(fine).prediction.tolist() == fine.argmax(-1).tolist()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("classes", [3, CHUNK, TWO_STEP_TOP_K - 1, TWO_STEP_TOP_K, TWO_STEP_TOP_K + CHUNK - 1])
@pytest.mark.parametrize("k", [1, 3, 40])
def test_the_largest_are_those_of_a_sort(classes, k, dtype):
    """Of random rows, of a row whose largest are in one chunk or in the rest, and of masked and bad rows."""
    rows = torch.randn(6, classes, generator=torch.Generator().manual_seed(0), dtype=torch.float64).to(dtype)
    k = min(k, classes)
    rows[0, -k:] = torch.arange(10.0, 10.0 + k, dtype=dtype)
    rows[1, :k] = torch.arange(10.0 + k, 10.0, -1.0, dtype=dtype)
    rows[2], rows[3, 1], rows[4, 2] = -INF, INF, NAN
    rows[2, 1] = 1.0
    values, places = find_top_k(rows.unflatten(0, (2, 3)), k)
    values, places = values.flatten(0, 1), places.flatten(0, 1)
    assert_close = partial(torch.testing.assert_close, rtol=0, atol=0, equal_nan=True)
    assert_close(values, rows.sort(-1, descending=True).values[:, :k])  # NaN comes first
    assert_close(rows.gather(-1, places), values)
    assert all(len(set(row)) == k for row in places.tolist())
    assert places.dtype == torch.int64
