"""Both libraries accept the classes; neither is an error that names the extra."""

import pickle
import subprocess
import sys

import pytest

from torch_boc.lightning import BoCCallback, BoCPredictionWriter
from torch_boc.lightning._compat import NAMES, installed


@pytest.mark.parametrize("missing", NAMES)
def test_one_library_is_enough(missing, monkeypatch):
    monkeypatch.setitem(sys.modules, missing, None)
    assert [library.__name__ for library in installed()] == [name for name in NAMES if name != missing]


def test_without_any_the_extra_is_named(monkeypatch):
    for name in NAMES:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match=r"pip install 'torch-boc\[lightning\]'"):
        installed()


def test_messages_stay_with_the_library_in_use():
    """Whoever silences the logger of their Lightning must not hear from the other one."""
    code = (
        "import pytorch_lightning, torch_boc.lightning, sys\n"
        "from lightning_utilities.core import rank_zero\n"
        "assert 'lightning.pytorch' in sys.modules\n"
        "print(rank_zero.log.name)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("pytorch_lightning.")


def test_callbacks_can_be_sent_to_other_processes(tmp_path):
    callback = pickle.loads(pickle.dumps(BoCCallback(logits="model", ood={1: "svhn"})))
    assert callback.ood == {1: "svhn"}
    writer = pickle.loads(pickle.dumps(BoCPredictionWriter(tmp_path)))
    assert writer.output_dir == tmp_path
