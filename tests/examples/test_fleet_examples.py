"""The examples for Spark and Daft, which run where these are installed. They give what one process gives."""

import os
import runpy
import subprocess
import sys

import numpy as np
import pyarrow.parquet as parquet
import pytest

from tests.examples.conftest import EXAMPLES
from torch_boc.inference import BoCBatchPredictor

ROWS, WIDTH = 100, 32


def run_example(name, output):
    """Run it as a script whose workers find this copy of the package."""
    command = [sys.executable, str(EXAMPLES / name), "--rows", str(ROWS), "--output", str(output)]
    paths = os.pathsep.join([str(EXAMPLES.parent), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": paths, "DO_NOT_TRACK": "true"}
    result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert result.returncode == 0, result.stderr
    return parquet.read_table(output).sort_by("path")


def check(table, predict):
    """The rows are those of `predict`, a function of the inputs, up to the rounding of other batches."""
    assert table["path"].to_pylist() == [f"{i:04}.png" for i in range(ROWS)]
    expected = predict(np.random.default_rng(0).normal(size=(ROWS, WIDTH)))
    assert set(table.column_names) == {"path", *expected}
    for name, column in expected.items():
        np.testing.assert_allclose(table[name].to_numpy(), column, rtol=1e-4, atol=1e-6, err_msg=name)


def test_spark(tmp_path):
    pytest.importorskip("pyspark")
    example = runpy.run_path(str(EXAMPLES / "spark_batch_inference.py"))
    check(run_example("spark_batch_inference.py", tmp_path / "rows"), example["make_predict"]())


def test_daft(tmp_path):
    pytest.importorskip("daft")
    example = runpy.run_path(str(EXAMPLES / "daft_batch_inference.py"))
    predictor = BoCBatchPredictor(example["make_model"], columns=list(example["COLUMNS"]))
    check(run_example("daft_batch_inference.py", tmp_path / "rows"), lambda x: predictor({"x": x.astype("float32")}))
