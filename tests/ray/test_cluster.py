"""What runs on a cluster of several nodes. All of it is in one file, so that one process starts one cluster."""

import pyarrow as pa
import pytest
import torch

import torch_boc
from torch_boc.ray import fold, is_ray_dataset

pytestmark = pytest.mark.ray


def nothing():
    return {"rows": 0, "sum": 0.0, "homes": set()}


def add(state, table):
    """The rows, their sum, and which copy of the package the worker uses."""
    assert isinstance(table, pa.Table)
    assert table.num_rows > 0
    state["rows"] += table.num_rows
    state["sum"] += table["id"].to_numpy().sum().item()
    state["homes"].add(torch_boc.__file__)
    return state


def merge(a, b):
    return {"rows": a["rows"] + b["rows"], "sum": a["sum"] + b["sum"], "homes": a["homes"] | b["homes"]}


@pytest.mark.parametrize("blocks", [1, 7])
def test_a_fold_does_not_depend_on_the_blocks(cluster, blocks):
    import ray

    found = fold(ray.data.range(1000, override_num_blocks=blocks), nothing, add, merge)
    assert found == {"rows": 1000, "sum": 499500, "homes": {torch_boc.__file__}}


def test_a_fold_over_no_rows_is_empty(cluster):
    import ray
    from ray.data.expressions import col

    assert fold(ray.data.range(10).filter(expr=col("id") > 10), nothing, add, merge) == nothing()


def failing(state, table):
    raise ValueError(f"expected no row, got {table.num_rows}")


def test_an_error_in_a_fold_is_one_error(cluster):
    import ray

    with pytest.raises(
        ValueError, match=r"^expected no row, got 5 \(while folding a block of 5 rows, at .*failing\)$"
    ) as e:
        fold(ray.data.range(5, override_num_blocks=1), nothing, failing, merge)
    assert e.value.__suppress_context__


def test_what_is_a_dataset(cluster):
    import ray

    assert is_ray_dataset(ray.data.range(3))
    assert not is_ray_dataset(torch.zeros(3))


def test_functions_that_cannot_be_sent_are_refused(cluster):
    import threading

    import ray

    lock = threading.Lock()
    with pytest.raises(TypeError, match="expected add as a function that can be pickled"):
        fold(ray.data.range(3), nothing, lambda state, table: (lock, state)[1], merge)
