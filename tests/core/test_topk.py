"""The largest logits are those that argmax and sorting find; a bad row stays in its row."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

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


@given(st.integers(CHUNK, 300), st.integers(1, 3), st.integers(0, 2**31), st.integers(1, 5))
def test_two_steps_on_any_width(width, height, seed, values):
    """Few distinct values: most rows have ties."""
    z = torch.randint(values, (height, width), generator=torch.Generator().manual_seed(seed)).float()
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
def test_they_are_those_of_a_sort(classes, k, dtype):
    rows = torch.randn(2, 3, classes, generator=torch.Generator().manual_seed(0), dtype=torch.float64).to(dtype)
    k = min(k, classes)
    values, places = find_top_k(rows, k)
    torch.testing.assert_close(values, rows.sort(-1, descending=True).values[..., :k], rtol=0, atol=0)
    torch.testing.assert_close(rows.gather(-1, places), values, rtol=0, atol=0)
    assert all(len(set(row)) == k for row in places.flatten(0, -2).tolist())
    assert places.dtype == torch.int64


@pytest.mark.parametrize("start", [0, 100, TWO_STEP_TOP_K - 3])
def test_neighbours_in_one_chunk_or_in_the_rest(start):
    rows = torch.zeros(TWO_STEP_TOP_K + 5)
    rows[start : start + 6] = torch.arange(6.0, 0.0, -1.0)
    assert find_top_k(rows, 6)[1].tolist() == list(range(start, start + 6))


def test_masked_rows():
    rows = torch.full((3, TWO_STEP_TOP_K), -torch.inf)
    rows[0, 7], rows[1, 2000], rows[2, 5] = 1.0, torch.inf, torch.nan
    values, places = find_top_k(rows, 3)
    assert places[:, 0].tolist() == [7, 2000, 5]
    assert (values[:2, 1:] == -torch.inf).all()
