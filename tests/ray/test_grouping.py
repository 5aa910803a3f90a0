"""The rows of each group. No cluster is needed here."""

import numpy as np
import pyarrow as pa
import pytest

from torch_boc.ray.grouping import split_groups


@pytest.mark.parametrize("values", [["b", "a", "b"], [2, 1, 2], [0.5, -1.0, 0.5], [True, False, True]], ids=str)
def test_each_row_is_in_its_group(values):
    keys, parts = split_groups(pa.table({"site": values, "row": [0, 1, 2]}), "site")
    assert keys.to_pylist() == values[:2]
    assert [part["row"].to_pylist() for part in parts] == [[0, 2], [1]]


def test_no_rows_have_no_groups():
    keys, parts = split_groups(pa.table({"site": pa.array([], pa.string())}), "site")
    assert (len(keys), parts) == (0, [])


@pytest.mark.parametrize(
    "values",
    [
        pa.array(["a", None, "b", None]),
        pa.array(["a", None, "a", None]).dictionary_encode(),
        pa.array(np.array([1.0, np.nan, 2.0, np.nan])),
        pa.array([1.0, float("nan"), 2.0, None]),
        pa.array(np.array([1, np.nan, 2, np.nan], "float16")),
    ],
    ids=["null", "dictionary", "nan", "both", "half"],
)
def test_a_row_without_a_group_is_refused(values):
    message = r"^expected a group for each row in column 'site', got 2 of 4 rows with null or NaN; leave such rows out"
    with pytest.raises(ValueError, match=message):
        split_groups(pa.table({"site": values}), "site")


def test_a_column_that_is_not_there():
    with pytest.raises(ValueError, match="expected a column 'site' to group by, got city, row"):
        split_groups(pa.table({"city": ["a"], "row": [0]}), "site")
