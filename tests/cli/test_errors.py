"""What a user can correct is one line on stderr that says what is wrong, and exit code 2, before any work is done."""

import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest
import torch
from pyarrow import parquet

import torch_boc.evaluation.evaluate  # noqa: F401
from tests.systems import unix_only
from torch_boc.report.report import Report

USAGE = """
prob                               | No such command 'prob'. Did you mean 'probe'?
report a.npz --max-rows 0          | Invalid value for '--max-rows'
probe a.npz --probability          | No such option: --probability (Possible options: --probabilities) (see
trace --model a                    | Missing option '--prompt'
"""
BAD = """
probe none.npz                   | none.npz: no such file
probe junk.npz                   | junk.npz: expected arrays of numbers that NumPy has saved, got another file
probe junk.txt                   | junk.txt: expected a file that ends in .npz, .npy,
probe https://host/a.npz         | https://host/a.npz: expected a URI that Arrow can read, such as s3://bucket/fold
probe test.npz --classes junk.json | junk.json: expected the name of a class in each line, or JSON with id2label
probe test.npz -o out.txt        | out.txt: expected an output that ends in .parquet or .csv, got '.txt'
probe test.npz -o folder.csv     | expected the path of a file, got the folder folder.csv
probe test.npz -o test.npz/new/out.csv | expected test.npz/new/out.csv in a folder, got
probe one.parquet -o one.parquet | one.parquet: expected an output that is not the input, got
report test.npz --out test.npz   | expected a folder, got the file test.npz; choose another path
report test.npz --out full       | expected the path of a file, got the folder full/report.json
demo ../zoo/resnet20-cifar10     | expected an entry among minilm-clinc150,
report test.npz --calibration bare.npy | bare: expected logits with targets, got none
report test.npz --ood noise.npz --ood noise=val.npz | val.npz: expected another name for it, got 'noise' twice; use
report test.npz --ood far=       | expected NAME=PATH or PATH, got 'far='
compare test.npz                 | expected at least two models to compare, got 1
compare test.npz test.npz        | test.npz: expected another name for it, got 'test' twice; use NAME=test.npz
compare test.npz val.npz --ood far=a.npz | --ood: expected NAME=PATH,PATH with a file for each
screen test.npz                  | expected --calibration PATH or --test PATH, the held-out samples or a saved test
screen test.npz --calibration val.npz --fdr 1.5 | expected fdr in (0, 1), got 1.5
screen test.npz --calibration bare.npy --error 0.1 | bare: expected held-out samples with targets
screen test.npz --calibration val.npz --score best | expected score among msp,
screen three.npz --calibration val.npz | three.npz: expected 4 classes, as in val, got 3
screen test.npz --test none.pt   | none.pt: no such file
screen test.npz --test junk.npz  | junk.npz: expected a file that torch-boc has written, got something else
screen test.npz --test other.pt  | other.pt: expected a torch_boc.ConformalTest, got None
screen test.npz --test t.pt --score msp | expected --score with --calibration, got it with --test
monitor test.npz --calibration val.npz --alpha 0.1 --run-length 9 | expected alpha, or run_length above 1, got
trace --model a --prompt x -o .  | expected the path of a file, got the folder .
trace --model . --prompt x       | .: transformers cannot load a causal language model
text --model nowhere junk.txt    | nowhere: no such folder; give --model the folder of a model
text --model a/b junk.txt --out . | expected the path of a file, got the folder .
"""


@pytest.fixture
def odd(files, monkeypatch):
    """Files and folders that cannot be used; no model is evaluated and nothing is drawn."""

    def fail(*args, **kwargs):
        raise AssertionError("the work has begun")

    monkeypatch.setattr(sys.modules["torch_boc.evaluation.evaluate"], "probe_set", fail)
    monkeypatch.setattr(Report, "figures", fail)
    np.savez(files / "three.npz", logits=np.arange(12.0).reshape(4, 3), target=np.array([0, 1, 2, 0]))
    np.save(files / "bare.npy", np.random.default_rng(0).normal(size=(20, 4)))
    for name in ("junk.npz", "junk.txt", "junk.json"):
        (files / name).write_bytes(b"junk")
    parquet.write_table(pa.table({"logit_0": [1.0], "logit_1": [2.0]}), files / "one.parquet")
    torch.save({"logits": torch.zeros(3)}, files / "other.pt")
    for folder in ("folder.csv", "full/report.json"):
        (files / folder).mkdir(parents=True)
    return files


@pytest.mark.parametrize("case", (USAGE + BAD).strip().replace("\n\n", "\n").splitlines())
def test_one_line(run, odd, case):
    before = sorted(odd.rglob("*"))
    line, _, message = case.partition(" | ")
    code, out, err = run(*line.split())
    assert (code, out) == (2, "")
    assert err.startswith(f"torch-boc: error: {message}")
    assert err.endswith("--help)\n") == (case in USAGE)
    assert err.count("\n") == 1
    assert sorted(odd.rglob("*")) == before


@unix_only
def test_a_folder_that_does_not_let_this_user(run, files, monkeypatch):
    allowed = __import__("os").access
    monkeypatch.setattr("os.access", lambda path, mode: mode != 3 and allowed(path, mode))
    assert "which does not let this user" in run("probe", "test.npz", "-o", "new/out.csv").err


class TestMemory:
    """Its own exit code, and no word of a damaged file."""

    @pytest.mark.parametrize(
        "error",
        [
            MemoryError("Unable to allocate 7 GiB"),
            MemoryError(),
            OSError(12, "Cannot allocate memory"),
            RuntimeError("[enforce fail at alloc_cpu.cpp:127] DefaultCPUAllocator: can't allocate memory: you tried"),
        ],
    )
    def test_too_little(self, run, files, monkeypatch, error):
        def fail(*args, **kwargs):
            raise error

        monkeypatch.setattr("torch_boc.functional.table_columns.columns_of", fail)
        code, out, err = run("probe", "test.npz", "-o", "out.csv")
        assert (code, out) == (3, "")
        assert err.startswith("torch-boc: error: too little memory")
        assert err.count("\n") == 1
        assert not [path for path in files.iterdir() if "out.csv" in path.name]

    def test_a_file_of_that_name_is_no_lack_of_memory(self, run, files):
        (files / "out of memory.pt").write_bytes(b"noise")
        code, _, err = run("probe", "out of memory.pt")
        assert code == 2
        assert "damaged" in err

    @pytest.mark.slow
    @pytest.mark.skipif(sys.platform != "linux", reason="limits of memory as on Linux")
    def test_under_a_real_limit(self, tmp_path):
        """A file of half a gigabyte, which takes no room on a disk that keeps no zeros; `probe` maps it into memory."""
        path = tmp_path / "big.npy"
        np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(2**19, 256)).flush()
        code = (
            "import resource, sys, numpy, torch_boc.metrics, torch_boc.cli.app as app\n"
            "used = int(open('/proc/self/statm').read().split()[0]) * resource.getpagesize()\n"
            "resource.setrlimit(resource.RLIMIT_DATA, (used + 2**28, used + 2**28))\n"
            "sys.exit(app.run_command(sys.argv[1:]))\n"
        )
        done = subprocess.run([sys.executable, "-c", code, "probe", path], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.startswith("big: 524,288 samples, 256 classes")
