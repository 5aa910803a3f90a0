"""The probe reads logits once, and softmax reads and writes them: printed, because good GPUs differ by 3."""

from itertools import cycle

import pytest
import torch

from tests.gpu.batches import make_logits
from torch_boc.functional import bag_of_coins

pytestmark = pytest.mark.gpu
CALLS, ROUNDS = 10, 10
CACHES = 400e6  # bytes; logits of as many do not stay in the cache of a GPU

SHAPES = [
    (1_000_000, 10, torch.float32),
    (16_384, 1_000, torch.float32),
    (16_384, 1_000, torch.bfloat16),
    (512, 50_257, torch.bfloat16),
    (256, 128_256, torch.bfloat16),
]


@pytest.mark.parametrize(("rows", "classes", "dtype"), SHAPES)
def test_the_probe_beside_softmax(device, rows, classes, dtype, request):
    """The best of several rounds, in which both take turns."""
    logits = make_logits(rows, classes, dtype=dtype, device=device)
    batches = cycle([logits, *(logits.clone() for _ in range(int(CACHES / logits.nbytes)))])
    runs = {"probe": lambda: bag_of_coins(next(batches)), "softmax": lambda: next(batches).softmax(-1)}
    rounds = [{name: seconds(run) for name, run in runs.items()} for _ in range(ROUNDS + 1)][1:]  # the first compiles
    probe, softmax = (min(times[name] for times in rounds) for name in runs)
    request.config.get_terminal_writer().line(
        f"\n{torch.cuda.get_device_name(device)}, {rows} x {classes} {dtype}: probe {1e6 * probe:.1f} us, "
        f"softmax {1e6 * softmax:.1f} us; {logits.nbytes / probe / 1e9:,.0f} GB/s"
    )
    assert probe < 10 * softmax  # by a kernel, not by torch's operations one after the other


def seconds(run):
    """Seconds of one call on the GPU, which sleeps until all calls are queued: the host is not timed."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda._sleep(20_000_000)  # cycles, about 10 ms
    start.record()
    for _ in range(CALLS):
        run()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / 1e3 / CALLS
