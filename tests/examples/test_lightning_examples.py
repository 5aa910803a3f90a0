"""The Lightning examples run without downloads and print what they logged."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(name, *arguments):
    command = [sys.executable, str(EXAMPLES / name), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


@pytest.mark.parametrize("name", ["lightning_resnet_cifar10.py", "lightning_vit_cifar10.py"])
def test_smoke(name, tmp_path):
    done = run(name, "--smoke", "--output-dir", str(tmp_path))
    assert done.returncode == 0, done.stderr[-3000:]
    values = dict(line.split() for line in done.stdout.splitlines() if line.startswith("val/boc/"))
    assert 0 < float(values["val/boc/gap"]) < 1
    assert 0 <= float(values["val/boc/svhn/msp_auroc"]) <= 1
    assert (tmp_path / "last.ckpt").exists()
    assert list(tmp_path.rglob("events.*"))


def test_missing_data_is_explained(tmp_path):
    (tmp_path / "data").touch()  # no folder can be made here
    done = run("lightning_vit_cifar10.py", "--data-dir", str(tmp_path / "data"))
    assert done.returncode == 1
    assert "could not get CIFAR-10 and SVHN" in done.stderr
    assert "--smoke needs neither" in done.stderr
