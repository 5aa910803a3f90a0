"""What the compilers make of tallies, columns and histograms, and how often they are asked, without a GPU."""

import re
import sys

import pytest
import torch

from tests.kernels.offline import OFFLINE, assemble
from tests.kernels.recorded import bind, compile_launch, record
from tests.kernels.test_offline import A100, MI300, over_nvidia
from torch_boc.functional.tallies import empty_tally
from torch_boc.kernels.triton import launch, launch_numbers, launch_standing

pytestmark = OFFLINE
QUANTITIES = ("confidence", "forced_gap", "p_value", "energy", "logit_gap", "entropy", "log_odds")


def zeros(*shape, dtype=torch.int64):
    return torch.zeros(shape, dtype=dtype)


def tally(logits):
    launch_numbers.tally(logits, zeros(len(logits)), -100, 100, 0.05, empty_tally(15))


def tally_without_targets(logits):
    launch_numbers.tally(logits, None, None, 100, 0.05, empty_tally(40))


def tally_evidence(logits):
    numbers = [zeros(len(logits)), *zeros(4, len(logits), dtype=torch.float64)]
    target, counted = zeros(len(logits)), zeros(len(logits), dtype=torch.bool)
    launch_numbers.tally_evidence(numbers, target, numbers[1], counted, 10, 100, 0.05, empty_tally(15))


def gap_tally(logits):
    launch_numbers.gap_tally(logits, None, None, "total", (zeros(1, dtype=torch.float64), zeros(1), zeros(1)))


def gap_by_class(logits):
    states = (zeros(logits.shape[1], dtype=torch.float64), zeros(logits.shape[1]), zeros(1))
    launch_numbers.gap_tally(logits, zeros(len(logits)), -100, "free", states)


def columns(logits):
    launch_numbers.columns(logits, QUANTITIES, 100)


def count_scores(logits):
    flags, names = zeros(len(logits), dtype=torch.bool), ("odds", "logit_gap", "log_p_value")
    launch_numbers.count_scores(logits, flags, names, (-1, 1, 1), 100, zeros(2, 3, 2**18), zeros(1))


CALLS = (tally, tally_without_targets, tally_evidence, gap_tally, gap_by_class, columns, count_scores)
over_calls = pytest.mark.parametrize("call", CALLS)
SLOW = (tally_without_targets, tally_evidence)  # which take as long to compile as the tally, and are much the same


@over_nvidia
@pytest.mark.parametrize("call", [pytest.param(x, marks=pytest.mark.slow) if x in SLOW else x for x in CALLS])
def test_nothing_spills_and_no_float_is_added_in_any_order(call, target, monkeypatch, tmp_path):
    launches = record(monkeypatch)
    call(torch.zeros(300, 10))
    assert len(launches) <= 4
    for found in launches:
        if found.kernel.__name__ in ("short_rows", "spread"):
            continue  # of which test_offline.py knows
        ptx = compile_launch(found, target)["ptx"]
        registers, local = assemble(ptx, tmp_path / "kernel.ptx")
        assert local == 0, f"{local} bytes of local memory with {registers} registers"
        assert registers <= 128  # so that four programs of 128 threads share a multiprocessor
        assert all(".f" not in name for name in re.findall(r"\b(?:atom|red)\.[\w.:]+", ptx))


@pytest.mark.parametrize("call", [tally, count_scores])
def test_counts_are_added_as_whole_numbers(call, monkeypatch):
    """As a check of the test above: these kernels do have atomic operations."""
    launches = record(monkeypatch)
    call(torch.zeros(300, 10))
    found = next(x for x in launches if x.kernel.__name__ in ("tally", "count_scores"))
    names = re.findall(r"\b(?:atom|red)\.[\w.:]+", compile_launch(found, A100)["ptx"])
    assert names
    assert all(name.endswith((".u64", "shared.add.u32")) for name in names), names


def test_on_amd(monkeypatch):
    launches = record(monkeypatch)
    tally(torch.zeros(300, 10))
    code = " ".join(compile_launch(launches[2], MI300)["amdgcn"].split())
    assert ".vgpr_spill_count: 0" in code


@pytest.mark.parametrize("classes", [2, 3])
def test_coins_of_two_classes_compile(classes, monkeypatch, tmp_path):
    launches, module = record(monkeypatch), sys.modules["torch_boc.kernels.coins"]
    monkeypatch.setattr(module, "on_triton", lambda x: True)
    module.coins(*zeros(4, 300, dtype=torch.float64), classes)
    assert assemble(compile_launch(launches[0], A100)["ptx"], tmp_path / "kernel.ptx")[1] == 0


@over_calls
@pytest.mark.parametrize("classes", [10, 1000, 50272])
def test_the_last_batch_compiles_nothing(call, classes, monkeypatch):
    """The number of rows is in no key, whether it is 1, odd, or a multiple of 16."""
    launches, keys = record(monkeypatch), []
    if call is tally_evidence and classes > 10:
        pytest.skip("evidence has no classes")
    for rows in (256, 300, 17, 1):
        launches.clear()
        call(torch.zeros(rows, classes))
        keys.append({bind(found, A100)[2] for found in launches})
    assert keys[1:] == keys[:1] * 3
    launches.clear()
    call(torch.zeros(256, classes, dtype=torch.bfloat16))
    if call is not tally_evidence:
        assert {bind(found, A100)[2] for found in launches} != keys[0]  # a key does tell kernels apart


def test_an_odd_number_of_gradients_compiles_nothing(monkeypatch):
    launches, keys = record(monkeypatch), []
    for rows in (256, 17, 1):
        launches.clear()
        top, mass = torch.zeros(rows), zeros(rows, dtype=torch.float64)
        grads = [top, top, mass, mass, mass, None, None]
        launch.launch_gradient(torch.zeros(rows, 10), [zeros(rows), top, top, mass], grads)
        keys.append({bind(found, A100)[2] for found in launches})
    assert len(keys[0]) == 1
    assert keys[1:] == keys[:1] * 2


@over_nvidia
@pytest.mark.parametrize(("classes", "dtype"), [(10, torch.float32), (128256, torch.bfloat16), (50272, torch.float64)])
def test_standings_do_not_spill(classes, dtype, target, monkeypatch, tmp_path):
    launches = record(monkeypatch)
    launch_standing.standing(torch.zeros(8, classes, dtype=dtype), zeros(8))
    registers, local = assemble(compile_launch(launches[0], target)["ptx"], tmp_path / "kernel.ptx")
    assert local == 0, f"{local} bytes of local memory with {registers} registers"


def test_standings_compile_on_amd_and_the_last_batch_compiles_nothing(monkeypatch):
    launches, keys = record(monkeypatch), []
    for rows in (256, 17, 1):
        launches.clear()
        launch_standing.standing(torch.zeros(rows, 1000), zeros(rows))
        keys.append({bind(found, A100)[2] for found in launches})
    assert keys[1:] == keys[:1] * 2
    assert ".vgpr_spill_count: 0" in " ".join(compile_launch(launches[0], MI300)["amdgcn"].split())
