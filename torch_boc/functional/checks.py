"""Checks of arguments; the errors name what was expected, what was given, and the remedy."""

import operator
from collections.abc import Iterable

import torch
from torch import Tensor

from ..core.dtypes import accumulation_dtype

# So many rows of a batch tell whether its numbers are rounded.
ROUNDED_ROWS = 16


def check_logits(logits: Tensor, dim: int | None, target: Tensor | None = None) -> int:
    """Return the class axis of `logits` as a non-negative number, or raise if these logits cannot be probed.

    With a `dim` of None it is that of `class_axis`.
    """
    if not isinstance(logits, Tensor):
        raise TypeError(f"expected logits as a torch.Tensor, got {type(logits).__name__}; use torch.as_tensor")
    if type(logits).__name__ == "DTensor":
        raise TypeError(f"expected logits as a plain tensor, got a DTensor ({_described(logits)}); use full_tensor()")
    axes = logits.ndim
    if not logits.is_floating_point():
        raise TypeError(f"expected floating-point logits, got {_described(logits)}; convert with logits.float()")
    if axes == 0:
        raise ValueError(f"expected logits with a class axis, got a scalar ({_described(logits)})")
    if dim is None:
        dim = class_axis(logits, target)
    if not -axes <= dim < axes:
        raise ValueError(f"expected dim in [{-axes}, {axes}), got {dim} ({_described(logits)})")
    if logits.shape[dim] < 2:
        raise ValueError(
            f"expected at least 2 classes on dim={dim}, got {logits.shape[dim]} ({_described(logits)}); "
            "a single logit x of a binary classifier is the pair of logits (0, x)"
        )
    return dim % axes


def class_axis(logits: Tensor, target: Tensor | None = None) -> int:
    """The class axis of a batch: the second of (N, C). With more axes, the shape of the target tells it.

    It is 1 as in (N, C, H, W), or -1 as in (N, T, C). If there is no target, or both fit it, it raises.

    >>> class_axis(torch.zeros(2, 7, 3), torch.zeros(2, 7)), class_axis(torch.zeros(2, 7, 3), torch.zeros(2, 3))
    (-1, 1)
    """
    if logits.ndim < 3:
        return logits.ndim - 1
    shape = tuple(logits.shape)
    rest = {1: (*shape[:1], *shape[2:]), -1: shape[:-1]}
    if isinstance(target, Tensor):
        fitting = [axis for axis in rest if rest[axis] == tuple(target.shape)]
        if len(fitting) == 1:
            return fitting[0]
        if not fitting:
            raise ValueError(
                f"expected target of shape {rest[1]} or {rest[-1]}, that of logits of shape {shape} without the class "
                f"axis, got {_described(target)}; give dim if the classes are on another axis"
            )
    raise ValueError(
        f"expected dim, the class axis, for logits of shape {shape}, got none: dim=1 reads {shape[1]} classes for "
        f"samples of shape {rest[1]}, as in segmentation, and dim=-1 {shape[-1]} classes for samples of shape "
        f"{rest[-1]}, as in tokens"
    )


def classes_last(logits: Tensor, dim: int | None, target: Tensor | None = None) -> Tensor:
    """Return the logits with the class axis moved to the end, or raise if they cannot be probed; see `check_logits`."""
    axis = check_logits(logits, dim, target)
    return logits if axis == logits.ndim - 1 else logits.movedim(axis, -1)


