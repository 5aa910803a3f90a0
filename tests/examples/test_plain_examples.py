"""The smoke runs of the examples that need no trainer."""

import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as parquet

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(name, *args, folder):
    command = [sys.executable, str(EXAMPLES / name), *args]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)


def test_batch_inference(tmp_path):
    result = run("batch_inference.py", "--smoke", "--output", "noise.parquet", folder=tmp_path)
    assert result.returncode == 0, result.stderr
    assert parquet.read_table(tmp_path / "noise.parquet")["index"].to_pylist() == list(range(96))
    assert "highest concentration" in result.stdout


def test_metric_in_plain_loop(tmp_path):
    result = run("metric_in_plain_loop.py", "--smoke", folder=tmp_path)
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    assert [line.split(":")[0] for line in lines] == ["epoch 0", "epoch 1"]
    assert "dominance_auroc" in lines[1]
    assert " nan" not in result.stdout
