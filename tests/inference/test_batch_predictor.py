"""The predictor of arrays computes what `BoCPredictor` computes, and can be sent to other processes."""

import pickle

import numpy as np
import pytest
import torch
from torch import nn
from torch.testing import assert_close

from torch_boc import BoCPredictor, ConformalTest
from torch_boc.functional import checks
from torch_boc.inference import BoCBatchPredictor

WIDTH = 6


def make():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(WIDTH, 8), nn.Dropout(0.5), nn.Linear(8, 4))


class TwoInputs(nn.Module):
    def forward(self, left, right):
        return make().eval()(left - right)


def batch(rows=12, seed=0):
    random = np.random.default_rng(seed)
    arrays = {"x": random.normal(size=(rows, WIDTH)).astype("float32"), "y": random.integers(0, 4, rows)}
    arrays |= {"path": np.array([f"{i}.png" for i in range(rows)], object), "site": np.arange(rows) % 2}
    for array in arrays.values():
        array.flags.writeable = False  # as Ray's are
    return arrays


def plain(arrays, **options):
    loader = [(torch.tensor(arrays["x"]), torch.tensor(arrays["y"]))]
    (table,) = BoCPredictor(make(), progress=False, **options).predict(loader)
    return table


@pytest.mark.parametrize("dtype", [None, torch.bfloat16])
def test_the_values_are_those_of_the_predictor(dtype):
    arrays = batch()
    test = ConformalTest().calibrate(make().eval()(torch.randn(200, WIDTH)).detach())
    predictor = BoCBatchPredictor(
        make, inputs="x", target="y", id="path", keep=["site"], dtype=dtype, conformal_test=test, alpha=0.1
    )
    found, expected = predictor(arrays), plain(arrays, dtype=dtype, conformal_test=test, alpha=0.1)
    assert tuple(found) == predictor.columns == ("path", "site", "target", *list(expected)[2:])
    assert found["path"] is arrays["path"]
    assert found["site"] is arrays["site"]
    for name in list(expected)[1:]:
        assert_close(torch.from_numpy(found[name]), expected[name], rtol=0, atol=0, equal_nan=True)


def gap_of(arrays, factory=make, **options):
    return BoCBatchPredictor(factory, columns=["gap"], **options)(arrays)["gap"]


def halves(columns):
    columns["x"] /= 2  # may be changed in place
    return torch.from_numpy(columns["x"]) * 2


def test_the_model_gets_its_inputs():
    arrays, rows = batch(), np.empty(12, object)
    rows[:] = list(arrays["x"])
    for found in (
        gap_of(arrays, target="y", id="path", keep=["site"]),  # the only column that remains
        gap_of({"x": rows}, inputs="x"),  # arrays of arrays are stacked
        gap_of({"left": arrays["x"], "right": arrays["x"] * 0}, TwoInputs, inputs=["left", "right"]),
        gap_of(arrays, preprocess=halves, id="path"),
        gap_of(arrays, preprocess=lambda columns: {"input": torch.tensor(columns["x"])}, inputs=["x"]),
        gap_of(arrays, preprocess=lambda columns: (torch.tensor(columns["x"]),), inputs=["x"]),
    ):
        np.testing.assert_array_equal(found, plain(arrays, columns=["gap"])["gap"].numpy())
    with pytest.raises(
        ValueError, match="expected inputs=, the column that the model gets, got none of x, y, path, site"
    ):
        BoCBatchPredictor(make, target="y", id="path")(arrays)


def test_a_worker_changes_modes_and_looks_for_probabilities_once(monkeypatch):
    """On a GPU, looking waits for it."""
    modes, looks = [], []

    class Counted(nn.Linear):
        def train(self, mode=True):
            modes.append(mode)
            return super().train(mode)

    monkeypatch.setattr(checks, "are_probabilities", lambda *args: looks.append(args) or torch.tensor(False))
    predictor = BoCBatchPredictor(lambda: Counted(WIDTH, 4), inputs="x")
    predictor(batch())
    first = len(looks)
    predictor(batch(seed=1))
    assert modes == [False]
    assert len(looks) == first > 0


def test_a_pickle_holds_the_factory_and_not_the_model():
    calls, arrays, predictor = [], batch(), BoCBatchPredictor(make, inputs="x", columns=["gap"])
    before = pickle.dumps(predictor)
    expected = predictor(arrays)["gap"]
    assert len(pickle.dumps(predictor)) == len(before)
    np.testing.assert_array_equal(pickle.loads(before)(arrays)["gap"], expected)
    counted = BoCBatchPredictor(lambda: calls.append(1) or make(), inputs="x")
    assert calls == []
    counted(arrays), counted(arrays)
    assert calls == [1]


def test_no_rows():
    predictor = BoCBatchPredictor(make, inputs="x", target="y", id="path")
    some, none = predictor(batch()), predictor(batch(0))
    assert {name: x.dtype for name, x in none.items()} == {name: x.dtype for name, x in some.items()}
    assert all(len(x) == 0 for x in none.values())


KEEP = "expected keep as a list of different names"
ERRORS = [
    ({"inputs": "image"}, ValueError, "expected a column 'image' in the data, got x, y, path, site"),
    ({"target": "label"}, ValueError, "expected a column 'label'"),
    ({"inputs": "path"}, TypeError, "expected numbers in column 'path', got <U6; give preprocess="),
    ({"preprocess": lambda columns: torch.zeros(3, WIDTH)}, ValueError, "to return 12 samples.*got 3"),
    ({"factory": nn.Linear(2, 2)}, TypeError, "expected factory as a function that returns the model, got Linear"),
    ({"id": "gap"}, ValueError, "expected id as the name of a new column"),
    ({"keep": "site"}, ValueError, KEEP),
    ({"keep": ["path"], "id": "path"}, ValueError, KEEP),
    ({"keep": ["a", "a"]}, ValueError, KEEP),
    ({"dtype": torch.float64}, ValueError, "expected dtype as torch.bfloat16"),
]


def test_arrays_of_several_shapes_are_no_column():
    ragged = batch() | {"x": np.array([np.zeros(i % 2 + 1) for i in range(12)], dtype=object)}
    with pytest.raises(ValueError, match="expected arrays of one shape in column 'x'"):
        BoCBatchPredictor(make, inputs="x")(ragged)


@pytest.mark.parametrize(("options", "error", "message"), ERRORS)
def test_errors(options, error, message):
    with pytest.raises(error, match=message):
        BoCBatchPredictor(**{"factory": make, "inputs": "x"} | options)(batch())
