"""The command line, run in this process."""

from typing import NamedTuple

import numpy as np
import pytest

from tests.cli.cases import samples
from torch_boc.cli import main
from torch_boc.evaluation import compare, evaluate


class Outcome(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def run(capsys, monkeypatch, tmp_path):
    """Runs a command line in an empty folder; gives its exit code and what it printed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    for function in (evaluate, compare):  # few bootstrap samples are enough here
        monkeypatch.setitem(function.__kwdefaults__, "replicates", 10)

    def call(*args):
        with pytest.raises(SystemExit) as stop:
            main([str(arg) for arg in args])
        return Outcome(stop.value.code or 0, *capsys.readouterr())

    return call


@pytest.fixture
def files(tmp_path):
    """A test set, an OOD set, a held-out set and training samples."""
    for name, strength, seed in (("test", 4, 1), ("noise", 0, 2), ("val", 4, 3), ("fit", 40, 4)):
        np.savez(tmp_path / f"{name}.npz", **samples(200, strength, seed=seed))
    return tmp_path
