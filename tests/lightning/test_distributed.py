"""Two processes with uneven shares log and write what one process does."""

import os
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as parquet
import pytest
import torch
from torch.utils.data import TensorDataset

from tests.inference.cases import rows_of
from tests.lightning.cases import QUIET, Classifier, chosen, expected, logits_of, perceptron
from tests.lightning.test_styles import SHARED_STYLES, X, Y, assert_values, reference
from tests.lightning.two_processes import FAR, KNOWN, NEAR, SHARES
from torch_boc import BoCSeparation, ConformalTest

pytestmark = QUIET


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The folder that the two processes left, and what they said."""
    folder = tmp_path_factory.mktemp("two")
    environment = os.environ | {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "tests.lightning.two_processes", str(folder)]
    root = Path(__file__).parents[2]
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return folder, done.stderr


@pytest.fixture
def module():
    return Classifier()


def logged(folder, name):
    """What both processes have logged, which is the same."""
    first, second = (torch.load(folder / f"{name}-{rank}.pt") for rank in (0, 1))
    tests = [x.pop("test", {}) for x in (first, second)]
    same = {key for key in first if not key.startswith("train/")}
    assert first.keys() == second.keys()
    torch.testing.assert_close(
        {x: first[x] for x in same}, {x: second[x] for x in same}, rtol=0, atol=0, equal_nan=True
    )
    torch.testing.assert_close(*tests, rtol=0, atol=0)
    return first, tests[0]


def separation(module, known, other, scores=("msp", "energy", "gap")):
    metric = BoCSeparation(scores)
    metric.update(logits_of(module, known), False)
    metric.update(logits_of(module, other), True)
    found = {key: x.item() for key, x in metric.compute().items() if not key.endswith("_error") or x > 0.001}
    return {key: x for key, x in found.items() if key.removesuffix("_error").endswith(("auroc", "fpr95"))}


def test_validation_is_that_of_one_process(run, module):
    folder, said = run
    found, _ = logged(folder, "validate")
    gap = expected(module, KNOWN)["gap"]
    assert chosen(found, "val/boc/") == pytest.approx(expected(module, KNOWN, ("samples", "gap", "accuracy")))
    for name, data in (("near", NEAR), ("far", FAR)):
        other = expected(module, data)["gap"]
        shift = {"gap": other, "gap_shift": other - gap}
        want = shift | separation(module, KNOWN, data)
        assert chosen(found, f"val/named/{name}/") == pytest.approx(want)
        want = shift | {"samples": len(data), **separation(module, KNOWN, data)}
        assert chosen(found, f"val/boc/{name}/") == pytest.approx(want)
    assert not [line for line in said.splitlines() if "sync_dist" in line and "val_loss" not in line]
    assert "compute" not in said


def test_the_test_is_that_of_one_process(run, module):
    """The counts bit for bit; in which half a sample is depends on its place in the share of its process."""
    found, state = logged(run[0], "validate")
    known = logits_of(module, KNOWN)
    whole = ConformalTest("msp").calibrate(known)
    torch.testing.assert_close(state, whole.state_dict(), rtol=0, atol=0)
    parts = [known[places.start : places.stop] for places in (SHARES[0][0], SHARES[1][0])]
    even, odd = (torch.cat([part[start::2] for part in parts]) for start in (0, 1))
    level = ConformalTest("msp").calibrate(even).flag(odd, 0.1).double().mean().item()
    assert found["val/tested/flagged"] == pytest.approx(level)
    for name, data in (("near", NEAR), ("far", FAR)):
        power = whole.flag(logits_of(module, data), 0.1).double().mean().item()
        assert found[f"val/tested/{name}/flagged"] == pytest.approx(power)


def test_processes_that_share_each_sample_count_it_once(run, module):
    found, state = logged(run[0], "together")
    want = expected(module, KNOWN, ("samples", "gap")) | {"flagged": found["val/boc/flagged"].item()}
    assert chosen(found, "val/boc/") == pytest.approx(want)
    torch.testing.assert_close(state, ConformalTest().calibrate(logits_of(module, KNOWN)).state_dict(), rtol=0, atol=0)


def test_a_process_that_cannot_read_a_batch_keeps_no_other_waiting(run, module):
    found, _ = logged(run[0], "failures")
    known = TensorDataset(*(x[:40] for x in KNOWN.tensors))
    near = TensorDataset(*(x[[0, 1, 2, *range(11, 21)]] for x in NEAR.tensors))
    logits = logits_of(module, known)
    flagged = ConformalTest().calibrate(logits[::2]).flag(logits[1::2]).double().mean().item()
    want = expected(module, known, ("samples", "gap", "nll")) | {"flagged": flagged, "skipped_batches": 2}
    assert chosen(found, "val/boc/") == pytest.approx(want)
    want = expected(module, near, ("samples", "gap")) | separation(module, known, near) | {"skipped_batches": 1}
    want["gap_shift"] = want["gap"] - expected(module, known)["gap"]
    want["flagged"] = ConformalTest().calibrate(logits).flag(logits_of(module, near)).double().mean().item()
    assert chosen(found, "val/boc/near/") == pytest.approx(want)
    assert chosen(found, "val/boc/far/") == {"skipped_batches": 3}
    assert run[1].count("BoCCallback skips a batch of val, loader 0") == 1
    assert run[1].count("skips val, loader 2 'far': ValueError: expected logits or log-probabilities") == 1


def test_bare_callbacks(run):
    want = reference(perceptron()(X), Y)
    for number in range(len(SHARED_STYLES)):
        found, _ = logged(run[0], f"style{number}")
        assert_values(found, "val/boc/", want)
    for rank in (0, 1):  # both raise, so that none waits for the other
        assert "returned nothing\nseen: no loss" in (run[0] / f"error-{rank}.txt").read_text()


def test_training(run):
    found, _ = logged(run[0], "fit")
    assert found["score"] == found["val/boc/nll"]
    assert (run[0] / "best.ckpt").exists()
    assert "train/boc/gap" in found
    assert (found["train/other/samples"], found["train/other/skipped_batches"]) == (3, 1)  # of the last step
    assert (found["val/other/samples"], found["val/other/skipped_batches"]) == (11, 3)
    (page,) = run[0].rglob("boc.html")
    assert f"validation: {found['val/boc/nll']:.3f} in epoch 1" in page.read_text(encoding="utf-8")  # of both processes


def test_predictions_are_those_of_one_process(run, module):
    files = sorted((run[0] / "predictions").iterdir())
    assert [file.name for file in files] == ["predictions-rank0.parquet", "predictions-rank1.parquet"]
    tables = [parquet.read_table(file) for file in files]
    assert [len(table) for table in tables] == [27, 26]
    found = {
        name: torch.cat([torch.tensor(table[name].to_numpy()) for table in tables]) for name in tables[0].column_names
    }
    order = found["index"].argsort()
    target = KNOWN.tensors[1]
    want = {"index": torch.arange(53), "target": target, **rows_of(logits_of(module, KNOWN), target)}
    torch.testing.assert_close({name: column[order] for name, column in found.items()}, want, rtol=1e-5, atol=1e-7)
