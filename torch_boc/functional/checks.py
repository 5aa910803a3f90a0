"""Errors at the public boundary: what was expected, what came, and the remedy."""

import operator

from torch import Tensor


def check_logits(logits: Tensor, dim: int) -> int:
    """Return `dim` as a non-negative axis of `logits`, or raise for what cannot be probed."""
    if not isinstance(logits, Tensor):
        raise TypeError(f"expected logits as a torch.Tensor, got {type(logits).__name__}; use torch.as_tensor")
    got = f"shape {tuple(logits.shape)}, dtype {logits.dtype}"
    if not logits.is_floating_point():
        raise TypeError(f"expected floating-point logits, got {got}; convert with logits.float()")
    if logits.ndim == 0:
        raise ValueError(f"expected logits with a class axis, got a scalar ({got})")
    if not -logits.ndim <= dim < logits.ndim:
        raise ValueError(f"expected dim in [{-logits.ndim}, {logits.ndim}), got {dim} ({got})")
    if logits.shape[dim] < 2:
        raise ValueError(
            f"expected at least 2 classes on dim={dim}, got {logits.shape[dim]} ({got}); "
            "a single sigmoid logit x is the pair of logits (0, x)"
        )
    return dim % logits.ndim


def check_trials(trials: int) -> int:
    """Return `trials` as a positive Python int, or raise."""
    if isinstance(trials, bool):
        raise TypeError("expected trials as a positive integer, got a bool")
    try:
        count = operator.index(trials)
    except TypeError:
        raise TypeError(f"expected trials as a positive integer, got {type(trials).__name__} {trials!r}") from None
    if count < 1:
        raise ValueError(f"expected trials as a positive integer, got {count}")
    return count


def check_classes(num_classes: int) -> int:
    """Return `num_classes` as given, or raise where it is below 2."""
    if num_classes < 2:
        raise ValueError(f"expected num_classes of at least 2, got {num_classes}")
    return num_classes
