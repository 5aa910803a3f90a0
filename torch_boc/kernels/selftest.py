"""The self-test of the kernels on the user's own device, before "auto" relies on them."""

import itertools
import logging
import math
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from ..core.coins import Coins
from ..core.martingale import count_valid, empty_stream, place_bets
from ..core.row_numbers import columns as columns_by_torch
from ..core.row_sums import row_sums as sums_by_torch
from ..core.schema import COINS, NOT_BY_TRITON, OF_A_CLASS
from ..core.tails import expected_wins
from ..core.tails import log_tails as tails_by_torch
from ..core.tally import add_samples, empty_tally
from .operators import columns, log_tails, martingale, row_sums, tally
from .triton.launch import is_capturing

# The kernels may differ from torch's operations in the order of summation only.
LIMIT = 1e-5
# The rows are short and long, in float32 and in bfloat16, with large and with small logits.
CASES = tuple(itertools.product(((5, torch.float32), (1000, torch.bfloat16), (20_000, torch.float32)), (9.0, 0.01)))
NAMES = (*COINS, "entropy_sum", "margin", "log_odds", *sorted(OF_A_CLASS))
TRIALS, ALPHA, BINS = 100, 0.05, 15
OUT_OF_MEMORY = "there was not enough memory to test them"

_results: dict[torch.device, bool] = {}
_lock = threading.Lock()
_log = logging.getLogger(__name__)


def is_trusted(device: torch.device) -> bool:
    """Whether the kernels passed the self-test on this device; no other is touched. It runs once in a process.

    If there is no such device, the tensors are fake and nothing runs on them. While a CUDA graph is captured, the test
    cannot run: without an earlier result, torch's operations are captured. After a test that ran out of memory, the
    next call tests again.
    """
    if (result := _results.get(device)) is not None:
        return result
    if device.type == "cpu" or not torch.get_device_module(device).is_available():
        return True
    if device.index is None:
        device = torch.device(device.type, torch.get_device_module(device).current_device())  # type: ignore[unreachable]
    with _lock:
        if device not in _results:
            if is_capturing(device) or (reason := self_test(str(device))) == OUT_OF_MEMORY:
                return False  # only this time: the next call tests again
            if reason:
                warnings.warn(f"torch_boc uses torch's own operations instead of its kernels: {reason}", stacklevel=2)
            _results[device] = not reason
        return _results[device]


def self_test(device: str) -> str:
    """What is wrong with the kernels of this device, found on a small batch; an empty text if nothing is wrong.

    It reads values back from the device. Every exception is a problem, for example that the GPU cannot run the code.
    """
    if device != "cpu":
        _log.info("testing the kernels on %s: at first use Triton compiles and caches them in some seconds", device)
    try:
        with _undisturbed(device):
            error = _largest_error(device)
    except Exception as fault:
        if isinstance(fault, torch.OutOfMemoryError) or "out of memory" in str(fault):
            return OUT_OF_MEMORY
        return f"they failed: {type(fault).__name__}: {fault}"
    return "" if error <= LIMIT else f"their results are off by {error:.2g}"


@contextmanager
def _undisturbed(device: str) -> Iterator[None]:
    """Switch off what the caller has set up: modes that count or replace operations, and errors if the host waits."""
    with torch.utils._python_dispatch._disable_current_modes(), torch.inference_mode(False), torch.enable_grad():
        if not device.startswith("cuda"):
            yield
            return
        before = torch.cuda.get_sync_debug_mode()
        try:
            torch.cuda.set_sync_debug_mode("default")
            with torch.cuda.device(device):
                yield
        finally:
            torch.cuda.set_sync_debug_mode(before)


def _largest_error(device: str) -> float:
    """The largest error of columns, tails, gradient, tally and bets, relative to torch's operations."""
    errors = _errors_of_bets(device)
    for (classes, dtype), scale in CASES:
        wave = torch.linspace(-6.0, 6.0, 2 * classes, device=device, dtype=torch.float32).sin() * scale
        logits = wave.unflatten(0, (2, classes)).to(dtype)
        index = torch.tensor([0, classes - 1], device=device)
        names = NAMES if device != "cpu" else (*NAMES, *sorted(NOT_BY_TRITON))
        expected = columns_by_torch(logits, names, index)
        errors += [
            _relative_error(x, expected[name])
            for name, x in zip(names, columns(logits, names, index, False), strict=True)
        ]
        coins = Coins(*(expected[name] for name in COINS))
        wins = expected_wins(coins.loss, TRIALS)
        tails = tails_by_torch(wins, TRIALS, coins.odds)
        errors += [_relative_error(x, y) for x, y in zip(log_tails(wins, TRIALS, coins.odds), tails, strict=True)]
        errors.append(_gradient_error(logits))
        labels = index, expected["distance"], None
        for trials, log_p in ((TRIALS, tails[0]), (0, None)):
            actual, total = (empty_tally(BINS, like=logits) for _ in range(2))
            tally(list(coins[:5]), labels, classes, trials, ALPHA, *actual)
            add_samples(total, coins, log_p, labels, classes, ALPHA)
            errors += [_relative_error(x, y) for x, y in zip(actual, total, strict=True)]
    return torch.stack(errors).max().item()  # NaN if any error is NaN


def _errors_of_bets(device: str) -> list[Tensor]:
    """Those of a stream whose first p-values are so low that there is an alarm, with a NaN."""
    p = torch.linspace(0.0, 1.0, 100, device=device, dtype=torch.float64).square()
    p[7] = math.nan
    number, results = count_valid(p == p, torch.zeros((), device=device, dtype=torch.int64)), []
    for place in (martingale, place_bets):
        state = [x.to(device) for x in empty_stream()]
        results.append([place(p, number, [], 3.0, False, *state), *state])
    return [_relative_error(x, y) for x, y in zip(*results, strict=True)]


def _relative_error(actual: Tensor, expected: Tensor) -> Tensor:
    actual, expected = actual.double(), expected.double()
    return torch.where(actual == expected, 0.0, (actual - expected) / expected).abs().max().float().cpu()


def _gradient_error(logits: Tensor) -> Tensor:
    """The error of the gradient of odds and mass, less rounding, relative to the largest gradient in the row."""
    grads = []
    for sums in (lambda x: row_sums(x, False), sums_by_torch):
        leaf = logits.detach().requires_grad_()
        outputs = sums(leaf)
        grads.append(torch.autograd.grad((2 * outputs[2] + outputs[4]).sum(), leaf)[0].double())
    largest = grads[1].abs().amax(-1, keepdim=True)
    error = (grads[0] - grads[1]).abs() / largest - torch.finfo(logits.dtype).eps
    return error.clamp_min(0.0).max().float().cpu()
