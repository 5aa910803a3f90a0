"""The doctor lists the backends, tests them, and fails only if one gives wrong results."""

import json
import os
import subprocess
import sys

import pytest
import torch

import torch_boc
from tests.kernels.cases import needs_native
from torch_boc.cli import doctor
from torch_boc.kernels import selftest
from torch_boc.kernels.cpu import loader
from torch_boc.kernels.triton import launch


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(doctor, "SECONDS", 0.0)


@needs_native
def test_one_screen_and_json(run):
    code, out, err = run("doctor")
    assert (code, err) == (0, "")
    assert f"Available and correct: variant {loader.variant()};" in out
    assert torch.__version__ in out
    assert "4096 × 1000 on cpu" in out
    assert len(out.splitlines()) <= 30
    assert max(map(len, out.splitlines())) <= 80
    code, out, err = run("doctor", "--json")
    assert (code, err) == (0, "")
    found = json.loads(out)
    native, triton = found["paths"]
    assert (native["name"], native["available"], native["self_test"]) == ("native", True, "")
    assert (triton["name"], triton["available"]) == ("triton", torch.cuda.is_available())
    assert found["versions"]["torch_boc"] == torch_boc.__version__
    assert [(x["rows"], x["classes"]) for x in found["speed"] if x["device"] == "cpu"] == list(doctor.SHAPES)
    for row in found["speed"]:
        assert row["ratio"] == pytest.approx(row["coins_us"] / row["softmax_us"], rel=0.1)
        assert 0.1 < row["softmax_us"] < 1e6
    assert found["healthy"] is True


@pytest.mark.slow
def test_no_foreign_line_is_printed():
    """Torch logs that there is no CUDA runtime."""
    command = [sys.executable, "-c", "from torch_boc.cli import main; main(['doctor', '--json'])"]
    done = subprocess.run(command, env={**os.environ, "CUDA_HOME": "/usr"}, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_missing_backend_is_not_an_error(run, monkeypatch):
    monkeypatch.setattr(loader, "chosen", lambda: (None, "no native library came with this installation"))
    code, out, _ = run("doctor")
    assert code == 0
    assert "Not available: no native library came with this installation." in out


@needs_native
@pytest.mark.parametrize("options", [[], ["--json"]])
def test_wrong_results_are_a_fault(run, monkeypatch, options):
    monkeypatch.setattr(selftest, "LIMIT", -1.0)
    code, out, _ = run("doctor", *options)
    assert code == 1
    assert "their results are off by" in " ".join(out.split())


def test_a_gpu_is_tried_and_timed(monkeypatch):
    tried = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "a GPU")
    monkeypatch.setattr(selftest, "self_test", lambda device: tried.append(device) or "")
    monkeypatch.setattr(doctor, "_time_shape", lambda rows, classes, device: tried.append(device))
    for triton, why, found in ((True, "", ""), (False, "Triton is not installed: pip install triton", None)):
        monkeypatch.setattr(launch, "HAS_TRITON", triton)
        path = doctor.diagnose()["paths"][1]
        assert (path["why_not"], path["self_test"]) == (why, found)
    assert tried.count("cuda") == 1 + 2 * len(doctor.SHAPES)
