"""Columns of Ray's blocks as tensors."""

import warnings

import numpy as np
import pyarrow as pa
import pytest
import torch
from torch.testing import assert_close

from torch_boc.ray.arrays import column_tensor

VALUES = np.arange(12, dtype=np.float32).reshape(4, 3)


def as_ray_has_it():
    extension = pytest.importorskip("ray.data.extensions")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Ray warns of its own settings
        return extension.ArrowTensorArray.from_numpy(VALUES)


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(as_ray_has_it, id="tensors of Ray"),
        pytest.param(lambda: pa.FixedShapeTensorArray.from_numpy_ndarray(VALUES), id="tensors of Arrow"),
        pytest.param(lambda: pa.array(VALUES.tolist(), pa.list_(pa.float32())), id="lists"),
        pytest.param(lambda: pa.array(VALUES.tolist(), pa.list_(pa.float32(), 3)), id="lists of a fixed size"),
    ],
)
@pytest.mark.parametrize("pieces", [1, 2])
def test_every_form_of_logits(make, pieces):
    column = make()
    table = pa.table({"z": pa.chunked_array([column] * pieces)})
    found = column_tensor(table, "z")
    assert_close(found, torch.from_numpy(VALUES).repeat(pieces, 1), rtol=0, atol=0)
    found.add_(1)  # memory of its own
    assert_close(column_tensor(table, "z")[0, 0].item(), 0.0)


def test_numbers():
    assert_close(column_tensor(pa.table({"y": [3, 1]}), "y"), torch.tensor([3, 1]))


def test_what_is_no_tensor():
    with pytest.raises(ValueError, match="expected a column 'z', got y"):
        column_tensor(pa.table({"y": [1]}), "z")
    with pytest.raises(ValueError, match="expected numbers in column 'y', got string"):
        column_tensor(pa.table({"y": ["a"]}), "y")
    with pytest.raises(ValueError, match="got lists of length 1, 2"):
        column_tensor(pa.table({"y": [[1.0], [1.0, 2.0]]}), "y")


def test_tensors_of_different_shapes():
    extension = pytest.importorskip("ray.data.extensions")
    column = extension.ArrowVariableShapedTensorArray.from_numpy([np.zeros((2, 2)), np.zeros((3, 1))])
    with pytest.raises(ValueError, match="expected numbers, or tensors of one shape, in column 'z'"):
        column_tensor(pa.table({"z": column}), "z")
