"""A trial of the kernels on the user's own device, before "auto" relies on them."""

import warnings

import torch

# As the kernels may differ from torch's operations by the order of sums, and by nothing else.
LIMIT = 1e-5


def passes(device: str, path: str = "triton") -> bool:
    """Whether the kernels give on a small batch what torch's operations give; a warning says why not.

    Values are read back, once in the life of a process. A compiler that is missing, a GPU that the code does not suit:
    whatever it is, torch's operations remain.
    """
    try:
        error = _largest_error(device, path)
    except Exception as fault:
        return _warn(f"they failed: {type(fault).__name__}: {fault}")
    return error <= LIMIT or _warn(f"their results are off by {error:.2g}")


def _largest_error(device: str, fused: str) -> float:
    """Of odds, loss and p-value, relative to what torch's operations give."""
    from ..functional import bag_of_coins, log_p_value
    from .choice import use

    # Rows that are long and short; without the modes of a caller, who may count or fake what runs.
    with torch.utils._python_dispatch._disable_current_modes(), torch.no_grad():
        errors = []
        for classes in (5, 1000, 20_000):
            logits = torch.linspace(-6.0, 6.0, 2 * classes, device=device).sin().mul(9.0).unflatten(0, (2, classes))
            results = []
            for path in (fused, "torch"):
                with use(path):
                    coins = bag_of_coins(logits)
                    results.append(torch.stack([coins.odds, coins.loss, log_p_value(coins).float()]).cpu())
            errors.append(((results[0] - results[1]) / results[1]).abs().max())
        return torch.stack(errors).max().item()  # NaN, if one is


def _warn(reason: str) -> bool:
    warnings.warn(f"torch_boc computes by torch's own operations, not by its kernels: {reason}", stacklevel=2)
    return False
