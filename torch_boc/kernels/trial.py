"""A trial of the kernels on the user's own device, before "auto" relies on them."""

import itertools
import logging
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from ..core import rows as plain_rows
from ..core.coins import Coins, coins_by_formula
from ..core.rows import Rows, sums_by_blocks
from ..core.spread import every_row
from ..core.standing import standing as standing_by_torch
from ..core.tails import expected_wins, log_tail_and_slope
from .coins import coins
from .rows import row_sums
from .standing import standing
from .tails import log_p_value
from .triton.launch import is_capturing, on_triton
from .triton.launch_numbers import tally

# The kernels may differ from torch's operations in the order of summation only.
LIMIT = 1e-5
# The rows are short and long, in float32 and in bfloat16, with large and with small logits.
CASES = tuple(itertools.product(((5, torch.float32), (1000, torch.bfloat16), (20_000, torch.float32)), (9.0, 0.01)))
# On a GPU, two long rows are split over several programs, and so many times two are not: both ways are tried.
MANY = 64
TRIALS, ALPHA, BINS = 100, 0.05, 15
OUT_OF_MEMORY = "there was not enough memory to try them"

_results: dict[int, bool] = {}
_lock = threading.Lock()
_log = logging.getLogger(__name__)


def is_trusted(device: torch.device) -> bool:
    """Whether the kernels passed their trial on this GPU; no other GPU is touched. The trial runs once in a process.

    If there is no GPU, the tensors are fake and nothing runs on them. While a CUDA graph is captured, no trial can run:
    if there was none before, torch's operations are captured. After a trial that ran out of memory, the next call tries
    again.
    """
    if device.type == "cuda" and (result := _results.get(-1 if device.index is None else device.index)) is not None:
        return result
    if device.type != "cuda" or not torch.cuda.is_available():
        return True
    index = torch.cuda.current_device() if device.index is None else device.index
    with _lock:
        if index not in _results:
            if is_capturing(torch.device("cuda", index)) or (reason := problem(f"cuda:{index}")) == OUT_OF_MEMORY:
                return False  # only this time: the next call tries again
            if reason:
                warnings.warn(
                    f"torch_boc computes by torch's own operations, not by its kernels: {reason}", stacklevel=2
                )
            _results[index] = not reason
        return _results[index]


def problem(device: str) -> str:
    """What is wrong with the kernels of this device, found on a small batch; an empty text if nothing is wrong.

    It reads values back from the device. Every exception is a problem, for example that the GPU cannot run the code.
    """
    if device != "cpu":
        _log.info("trying the kernels on %s: at first use Triton compiles them in some seconds, and keeps them", device)
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
        if device == "cpu":
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
    """The largest error of coins, p-value, gradient, standing and tally, relative to torch's operations."""
    errors = []
    for (classes, dtype), scale in CASES:
        wave = torch.linspace(-6.0, 6.0, 2 * classes, device=device, dtype=torch.float32).sin() * scale
        logits = wave.unflatten(0, (2, classes)).to(dtype)
        expected, numbers = _by_torch(logits)
        found = _by_kernels(logits)
        errors.append(_relative_error(found, numbers))
        errors.append(_gradient_error(logits))
        first = torch.zeros_like(expected.prediction)
        errors.append(_relative_error(standing(logits, first)[0], standing_by_torch(logits, first)[0]))
        if on_triton(logits):
            errors.append(_relative_error(_by_kernels(logits.repeat(MANY, 1))[:, :2], numbers))
            errors.append(_relative_error(*_tallies(logits, expected, found[-1])))
    return torch.stack(errors).max().item()  # NaN if any error is NaN


def _relative_error(actual: Tensor, expected: Tensor) -> Tensor:
    return ((actual - expected) / expected).abs().max().float().cpu()


def _by_kernels(logits: Tensor) -> Tensor:
    _, _, odds, *rest = row_sums(logits, False)
    loss, concentration, _ = coins(odds, *rest, logits.shape[-1])
    return torch.stack([odds.double(), loss.double(), concentration.double(), log_p_value(loss, TRIALS, odds)[0]])


def _by_torch(logits: Tensor) -> tuple[Coins, Tensor]:
    rows = Rows(*sums_by_blocks(logits, False))
    mass, mass_squares = every_row(logits, rows.odds.unsqueeze(-1), rows.squares.unsqueeze(-1))
    found = coins_by_formula(rows._replace(mass=mass, mass_squares=mass_squares), logits.shape[-1])
    log_p, _ = log_tail_and_slope(expected_wins(found.loss, TRIALS), TRIALS, found.odds.double(), slope=False)
    return found, torch.stack([found.odds.double(), found.loss.double(), found.concentration.double(), log_p])


def _gradient_error(logits: Tensor) -> Tensor:
    """The largest error of the gradient of the odds, less rounding, relative to the largest gradient in the row."""
    grads = []
    for sums in (lambda x: row_sums(x, False)[2], lambda x: plain_rows.row_sums(x).odds):
        leaf = logits.detach().requires_grad_()
        grads.append(torch.autograd.grad(sums(leaf).sum(), leaf)[0].double())
    largest = grads[1].abs().amax(-1, keepdim=True)
    error = (grads[0] - grads[1]).abs() / largest - torch.finfo(logits.dtype).eps
    return error.clamp_min(0.0).max().float().cpu()


def _tallies(logits: Tensor, expected: Coins, log_p: Tensor) -> tuple[Tensor, Tensor]:
    """Sums, counts and bins of the tally, by the kernels and from the coins by torch's operations.

    The p-values are those of the kernels: a rounding error of the odds, times the trials, is an error of the p-value.
    """
    counts, sums, histogram, bin_counts, bin_sums = (
        torch.zeros(shape, dtype=dtype, device=logits.device)
        for shape, dtype in (
            ((6,), torch.int64), ((13,), torch.float64), ((601,), torch.int64),
            ((5, BINS), torch.int64), ((4, BINS), torch.float64),
        )
    )  # fmt: skip
    tally(logits, expected.prediction, None, TRIALS, ALPHA, (counts, sums, histogram, bin_counts, bin_sums))
    whole = [counts[0], counts[4], histogram.sum(), bin_counts[0].sum(), bin_counts[4].sum()]
    some = [sums[0], sums[1], sums[2], sums[6], sums[7], bin_sums[0].sum(), bin_sums[1].sum()]
    wide = Coins(expected.prediction, *(x.double() for x in expected[1:]))
    means = [wide.confidence, wide.dominance, wide.gap, wide.concentration, log_p.exp(), wide.confidence, wide.gap]
    rows = torch.full((), len(logits), dtype=torch.float64, device=logits.device)
    return torch.stack([*(x.double() for x in whole), *some]), torch.stack([rows] * 5 + [x.sum() for x in means])
