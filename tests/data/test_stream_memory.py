"""The memory of a file that is read in parts does not depend on its size."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import safetensors.torch
import torch
from pyarrow import csv, parquet

GROWTH = """
import sys, torch, numpy
from torch_boc.data.streams import stream_logits

def private():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) / 1000 for line in file if line.startswith("RssAnon"))

torch.set_num_threads(1)
stream, most = stream_logits(sys.argv[1]), 0
for i, block in enumerate(stream):
    start = private() if i == 1 else 0 if i == 0 else start
    most = max(most, private() - start) if i else 0
print(stream.rows, most)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="memory as on Linux")
@pytest.mark.parametrize("kind", ["npy", "npz", "columns.npy", "safetensors", "parquet", "csv"])
def test_memory_does_not_grow_with_the_file(tmp_path, kind):
    """The memory of the process after the first block, in MB, against that at its peak."""
    rows, path = (100_000, tmp_path / "a.csv") if kind == "csv" else (1_000_000, tmp_path / f"a.{kind}")
    values = np.random.default_rng(0).standard_normal((rows, 20), dtype=np.float32)
    table = lambda: pa.table({f"logit_{i}": values[:, i] for i in range(20)})  # noqa: E731
    {
        "npy": lambda: np.save(path, values),
        "columns.npy": lambda: np.save(path, np.asfortranarray(values)),
        "npz": lambda: np.savez(path, logits=values),
        "safetensors": lambda: safetensors.torch.save_file({"logits": torch.from_numpy(values)}, path),
        "parquet": lambda: parquet.write_table(table(), path, row_group_size=10**9),
        "csv": lambda: csv.write_csv(table(), path),
    }[kind]()
    done = subprocess.run([sys.executable, "-c", GROWTH, str(path)], capture_output=True, text=True, check=True)
    found, growth = done.stdout.split()
    assert int(found) == rows
    assert float(growth) < 25  # of 80 MB, or of 40 MB of CSV


PROBE = """
import sys, threading, time
import numpy, torch, torch_boc.cli.app as app, torch_boc.metrics
from tests.data.test_stream_memory import resident

start, most, done = resident(), 0, False

def watch():
    global most
    while not done:
        most = max(most, resident())
        time.sleep(0.02)

watcher = threading.Thread(target=watch)
watcher.start()
code = app.run_command(["probe", *sys.argv[1:]])
done = True
watcher.join()
print(code, most - start)
"""


def resident():
    """The memory of this process in MB, pages of files included."""
    with Path("/proc/self/status").open() as file:
        return next(int(line.split()[1]) / 1000 for line in file if line.startswith("VmRSS"))


def probe_growth(path, *options):
    """By how many MB `torch-boc probe` grows beyond what its libraries take, and what it prints."""
    run = [sys.executable, "-c", PROBE, str(path), *map(str, options)]
    done = subprocess.run(run, capture_output=True, text=True, check=True)
    *printed, last = done.stdout.splitlines()
    code, growth = last.split()
    assert code == "0"
    return float(growth), "\n".join(printed)


def long_file(path, rows, classes, block=2**16):
    """An `.npy` file that is made in parts."""
    numbers = 3 * np.random.default_rng(0).standard_normal((block, classes), dtype=np.float32)
    with path.open("wb") as file:
        form = np.lib.format
        form.write_array_header_1_0(file, {"descr": "<f4", "fortran_order": False, "shape": (rows, classes)})
        for start in range(0, rows, block):
            numbers[: rows - start].tofile(file)


@pytest.mark.skipif(sys.platform != "linux", reason="memory as on Linux")
@pytest.mark.parametrize("output", [None, "out.parquet"])
def test_probe(tmp_path, output):
    """300 MB of logits."""
    long_file(tmp_path / "a.npy", 750_000, 100)
    options = [] if output is None else ["-o", tmp_path / output]
    growth, printed = probe_growth(tmp_path / "a.npy", *options)
    assert printed.startswith("a: 750,000 samples, 100 classes")
    assert growth < 150


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="memory as on Linux")
def test_probe_of_three_gigabytes(tmp_path):
    """All that it takes beyond its libraries, pages of files included, is less than 500 MB."""
    long_file(tmp_path / "a.npy", 75_000_000, 10)
    assert (tmp_path / "a.npy").stat().st_size > 3e9
    growth, printed = probe_growth(tmp_path / "a.npy", "-o", tmp_path / "out.parquet")
    assert printed.startswith("a: 75,000,000 samples, 10 classes")
    assert growth < 500
    assert parquet.ParquetFile(tmp_path / "out.parquet").metadata.num_rows == 75_000_000
