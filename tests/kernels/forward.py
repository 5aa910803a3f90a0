"""The sums of the kernels against the path in torch and the definitions. Run by `test_kernels.py`."""

from functools import cache

import pytest
import torch

from tests import reference
from tests.functional.cases import confident_logits, relative_error
from tests.kernels.cases import CLASSES, DEVICE, DTYPES, INTERPRETED, LIMIT, UNDEFINED, make_logits, odd_rows, sums
from torch_boc.core import rows
from torch_boc.core.precision import accumulator
from torch_boc.functional.paths import coins_from_rows, decide

over_classes = pytest.mark.parametrize("classes", CLASSES)
over_dtypes = pytest.mark.parametrize("dtype", DTYPES)


def assert_same_sums(logits, *, extras=True):
    """As the path in torch, up to the order of summation."""
    actual, expected = sums(logits, extras=extras), rows.row_sums(logits, extras=extras)
    limit = LIMIT[accumulator(logits.dtype)]
    chosen = logits.gather(-1, actual.prediction[..., None]).squeeze(-1).to(actual.top.dtype)
    torch.testing.assert_close(chosen, expected.top, rtol=0, atol=0)
    assert (actual.surprise is None) == (not extras)
    assert actual.prediction.tolist() == expected.prediction.tolist()
    for value, other in zip(actual[1:], expected[1:], strict=True):
        if value is not None:
            torch.testing.assert_close(value, other, rtol=limit, atol=1e-37)


@over_dtypes
@over_classes
def test_sums(classes, dtype):
    assert_same_sums(make_logits(7 if classes < 50257 else 2, classes, dtype))


@pytest.mark.parametrize("classes", [2, 1025, 20000])
@pytest.mark.parametrize("count", [0, 1, 7, 600])
def test_any_number_of_rows(classes, count):
    assert_same_sums(make_logits(count if classes == 2 else min(count, 7), classes), extras=False)


STRIDES = {
    "every other row": lambda z: z[::2],
    "part of each row": lambda z: z[:, 3:-4],
    "the same row": lambda z: z[:1].expand(5, -1),
    "transposed": lambda z: z.T.contiguous().T,
    "every other class": lambda z: z[:, ::2],
    "one row": lambda z: z[0],
    "three axes": lambda z: z[:6].unflatten(0, (2, 3)).transpose(0, 1),
    "without the last token": lambda z: z[:6].unflatten(0, (2, 3))[:, :-1],
    "sequences, classes first": lambda z: z[:6].unflatten(0, (2, 3)).mT.contiguous().mT,
    "one sequence": lambda z: z[:6].unflatten(0, (2, 3)).mT.contiguous().mT[:1],
    "images, classes first": lambda z: z.expand(16, 7, -1).mT.contiguous().mT.unflatten(1, (7, 1)),
    "a part of each image": lambda z: z[:6].unflatten(0, (2, 3)).mT.contiguous().mT[:, 1:],
    "three steps": lambda z: z[:4].expand(2, 4, -1).contiguous().unflatten(1, (2, 2))[:, :, :1].expand(2, 2, 3, -1),
}


@pytest.mark.parametrize("cut", STRIDES.values(), ids=STRIDES.keys())
@pytest.mark.parametrize("classes", [40, 17000])
def test_any_strides(classes, cut):
    assert_same_sums(cut(make_logits(7, classes)))


@over_dtypes
@pytest.mark.parametrize("classes", [5, 1025, 17001])
def test_undefined_rows_and_ties(classes, dtype):
    logits = odd_rows(classes, dtype)
    actual = sums(logits, extras=True)
    for value in actual[1:]:
        assert value.isnan().tolist() == UNDEFINED
    assert ((actual.prediction >= 0) & (actual.prediction < classes)).all()
    assert_same_sums(logits[4:])


@cache
def defined(classes, odds):
    """Confident logits, and the probe from the definitions, which takes seconds for many classes."""
    logits = confident_logits(classes, odds, seed=classes).float()
    return logits, reference.probe(logits.tolist())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    ("classes", "odds"), [(c, r) for c in (2, 3, 10, 1000) for r in (0.5, 1e-7, 1e-20, 1e-30)] + [(50257, 1e-20)]
)
def test_agrees_with_the_definitions(classes, odds, dtype):
    """The limits of tests/functional/test_accuracy.py; at u = 1e-30, rounding x log2(e) alone can cost 3e-6."""
    logits, probe = defined(classes, odds)
    rows = sums(logits[None].to(DEVICE, dtype))
    coins = coins_from_rows(rows, classes, decide(rows.odds))
    for name in ("odds", "loss", "gap"):
        error = relative_error(getattr(coins, name).cpu(), [getattr(probe, name)]).item()
        assert error <= {torch.float32: 5e-6, torch.float64: 1e-12}[dtype], f"{name}: relative error {error:.2g}"


