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
import sys, torch
from tests.data.test_stream_memory import private
from torch_boc.data.streams import stream_logits

torch.set_num_threads(1)
for path in sys.argv[1:]:
    stream, start, most = stream_logits(path), None, 0
    for block in stream:
        start = start or private()
        most = max(most, private() - start)
    print(stream.rows, most)
"""
ROWS = 3_000_000
# Arrow takes 50 to 70 MB for pages of Parquet, whatever the size of the file.
LIMITS = {".parquet": 120, ".csv": 80}


def save_in_all_formats(folder, values):
    """The same logits in each format that is read in parts, and a tenth of them in CSV, which is slow to write."""
    table = pa.table({f"logit_{i}": values[:, i] for i in range(values.shape[1])})
    np.save(folder / "a.npy", values)
    np.save(folder / "by_column.npy", np.asfortranarray(values))
    np.savez(folder / "a.npz", logits=values)
    safetensors.torch.save_file({"logits": torch.from_numpy(values)}, folder / "a.safetensors")
    parquet.write_table(table, folder / "a.parquet", row_group_size=10**9)
    csv.write_csv(table.slice(0, len(values) // 10), folder / "a.csv")


@pytest.mark.skipif(sys.platform != "linux", reason="memory as on Linux")
def test_memory_does_not_grow_with_the_file(tmp_path):
    """The memory of the process at the first block, in MB, against that at its peak. The files have 240 MB."""
    save_in_all_formats(tmp_path, np.random.default_rng(0).standard_normal((ROWS, 20), dtype=np.float32))
    paths = sorted(tmp_path.iterdir())
    run = [sys.executable, "-c", GROWTH, *map(str, paths)]
    done = subprocess.run(run, capture_output=True, text=True, check=True)
    for path, line in zip(paths, done.stdout.splitlines(), strict=True):
        rows, growth = line.split()
        assert int(rows) == (ROWS // 10 if path.suffix == ".csv" else ROWS)
        assert float(growth) < LIMITS.get(path.suffix, 20), path


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


def resident(kind="VmRSS"):
    """The memory of this process in MB, pages of files included."""
    with Path("/proc/self/status").open() as file:
        return next(int(line.split()[1]) / 1000 for line in file if line.startswith(kind))


def private():
    """The same without pages of files."""
    return resident("RssAnon")


def probe_growth(path, *options):
    """By how many MB `torch-boc probe` grows beyond what its libraries take, and what it prints."""
    run = [sys.executable, "-c", PROBE, str(path), *map(str, options)]
    done = subprocess.run(run, capture_output=True, text=True, check=True)
    *printed, last = done.stdout.splitlines()
    code, growth = last.split()
    assert code == "0"
    sys.stdout.write(f"{path.name}: {growth} MB\n")
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
def test_probe(tmp_path):
    """300 MB of logits."""
    long_file(tmp_path / "a.npy", 750_000, 100)
    growth, printed = probe_growth(tmp_path / "a.npy", "-o", tmp_path / "out.parquet")
    assert printed.startswith("a: 750,000 samples, 100 classes")
    assert growth < 150


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="memory as on Linux")
def test_probe_of_three_gigabytes(tmp_path):
    """All that it takes beyond its libraries, pages of files included, is less than 500 MB."""
    long_file(tmp_path / "a.npy", 7_500_000, 100)
    assert (tmp_path / "a.npy").stat().st_size > 3e9
    growth, printed = probe_growth(tmp_path / "a.npy", "-o", tmp_path / "out.parquet")
    assert printed.startswith("a: 7,500,000 samples, 100 classes")
    assert growth < 500
    assert parquet.ParquetFile(tmp_path / "out.parquet").metadata.num_rows == 7_500_000
