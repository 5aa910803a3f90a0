"""The checks of the kernels on a CUDA device, and their speed beside softmax. Run with `pytest -m gpu`."""

from itertools import cycle

import pytest
import torch

from tests.kernels.cases import INTERPRETED, make_logits
from tests.kernels.test_kernels import CHECKS, run_checks
from tests.kernels.timing import best_times, gpu_seconds, report
from torch_boc.kernels import row_sums

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


@pytest.mark.parametrize("name", CHECKS)
def test_on_the_gpu(name):
    run_checks(name, TRITON_INTERPRET="0")


@pytest.mark.skipif(INTERPRETED, reason="what is interpreted is slow")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("rows", "classes"), [(16_384, 1_000), (512, 50_257)])
def test_the_sums_take_no_longer_than_softmax(rows, classes, dtype, request):
    logits = make_logits(rows, classes, dtype)
    batches = cycle([logits, *(logits.clone() for _ in range(5))])  # more than the cache holds
    contestants = {"sums": lambda: row_sums(next(batches), False), "softmax": lambda: next(batches).softmax(-1)}
    times = best_times(contestants, gpu_seconds)
    request.config.get_terminal_writer().line("\n" + report(torch.cuda.get_device_name(), logits, times))
    assert times["sums"] <= times["softmax"]