def as_binary(logits: Tensor, target: Tensor | None = None, *, dim: int | None = None) -> tuple[Tensor, Tensor | None]:
    """The logits (0, z) of two classes, on the last axis, and class indices, of single logits z and targets 0 and 1.

    Args:
        logits: shape (N,), or with an axis of size 1 for the class, which is the second or the last.
        target: of any dtype, with or without the axis of size 1. Numbers that are not whole, such as 0.5, become -1.
        dim: the axis of size 1.

    >>> as_binary(torch.tensor([[2.0], [-1.0]]), torch.tensor([[1.0], [0.0]]))
    (tensor([[ 0.,  2.],
            [ 0., -1.]]), tensor([1, 0]))
    """
    if not isinstance(logits, Tensor) or not logits.is_floating_point() or logits.ndim == 0:
        got = _described(logits) if isinstance(logits, Tensor) else type(logits).__name__
        raise TypeError(f"expected single logits as a floating-point tensor of shape (N,) or (N, 1), got {got}")
    if logits.ndim > 1:
        axis = dim if dim is not None else 1 if logits.shape[1] == 1 else -1
        if not -logits.ndim <= axis < logits.ndim or logits.shape[axis] != 1:
            raise ValueError(f"expected a single logit of each sample, as binary=True says, got {_described(logits)}")
        logits = logits.squeeze(axis)
    pair = torch.stack([torch.zeros_like(logits), logits], -1)
    return pair, None if target is None else as_binary_target(target, logits.shape)


def as_binary_target(target: Tensor, shape: torch.Size) -> Tensor:
    """Targets 0 and 1 of any dtype as class indices of this shape, if only axes of size 1 differ."""
    target = as_indices(target)
    whole = target.long()
    target = torch.where(whole == target, whole, -1)
    same = [size for size in target.shape if size != 1] == [size for size in shape if size != 1]
    return target.reshape(shape) if same else target


def _described(x: Tensor) -> str:
    return f"shape {tuple(x.shape)}, dtype {x.dtype}"


# The largest number of trials k. The tails are exact up to it, and their table of k numbers takes 8 megabytes.
MOST_TRIALS = 10**6


def check_trials(trials: int) -> int:
    """Return `trials` as a Python int from 1 to `MOST_TRIALS`, or raise."""
    if type(trials) is int and 1 <= trials <= MOST_TRIALS:
        return trials
    if isinstance(trials, bool) or not hasattr(trials, "__index__"):
        raise TypeError(f"expected trials as a positive integer, got {type(trials).__name__} {trials!r}")
    if not 1 <= (count := operator.index(trials)) <= MOST_TRIALS:
        raise ValueError(f"expected trials as a positive integer up to {MOST_TRIALS:,}, got {count:,}")
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


def check_names(what: str, names: Iterable[str], allowed: Iterable[str]) -> tuple[str, ...]:
    """Return `names` without repetitions if all of them are known and there is one; otherwise raise."""
    chosen, allowed = names if isinstance(names, str) else tuple(dict.fromkeys(names)), tuple(allowed)
    if isinstance(chosen, str) or not chosen or not {*chosen} <= {*allowed}:
        got = repr(chosen) if isinstance(chosen, str) else list(chosen)
        raise ValueError(f"expected {what} as a list of names among {', '.join(allowed)}, got {got}")
    return chosen


def check_target(target: Tensor, shape: torch.Size, name: str = "target") -> Tensor:
    """Return `target` in int64 if it has one class index for each row of logits, or raise; errors call it `name`."""
    if not isinstance(target, Tensor):
        raise TypeError(f"expected {name} as a torch.Tensor, got {type(target).__name__}; use torch.as_tensor")
    wide = target if target.dtype == torch.int64 else as_indices(target)
    if wide.dtype != torch.int64:
        got = _described(target)
        raise TypeError(f"expected {name} as integer class indices, got {got}; convert with {name}.long()")
    if wide.shape != shape:
        got = _described(target)
        raise ValueError(f"expected {name} of shape {tuple(shape)}, the logits' without the class axis, got {got}")
    return wide


def as_indices(target: Tensor) -> Tensor:
    """Return `target` in int64 if its dtype is an integer dtype; return other targets unchanged.

    In uint8, the number -100 would be equal to 156. A uint64 number that is too large for int64 becomes the largest
    int64, which is no class and no `ignore_index`.
    """
    kept = (torch.int64, torch.bool)
    if target.dtype in kept or target.is_floating_point() or target.is_complex():
        return target
    wide = target.long()
    return torch.where(wide < 0, torch.iinfo(torch.int64).max, wide) if target.dtype == torch.uint64 else wide


