"""A trial of the kernels on the user's own device, before "auto" relies on them."""

import itertools
import threading
import warnings

import torch
from torch import Tensor

# As the kernels may differ from torch's operations by the order of sums, and by nothing else.
LIMIT = 1e-5

_results: dict[int, bool] = {}
_lock = threading.Lock()


def is_trusted() -> bool:
    """Whether the kernels passed their trial on the current GPU, which is held once in the life of a process.

    Tensors of a GPU that is not there are fake, and nothing runs on them. While a graph is captured no trial can be
    held: until there was one, torch's operations are captured.
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
    """Whether the kernels give on a small batch what torch's operations give; a warning says why not.

    Values are read back. A compiler that is missing, a GPU that the code does not suit: whatever it is, torch's
    operations remain.
    """
    try:
        error = _largest_error(device)
    except Exception as fault:
        return _warn(f"they failed: {type(fault).__name__}: {fault}")
    return error <= LIMIT or _warn(f"their results are off by {error:.2g}")


def _largest_error(device: str) -> float:
    """Of odds, loss, concentration and p-value, relative to what torch's operations give."""
    # Without the modes of a caller, who may count or fake what runs; rows that are short and long, sharp and flat.
    with torch.utils._python_dispatch._disable_current_modes(), torch.no_grad():
        errors = []
        for classes, scale in itertools.product((5, 1000, 20_000), (9.0, 0.01)):
            logits = torch.linspace(-6.0, 6.0, 2 * classes, device=device).sin().mul(scale).unflatten(0, (2, classes))
            fused, plain = _by_kernels(logits).cpu(), _by_torch(logits).cpu()
            errors.append(((fused - plain) / plain).abs().max())
        return torch.stack(errors).max().item()  # NaN, if one is


def _by_kernels(logits: Tensor) -> Tensor:
    from .. import kernels

    _, _, odds, squares = kernels.row_sums(logits, False)
    loss, concentration, _ = kernels.coins(odds, squares, *kernels.spread(logits, odds, squares), logits.shape[-1])
    return torch.stack([odds, loss, concentration, kernels.log_p_value(loss, 100, odds)[0].float()])


def _by_torch(logits: Tensor) -> Tensor:
    from ..functional.coins import coins_by_formula
    from ..functional.rows import Rows, sums_by_blocks
    from ..functional.spread import every_row
    from ..functional.tails import log_tail_and_slope
    from ..functional.trials import expected_wins

    rows = Rows(*sums_by_blocks(logits, False))
    mass, mass_squares = every_row(logits, rows.odds.unsqueeze(-1), rows.squares.unsqueeze(-1))
    coins = coins_by_formula(rows._replace(mass=mass, mass_squares=mass_squares), logits.shape[-1])
    log_p, _ = log_tail_and_slope(expected_wins(coins, 100), 100, coins.odds.double(), slope=False)
    return torch.stack([coins.odds, coins.loss, coins.concentration, log_p.float()])


def _warn(reason: str) -> bool:
    warnings.warn(f"torch_boc computes by torch's own operations, not by its kernels: {reason}", stacklevel=2)
    return False
