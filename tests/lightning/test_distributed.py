"""Two processes with uneven shares log and write what one process does."""

import os
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as parquet
import pytest
import torch
from torch.utils.data import TensorDataset

from tests.lightning.cases import LIBRARIES, QUIET, chosen, classifier, expected, logits_of, perceptron
from tests.lightning.two_processes import FAR, KNOWN, MARK, NEAR, SHARES
from torch_boc import BoCSeparation, ConformalTest
from torch_boc.functional.columns import sample_columns

pytestmark = QUIET
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """The folder that the two processes left, and what they said of each library."""
    folder = tmp_path_factory.mktemp("libraries")
    environment = os.environ | {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "tests.lightning.two_processes", str(folder)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=170, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    said, name = dict.fromkeys(LIBRARIES, ""), next(iter(LIBRARIES))
    for line in done.stderr.splitlines(keepends=True):
        name = line.strip().removeprefix(MARK) if line.startswith(MARK) else name
        said[name] += line
    return folder, said


@pytest.fixture(params=LIBRARIES)
def run(request, both):
    """The folder that the two processes left for one library, and what they said."""
    folder, said = both
    return folder / request.param, said[request.param]


@pytest.fixture
def module():
    return classifier(LIBRARIES["lightning"], perceptron())


def separation(module, data, thresholds):
    metric = BoCSeparation(("msp", "energy", "gap"), thresholds)
    metric.update(logits_of(module, KNOWN), False)
    metric.update(logits_of(module, data), True)
    found = {key: value.item() for key, value in metric.compute().items()}
    return {key: value for key, value in found.items() if not key.endswith("_error") or value > 0.001}


def test_validation_is_that_of_one_process(run, module):
    folder, said = run
    first, second = (torch.load(folder / f"validate-{rank}.pt") for rank in (0, 1))
    assert first.keys() == second.keys()
    assert all(torch.equal(first[key], second[key]) for key in first)
    gap = expected(module, KNOWN)["gap"]
    want = {key: expected(module, KNOWN)[key] for key in ("samples", "gap", "accuracy")}
    assert chosen(first, "val/boc/") == pytest.approx(want)
    for name, data in (("near", NEAR), ("far", FAR)):
        other = expected(module, data)
        want = {"gap": other["gap"], "gap_shift": other["gap"] - gap, **separation(module, data, 2**12)}
        assert chosen(first, f"val/binned/{name}/") == pytest.approx(want)
        want = {key: want[key] for key in ("gap", "gap_shift")}
        want |= {"samples": len(data), **separation(module, data, None)}
        assert chosen(first, f"val/boc/{name}/") == pytest.approx(want)
    assert "sync_dist" not in said
    assert "compute" not in said


@pytest.mark.filterwarnings("ignore:nothing can be flagged")
def test_the_tests_are_those_of_one_process(run, module):
    """The counts bit for bit; in which half a sample is depends on its place in the share of its process."""
    folder, _ = run
    logged = torch.load(folder / "validate-0.pt")
    first, second = (torch.load(folder / f"tests-{rank}.pt") for rank in (0, 1))
    known = logits_of(module, KNOWN)
    parts = [known[places.start : places.stop] for places in (SHARES[0][0], SHARES[1][0])]
    even, odd = (torch.cat([part[start::2] for part in parts]) for start in (0, 1))
    kinds = {"tested": ({"score": "msp"}, 0.1), "grouped": ({"groups": "prediction"}, 0.3)}
    for (prefix, (options, alpha)), mine, other in zip(kinds.items(), first, second, strict=True):
        whole = ConformalTest(**options).calibrate(known)
        assert mine.keys() == other.keys() == whole.state_dict().keys()
        for name, value in whole.state_dict().items():
            assert torch.equal(mine[name], value)
            assert torch.equal(other[name], value)
        level = ConformalTest(**options).calibrate(even).flag(odd, alpha).double().mean().item()
        assert logged[f"val/{prefix}/flagged"] == pytest.approx(level)
        for name, data in (("near", NEAR), ("far", FAR)):
            power = whole.flag(logits_of(module, data), alpha).double().mean().item()
            assert logged[f"val/{prefix}/{name}/flagged"] == pytest.approx(power)


def test_a_process_that_cannot_read_a_batch_keeps_no_other_waiting(run, module):
    """The second process reads nothing of loader 0, half of loader 1, and finds out late that loader 2 is wrong."""
    folder, said = run
    first, second = (torch.load(folder / f"failures-{rank}.pt") for rank in (0, 1))
    assert first == second
    known, near = (
        TensorDataset(*(x[places] for x in data.tensors))
        for data, places in ((KNOWN, list(range(40))), (NEAR, [0, 1, 2, *range(11, 21)]))
    )
    want = {key: expected(module, known)[key] for key in ("samples", "gap", "nll")}
    logits = logits_of(module, known)
    want["flagged"] = ConformalTest().calibrate(logits[::2]).flag(logits[1::2]).double().mean().item()
    assert chosen(first, "val/boc/") == pytest.approx(want | {"skipped_batches": 2})
    found = chosen(first, "val/boc/near/")
    want = {key: expected(module, near)[key] for key in ("samples", "gap")}
    assert {key: found[key] for key in want} == pytest.approx(want)
    assert found["skipped_batches"] == 1
    assert found["gap_shift"] == pytest.approx(want["gap"] - expected(module, known)["gap"])
    metric = BoCSeparation(("msp",))
    metric.update(logits_of(module, known), False)
    metric.update(logits_of(module, near), True)
    assert found["msp_auroc"] == pytest.approx(metric.compute()["msp_auroc"].item())
    assert chosen(first, "val/boc/far/") == {"skipped_batches": 3}
    assert said.count("process 1: BoCCallback goes on without a batch of val, loader 0") == 1
    assert said.count("without val, loader 2 'far': ValueError: expected logits or log-probabilities") == 1


def test_training_goes_on_while_processes_cannot_read_batches(run):
    first, second = (torch.load(run[0] / f"failing-fit-{rank}.pt") for rank in (0, 1))
    assert (first["train/boc/samples"], first["train/boc/skipped_batches"]) == (3, 1)  # of the last step
    assert first["val/boc/skipped_batches"] == 3
    assert first["val/boc/samples"] == 11
    assert {key: value for key, value in first.items() if "val/" in key} == {
        key: value for key, value in second.items() if "val/" in key
    }


def test_figures_are_drawn_once(run):
    tags = ("coherence", "near-coherence", "near-separation", "far-coherence", "far-separation")
    assert {path.name for path in run[0].rglob("version_0/*.png")} == {f"val-boc-{tag}-step000000.png" for tag in tags}


def test_predictions_are_those_of_one_process(run, module):
    files = sorted((run[0] / "predictions").iterdir())
    assert [file.name for file in files] == ["predictions-rank0.parquet", "predictions-rank1.parquet"]
    tables = [parquet.read_table(file) for file in files]
    assert [len(table) for table in tables] == [27, 26]
    found = {
        name: torch.cat([torch.tensor(table[name].to_numpy()) for table in tables]) for name in tables[0].column_names
    }
    order = found["index"].argsort()
    want = {"index": torch.arange(53), "target": KNOWN.tensors[1], **sample_columns(logits_of(module, KNOWN))}
    torch.testing.assert_close({name: column[order] for name, column in found.items()}, want, rtol=1e-5, atol=1e-12)


def test_training_with_a_monitor(run):
    first, second = (torch.load(run[0] / f"fit-{rank}.pt") for rank in (0, 1))
    assert {"val/boc/gap", "train/boc/gap"} <= first.keys()
    assert first == second
    assert first["score"] == first["val/boc/nll"]
    assert (run[0] / "best.ckpt").exists()
