"""Check 1: the kernels give what torch's operations give in float64 on the CPU."""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from .. import kernels
from ..functional import bag_of_coins, log_p_value, sample_columns
from ..functional.coins import Coins
from ..kernels.choice import decide
from ..kernels.cpu import library
from ..metrics import BoCMetric
from .cases import describe, make_logits, make_target
from .outcomes import Finding, check

SUMS_LIMIT = {torch.float32: 1e-5, torch.float64: 1e-11}
# Relative to the largest gradient: the rounding of the dtype in which it is stored, or the error of the sums.
GRADIENT_LIMIT = {torch.float32: 1e-5, torch.float64: 1e-11, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}
TAIL_LIMIT = 1e-9
FIELDS = ("odds", "loss", "gap", "free_gap", "concentration")
COLUMNS = ("confidence", "dominance", "gap", "free_gap", "concentration", "energy", "logit_gap")
MEANS = ("samples", "invalid", "confidence", "dominance", "gap", "free_gap", "concentration", "accuracy", "nll")
WEIGHTS = (1.0, -2.0, 0.5, 1.5, -1.0)


class Case(NamedTuple):
    """Normal logits: their shape, their dtype and their standard deviation. Small logits are flat, large ones sharp."""

    rows: int
    classes: int
    dtype: torch.dtype = torch.float32
    scale: float = 3.0


CASES = (
    Case(64, 2),
    Case(64, 3),
    Case(65, 10, scale=12.0),
    Case(64, 1_000),
    Case(32, 1_000, scale=0.01),
    Case(64, 1_000, torch.bfloat16),
    Case(16, 1_025, torch.float16),
    Case(16, 1_000, torch.float64),
    Case(8, 50_257),
    Case(8, 50_257, torch.bfloat16),
)


class Error(NamedTuple):
    """The error of a quantity, and the largest error that is allowed."""

    case: str
    quantity: str
    error: float
    limit: float


@check("results", "every result is that of torch's operations in float64 on the CPU: sums to 1e-5, p-values to 1e-9")
def results(device: torch.device) -> Finding:
    """Forward, backward, columns, metric and p-values, over shapes and dtypes, and rows with NaN and infinities."""
    path = fast_path(device)
    with kernels.use(path):
        found = [error for case in CASES for error in errors_of(case, device)]
    worst = max(found, key=lambda x: x.error / x.limit)
    text = f"largest error {worst.error:.1e} of {worst.limit:.2g} allowed ({worst.quantity}, {worst.case}), path {path}"
    bad = [x for x in found if not x.error <= x.limit]
    trusted = is_trusted(device)
    if not trusted:
        text += '; but the path "auto" does not trust the kernels on this card'
    errors: dict[str, dict[str, float]] = {}
    for x in found:
        errors.setdefault(x.case, {})[x.quantity] = float(f"{x.error:.2e}")
    details = {"path": path, "errors": errors, "too large": [f"{x.quantity}, {x.case}" for x in bad]}
    return Finding(not bad and trusted, text, details=details)


def fast_path(device: torch.device) -> str:
    """The path whose kernels are checked on this device."""
    if device.type == "cuda":
        return "triton"
    return "native" if library.available() else "torch"


def is_trusted(device: torch.device) -> bool:
    """Whether users get the kernels by default; on a GPU this depends on a short trial."""
    return device.type == "cpu" or decide(make_logits(4, 10, device=device)).rows


def errors_of(case: Case, device: torch.device) -> Iterator[Error]:
    """All errors of one case."""
    logits = make_logits(case.rows, case.classes, dtype=case.dtype, scale=case.scale)
    if case.classes > 3:
        _spoil(logits)
    sums = SUMS_LIMIT[torch.float64 if case.dtype == torch.float64 else torch.float32]
    limits = {"gradient": GRADIENT_LIMIT[case.dtype], "log_p_value": TAIL_LIMIT, "prediction": 0.5}
    label = f"{describe(case.rows, case.classes, dtype=case.dtype)}, scale {case.scale:g}"
    with kernels.use("torch"):
        expected = _forward(logits.double()) | _backward(logits.double())
    actual = _forward(logits.to(device)) | _backward(logits.to(device))
    tails = actual.pop("log_p_value"), _tails(actual)
    expected.pop("log_p_value")  # rounding of the loss can change the wins, so the device's own loss is used
    for quantity, (x, y) in {**{name: (actual[name], expected[name]) for name in actual}, "log_p_value": tails}.items():
        yield Error(label, quantity, _error(quantity, x, y), limits.get(quantity, sums))


def _spoil(logits: Tensor) -> None:
    """Put a NaN, a +inf, some -inf and a tie at the top into the first four rows."""
    logits[0, 1] = torch.nan
    logits[1, 2] = torch.inf
    logits[2, 1::2] = -torch.inf  # not the target, whose loss would be infinite
    logits[3, [0, -1]] = 20.0


def _forward(logits: Tensor) -> dict[str, Tensor]:
    """What is computed without a gradient, on the CPU in float64."""
    coins = bag_of_coins(logits)
    rows, classes = logits.shape
    metric = BoCMetric(classes, nan_strategy="ignore").to(logits.device)
    metric.update(logits, make_target(rows, classes, logits.device))
    summary = metric.compute()
    columns = sample_columns(logits, columns=COLUMNS)
    return {
        "prediction": _home(coins.prediction),
        **{name: _home(getattr(coins, name)) for name in FIELDS},
        **{f"column {name}": _home(columns[name]) for name in COLUMNS},
        "metric": _home(torch.stack([summary[name] for name in MEANS])),
        "log_p_value": _home(log_p_value(coins)),
    }


def _backward(logits: Tensor) -> dict[str, Tensor]:
    leaf = logits[4:].detach().requires_grad_()  # the first rows have no gradient, or one that is not unique
    coins = bag_of_coins(leaf)
    total = sum(weight * getattr(coins, name).sum() for weight, name in zip(WEIGHTS, FIELDS, strict=True))
    (gradient,) = torch.autograd.grad(torch.as_tensor(total), leaf)
    return {"gradient": _home(gradient)}


def _tails(found: dict[str, Tensor]) -> Tensor:
    """The p-values by torch's operations, at the odds and losses that the device found."""
    numbers = (found[name] for name in ("odds", "loss", "concentration", "free_gap"))
    with kernels.use("torch"):
        return log_p_value(Coins(found["prediction"].long(), *numbers))


def _home(x: Tensor) -> Tensor:
    return x.detach().cpu().double()


def _error(quantity: str, actual: Tensor, expected: Tensor) -> float:
    """The largest error, relative for quantities that may be tiny; infinite if only one of the sides is NaN."""
    name = quantity.removeprefix("column ")
    if name in ("odds", "loss", "gap"):
        scale = expected.abs().clamp_min(1e-300)
    elif name in ("gradient", "free_gap"):
        scale = expected.abs().nan_to_num(0).max().clamp_min(1e-300)
    else:
        scale = expected.abs().clamp_min(1.0)
    off = ((actual - expected) / scale).abs()
    off = torch.where(actual.isnan() & expected.isnan() | (actual == expected), 0.0, off)
    return float(off.nan_to_num(torch.inf).max())
