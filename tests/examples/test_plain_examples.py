"""The smoke runs of the examples that need no trainer."""

import subprocess
import sys

import pyarrow.parquet as parquet

from tests.examples.conftest import EXAMPLES, SCRIPT


@SCRIPT
def test_batch_inference(run, tmp_path):
    printed = run("batch_inference.py", "--smoke", "--output", tmp_path / "noise.parquet")
    assert parquet.read_table(tmp_path / "noise.parquet")["index"].to_pylist() == list(range(96))
    assert "highest concentration" in printed


def test_metric_in_plain_loop_as_a_process(tmp_path):
    """The others run in this process; this one shows that an example is a script."""
    command = [sys.executable, str(EXAMPLES / "metric_in_plain_loop.py"), "--smoke"]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    assert [line.split(":")[0] for line in lines] == ["epoch 0", "epoch 1"]
    assert "dominance_auroc" in lines[1]
    assert " nan" not in result.stdout