def are_probabilities(logits: Tensor, dim: int, total: int = 1) -> Tensor:
    """Whether every row is a probability vector, or with a `total` of 100 one of percentages, as a scalar tensor.

    The sums may be off by 1e-4 (2e-2 for float16 and bfloat16), and by more if the first rows are rounded. It is False
    if there are no rows.
    """
    if logits.numel() == 0:
        return torch.zeros((), dtype=torch.bool, device=logits.device)
    rows = logits.movedim(dim, -1)
    while rows.ndim > 2:
        rows = rows[0]
    least = 1e-4 if logits.dtype in (torch.float32, torch.float64) else 2e-2
    slack = rounding_slack(torch.atleast_2d(rows)[:ROUNDED_ROWS], least, total)
    sums = logits.sum(dim, dtype=torch.float32) / total
    return (logits.amin() >= 0) & ((sums - 1).abs() <= slack).all()


def rounding_slack(rows: Tensor, least: float, total: int = 1) -> Tensor:
    """How far the sum of a row of shares may be from 1: half a unit of the last digit for each class, if rounded.

    Args:
        rows: (N, C) probabilities; NaN counts as rounded.
        least: the result if they are not rounded to 2 to 5 digits.
        total: 100 for percentages.
    """
    slack = torch.full((), least, device=rows.device)
    for digits in (5, 4, 3, 2):
        scaled = rows.nan_to_num().to(accumulation_dtype(rows.dtype)) * (10**digits / total)
        near = min(0.1, torch.finfo(rows.dtype).eps * 10**digits)
        rounded = ((scaled - scaled.round()).abs() <= near).all()
        slack = torch.where(rounded, min(0.5, max(least, rows.shape[1] * 0.5 / 10**digits)), slack)
    return slack


def probabilities_message(rows: str, remedy: str, total: int = 1) -> str:
    """The error message for probabilities instead of logits in these `rows`."""
    got = "probabilities" if total == 1 else "percentages"
    return f"expected logits or log-probabilities, got {got} ({rows} is non-negative and sums to {total}); {remedy}"


class ProbabilityCheck:
    """Rejects probabilities in the first batch, without making the host wait for the device.

    On a CPU, `check` raises at once; elsewhere `raise_if_found` does, when results are read.

    Args:
        kind: the batch in words.
        binary: whether the logits are those of `as_binary`. They are rejected if all are in [0, 1] and some are more
            than 0.5 apart: those of an untrained network may all be in [0, 1], but lie close together.
        remedy: what to do instead.
    """

    def __init__(self, kind: str = "first batch", *, binary: bool = False, remedy: str = "") -> None:
        self.kind, self.binary = kind, binary
        self.remedy = remedy or "pass the logits, or preds.log(), or validate_args=False if they are logits after all"
        # What the rows sum to, 0 if it is neither 1 nor 100: a tensor until it is read; None before the first batch.
        self.found: Tensor | int | None = None

    def check(self, logits: Tensor, dim: int = -1, *, waits: bool = False) -> None:
        """Check the batch if it is the first one. Compiled code checks none.

        With `waits`, the next batch waits once for the result of the first one, and raises.
        """
        # The compiler is asked first, so that it does not compile again after the first batch was looked at.
        if torch.compiler.is_compiling():
            return
        if self.found is None and logits.numel() > 0:
            if self.binary:
                low, high = logits.select(dim, -1).aminmax()
                self.found = (low >= 0) & (high <= 1) & (high - low > 0.5)
            else:
                self.found = sum(total * are_probabilities(logits, dim, total) for total in (1, 100))
            if logits.device.type == "cpu":
                self.raise_if_found()
        elif waits and type(self.found) is Tensor and not torch.cuda.is_current_stream_capturing():
            self.raise_if_found()

    def raise_if_found(self) -> None:
        """Raise if the first batch has probabilities. The first call reads from the device."""
        if isinstance(self.found, Tensor):
            self.found = int(self.found)
        if total := self.found:
            self.found = None
            if self.binary:
                raise ValueError(
                    f"expected single logits, got probabilities (all of the {self.kind} in [0, 1]); {self.remedy}"
                )
            raise ValueError(probabilities_message(f"every row of the {self.kind}", self.remedy, total))
