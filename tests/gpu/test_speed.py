"""The probe reads logits once, and softmax reads and writes them: printed, because good GPUs differ by 3."""

from itertools import cycle

import pytest
import torch

from benchmarks.gpu import CACHES, DTYPES, ROUNDS, SHAPES, time_call
from tests.gpu.batches import make_logits
from torch_boc.functional import bag_of_coins

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("rows", "classes"), SHAPES)
def test_the_probe_beside_softmax(device, rows, classes, dtype, request):
    """The best of several rounds, in which both take turns."""
    logits = make_logits(rows, classes, dtype=dtype, device=device)
    batches = cycle([logits, *(logits.clone() for _ in range(int(CACHES / logits.nbytes)))])
    runs = (lambda: bag_of_coins(next(batches)), lambda: next(batches).softmax(-1))
    rounds = [[time_call(run)[0] for run in runs] for _ in range(ROUNDS + 1)][1:]  # the first compiles
    probe, softmax = map(min, zip(*rounds, strict=True))
    request.config.get_terminal_writer().line(
        f"\n{torch.cuda.get_device_name(device)}, {rows} x {classes} {dtype}: probe {1e6 * probe:.1f} us, "
        f"softmax {1e6 * softmax:.1f} us; {logits.nbytes / probe / 1e9:,.0f} GB/s"
    )
    assert probe < 10 * softmax  # by a kernel, not by torch's operations one after the other
