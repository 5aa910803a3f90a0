"""A trial of the kernels on the user's own device, before "auto" relies on them."""

import itertools
import threading
import warnings

import torch
from torch import Tensor

from ..core.coins import coins_by_formula
from ..core.rows import Rows, sums_by_blocks
from ..core.spread import every_row
from ..core.tails import expected_wins, log_tail_and_slope
from .coins import coins
from .rows import row_sums
from .tails import log_p_value

# The kernels may differ from torch's operations in the order of summation only.
LIMIT = 1e-5

_results: dict[int, bool] = {}
_lock = threading.Lock()


def is_trusted() -> bool:
    """Whether the kernels passed their trial on the current GPU. The trial runs once in each process.

    If there is no GPU, the tensors are fake and nothing runs on them. While a CUDA graph is captured, no trial can run:
    if there was none before, torch's operations are captured.
    """
    if not torch.cuda.is_available():
        return True
    device = torch.cuda.current_device()
    with _lock:
        if device not in _results:
            if torch.cuda.is_current_stream_capturing():
                return False
            _results[device] = passes("cuda")
        return _results[device]


def passes(device: str) -> bool:
    """Whether the kernels give on a small batch what torch's operations give; a warning says why not."""
    if reason := problem(device):
        warnings.warn(f"torch_boc computes by torch's own operations, not by its kernels: {reason}", stacklevel=2)
    return not reason


def problem(device: str) -> str:
    """What is wrong with the kernels of this type of device, found on a small batch; an empty text if nothing is.

    It reads values back from the device. Any error counts, as that of a GPU for which the code does not work.
    """
    try:
        error = _largest_error(device)
    except Exception as fault:
        return f"they failed: {type(fault).__name__}: {fault}"
    return "" if error <= LIMIT else f"their results are off by {error:.2g}"


def _largest_error(device: str) -> float:
    """The largest error of odds, loss, concentration and p-value, relative to the results of torch's operations."""
    # Without the modes of the caller, which may count or replace operations. Rows are short and long, sharp and flat.
    with torch.utils._python_dispatch._disable_current_modes(), torch.no_grad():
        errors = []
        for classes, scale in itertools.product((5, 1000, 20_000), (9.0, 0.01)):
            logits = torch.linspace(-6.0, 6.0, 2 * classes, device=device).sin().mul(scale).unflatten(0, (2, classes))
            fused, plain = _by_kernels(logits).cpu(), _by_torch(logits).cpu()
            errors.append(((fused - plain) / plain).abs().max())
        return torch.stack(errors).max().item()  # NaN if any error is NaN


def _by_kernels(logits: Tensor) -> Tensor:
    _, _, odds, *rest = row_sums(logits, False)
    loss, concentration, _ = coins(odds, *rest, logits.shape[-1])
    return torch.stack([odds, loss, concentration, log_p_value(loss, 100, odds)[0].float()])


def _by_torch(logits: Tensor) -> Tensor:
    rows = Rows(*sums_by_blocks(logits, False))
    mass, mass_squares = every_row(logits, rows.odds.unsqueeze(-1), rows.squares.unsqueeze(-1))
    found = coins_by_formula(rows._replace(mass=mass, mass_squares=mass_squares), logits.shape[-1])
    log_p, _ = log_tail_and_slope(expected_wins(found.loss, 100), 100, found.odds.double(), slope=False)
    return torch.stack([found.odds, found.loss, found.concentration, log_p.float()])
