"""Errors for wrong arguments: they say what was expected, what was given, and the remedy."""

import operator

import torch
from torch import Tensor
from torch.nn import Parameter

_PLAIN = (Tensor, Parameter)


def check_logits(logits: Tensor, dim: int) -> int:
    """Return `dim` as a non-negative axis of `logits`, or raise if these logits cannot be probed."""
    if not isinstance(logits, Tensor):
        raise TypeError(f"expected logits as a torch.Tensor, got {type(logits).__name__}; use torch.as_tensor")
    if type(logits) not in _PLAIN and type(logits).__name__ == "DTensor":
        raise TypeError(f"expected logits as a plain tensor, got a DTensor ({_described(logits)}); use full_tensor()")
    axes = logits.ndim
    if not logits.is_floating_point():
        raise TypeError(f"expected floating-point logits, got {_described(logits)}; convert with logits.float()")
    if axes == 0:
        raise ValueError(f"expected logits with a class axis, got a scalar ({_described(logits)})")
    if not -axes <= dim < axes:
        raise ValueError(f"expected dim in [{-axes}, {axes}), got {dim} ({_described(logits)})")
    if logits.shape[dim] < 2:
        raise ValueError(
            f"expected at least 2 classes on dim={dim}, got {logits.shape[dim]} ({_described(logits)}); "
            "a single sigmoid logit x is the pair of logits (0, x)"
        )
    return dim % axes


def classes_last(logits: Tensor, dim: int) -> Tensor:
    """Return the logits with the class axis `dim` moved to the end, or raise if they cannot be probed."""
    place = check_logits(logits, dim)
    return logits if place == logits.ndim - 1 else logits.movedim(place, -1)


def bare(x: Tensor) -> Tensor:
    """`x` without a gradient."""
    return x.detach() if x.requires_grad else x


def _described(x: Tensor) -> str:
    return f"shape {tuple(x.shape)}, dtype {x.dtype}"


# The largest number of trials k. The tails are exact up to it, and their table of k numbers takes 8 megabytes.
MOST_TRIALS = 10**6


def check_trials(trials: int) -> int:
    """Return `trials` as a Python int from 1 to `MOST_TRIALS`, or raise."""
    if type(trials) is int and 1 <= trials <= MOST_TRIALS:
        return trials
    if isinstance(trials, bool):
        raise TypeError("expected trials as a positive integer, got a bool")
    try:
        count = operator.index(trials)
    except TypeError:
        raise TypeError(f"expected trials as a positive integer, got {type(trials).__name__} {trials!r}") from None
    if count < 1:
        raise ValueError(f"expected trials as a positive integer, got {count}")
    if count > MOST_TRIALS:
        raise ValueError(f"expected at most {MOST_TRIALS:,} trials, got {count:,}")
    return count


def check_classes(num_classes: int) -> int:
    """Return `num_classes` unchanged, or raise if it is below 2."""
    if num_classes < 2:
        raise ValueError(f"expected num_classes of at least 2, got {num_classes}")
    return num_classes


def check_share(name: str, share: float) -> float:
    """Return `share` if it is in (0, 1), or raise; NaN raises as well."""
    if not 0 < share < 1:
        raise ValueError(f"expected {name} in (0, 1), got {share}")
    return share


def check_target(target: Tensor, shape: torch.Size, name: str = "target") -> Tensor:
    """Return `target` in int64 if it has one class index for each row of logits, or raise; errors call it `name`."""
    if not isinstance(target, Tensor):
        raise TypeError(f"expected {name} as a torch.Tensor, got {type(target).__name__}; use torch.as_tensor")
    if target.dtype != torch.int64 and (
        target.is_floating_point() or target.is_complex() or target.dtype == torch.bool
    ):
        got = _described(target)
        raise TypeError(f"expected {name} as integer class indices, got {got}; convert with {name}.long()")
    if target.shape != shape:
        got = _described(target)
        raise ValueError(f"expected {name} of shape {tuple(shape)}, the logits' without the class axis, got {got}")
    return target if target.dtype == torch.int64 else as_indices(target)


def as_indices(target: Tensor) -> Tensor:
    """Return `target` in int64 if its dtype is an integer dtype; return other targets unchanged.

    In uint8, the number -100 would be equal to 156. A uint64 number that is too large for int64 becomes the largest
    int64, which is no class and no `ignore_index`.
    """
    if target.dtype == torch.int64:
        return target
    if target.is_floating_point() or target.is_complex() or target.dtype == torch.bool:
        return target
    wide = target.long()
    return torch.where(wide < 0, torch.iinfo(torch.int64).max, wide) if target.dtype == torch.uint64 else wide


def are_probabilities(logits: Tensor, dim: int, *, slack: float | None = None) -> Tensor:
    """Whether every row is a probability vector, as a scalar tensor. It is False if there are no rows.

    Args:
        logits: a tensor of any floating dtype.
        dim: the class axis.
        slack: how far the sum of a row may be from 1; by default 1e-4 for float32 and float64, and 2e-2 for others.
    """
    if logits.numel() == 0:
        return torch.zeros((), dtype=torch.bool, device=logits.device)
    total = logits.sum(dim, dtype=torch.float32)
    if slack is None:
        slack = 1e-4 if logits.dtype in (torch.float32, torch.float64) else 2e-2
    return (logits.amin() >= 0) & ((total - 1).abs() <= slack).all()


def probabilities_message(rows: str, remedy: str) -> str:
    """The error message for probabilities in place of logits; `rows` says which rows were looked at."""
    return f"expected logits or log-probabilities, got probabilities ({rows} is non-negative and sums to 1); {remedy}"