def tied_rows(classes, dtype):
    """Rows whose tops come several times: side by side, in other blocks and lanes, at both zeros, and everywhere."""
    pairs = [(0, 1), (1, classes - 1), (classes // 2, classes - 1), (classes - 2, classes - 1), (classes // 3, 64)]
    logits = make_logits(len(pairs) + 4, classes, dtype)
    for row, places in enumerate(pairs):
        logits[row, [min(place, classes - 1) for place in places]] = 60.0
    logits[-4] = -1.0
    logits[-4, [classes // 3, classes - 1]] = torch.tensor([-0.0, 0.0], dtype=dtype, device=DEVICE)
    logits[-3] = -1.0
    logits[-3, [classes // 3, classes - 1]] = torch.tensor([0.0, -0.0], dtype=dtype, device=DEVICE)
    logits[-2] = 2.5
    logits[-1] = -torch.inf
    return logits


@over_dtypes
@pytest.mark.parametrize("classes", [2, 17, 65, 1025, 17001])
def test_the_prediction_is_the_first_of_several_tops(classes, dtype):
    logits = tied_rows(classes, dtype)
    assert sums(logits).prediction.tolist() == logits.cpu().argmax(-1).tolist()


@over_dtypes
@pytest.mark.parametrize("classes", [5, 48, 1025, 17001])
def test_the_prediction_of_an_undefined_row_is_that_of_argmax(classes, dtype):
    """The first NaN, before and after +inf."""
    logits = odd_rows(classes, dtype)
    logits[1, classes // 2 + 1 :] = torch.nan
    logits[2, [1, 3]] = torch.nan
    assert sums(logits).prediction.tolist() == logits.cpu().argmax(-1).tolist()


@over_dtypes
@pytest.mark.parametrize("scale", [1e-20, 1e-3, 0.7])
@pytest.mark.parametrize("classes", [3, 1025])
def test_the_sums_of_flat_rows(classes, scale, dtype):
    logits = make_logits(7, classes, dtype, scale=scale)
    logits[0, 1] = -torch.inf
    assert_same_sums(logits)


@pytest.mark.skipif(not INTERPRETED, reason="a GPU takes the fast form by itself")
@pytest.mark.parametrize("classes", [5, 130, 17001])
def test_the_fast_form_of_undefined_rows_and_ties(classes, monkeypatch):
    """With stand-ins for the instructions that the interpreter has not; its sums are less exact: nothing is fused."""
    from torch_boc.kernels.triton import exponentials, launch

    def reduce_rows(z, axis, combine):
        best = z.handle.data.max(axis)  # of NumPy, which gives NaN where there is one
        return exponentials.tl.core.tensor(
            type(z.handle)(best, z.handle.dtype), exponentials.tl.core.block_type(z.dtype, list(best.shape))
            if best.ndim else z.dtype
        )  # fmt: skip

    plain = {"_exp2": lambda x, fast: exponentials.tl.exp2(x), "_share": lambda u, fast: u / (1.0 + u)}
    for name, function in plain.items():
        monkeypatch.setattr(exponentials, name, function)
    monkeypatch.setattr(exponentials.tl, "reduce", reduce_rows)
    monkeypatch.setattr(launch, "has_ptx", lambda: True)
    logits = odd_rows(classes, torch.float32)
    logits[1, classes // 2 + 1 :] = torch.nan
    logits[2, [1, 3]] = torch.nan
    actual, expected = launch.launch_rows(logits, True), rows.row_sums(logits[4:], extras=True)
    assert actual[0].tolist() == logits.argmax(-1).tolist()
    assert actual[2].isnan().tolist() == UNDEFINED
    torch.testing.assert_close(actual[2][4:], expected.odds, rtol=1e-5, atol=0)
    torch.testing.assert_close(actual[5][4:], expected.margin, rtol=1e-5, atol=0)
