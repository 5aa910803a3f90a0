"""The classes are those of the Lightning that the process has imported; none is an error that names the extra."""

import pickle
import subprocess
import sys

import pytest

from torch_boc.lightning import BoCCallback, BoCPredictionWriter
from torch_boc.lightning._compat import NAMES, lightning


@pytest.mark.parametrize("missing", NAMES)
def test_one_library_is_enough(missing, monkeypatch):
    monkeypatch.setitem(sys.modules, missing, None)
    assert [lightning().__name__] == [name for name in NAMES if name != missing]


def test_without_any_the_extra_is_named(monkeypatch):
    for name in NAMES:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match=r"pip install 'torch-boc\[lightning\]'"):
        lightning()


def test_the_imported_library_is_used():
    code = (
        "import sys, pytorch_lightning, torch_boc\n"
        "assert issubclass(torch_boc.lightning.BoCCallback, pytorch_lightning.Callback)\n"
        "assert 'lightning.pytorch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_callbacks_can_be_sent_to_other_processes(tmp_path):
    callback = pickle.loads(pickle.dumps(BoCCallback(logits="model", ood={1: "svhn"})))
    assert callback.ood == {1: "svhn"}
    writer = pickle.loads(pickle.dumps(BoCPredictionWriter(tmp_path)))
    assert writer.output_dir == tmp_path
