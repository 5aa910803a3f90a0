"""The evidence of samples, from the columns that were kept of them: the inverse of `sample_columns`."""

from collections.abc import Mapping

import torch
from torch import Tensor

from ..core.coins import Coins
from ..core.precision import widen
from .bounds import free_gap
from .checks import check_classes, check_trials
from .evidence import Evidence

NEEDED = ("prediction", "confidence", "gap", "concentration")
USED = (*NEEDED, "forced_gap", "free_gap", "energy", "logit_gap", "target")
# How far the number of classes, as it follows from a row, may be from a whole number.
NEARLY = 0.01


def restore_evidence(columns: Mapping[str, Tensor], *, num_classes: int | None = None, trials: int = 100) -> Evidence:
    """The evidence of samples, as far as it follows from the columns that `sample_columns` and `BoCPredictor` give.

    With m = C - 1 rivals, the odds R are the smaller root of

        F R² + (F (m + 1) - (m - 1)) R + F m = 0,        F the forced gap

    where the confidence is above 1/2, because the confidence itself is rounded to 1 for small odds; elsewhere, and for
    two classes, they are (1 - p) / p.

    Args:
        columns: tensors of one shape by name: `prediction`, `confidence`, `gap` and `concentration`, and if they are
            there `forced_gap` or `free_gap`, `energy`, `logit_gap` and `target`. Other columns are ignored.
        num_classes: C; by default as it follows from the confidence and the forced gap of the least sure sample.
        trials: the number of coin flips of p-values that are computed from the evidence.

    Returns:
        Evidence with the coins and `log_odds`, with `top` if there is an `energy`, with `margin` if there is a
        `logit_gap`, and with the `target` if there is one. The `distance` of a target that is not the prediction does
        not follow from columns: it is NaN.

    >>> table = sample_columns(torch.tensor([[2.0, 1.0, 0.0, -1.0]]))
    >>> evidence = restore_evidence(table)
    >>> evidence.num_classes, round(evidence.coins.odds.item(), 6)
    (4, 0.553002)
    """
    missing = [name for name in NEEDED if name not in columns]
    if missing:
        raise ValueError(f"expected columns {', '.join(NEEDED)}, got none of the name {missing[0]!r}")
    found = {name: columns[name] for name in USED if name in columns}
    if "forced_gap" not in found and "free_gap" in found:
        found["forced_gap"] = found["gap"] - found["free_gap"]
    classes = count_classes(found["confidence"], found.get("forced_gap")) if num_classes is None else num_classes
    real = {name: widen(x) for name, x in found.items() if name not in ("prediction", "target")}
    rivals = check_classes(classes) - 1
    odds = _odds(real["confidence"], real.get("forced_gap"), rivals)
    free = real["free_gap"] if "free_gap" in real else free_gap(odds, real["concentration"], classes)
    loss = odds / (1 + odds) - real["gap"]
    prediction = found["prediction"].long()
    coins = Coins(prediction, odds, loss, real["concentration"], free)
    top = real["energy"] - odds.log1p() if "energy" in real else None
    margin = real["logit_gap"] * rivals if "logit_gap" in real else None
    target = found["target"].long() if "target" in found else None
    distance = None if target is None else torch.where(prediction == target, 0.0, torch.nan).to(odds.dtype)
    how = {"margin": margin, "target": target, "distance": distance}
    return Evidence(coins, classes, check_trials(trials), top, log_odds=-odds.log(), **how)


def count_classes(confidence: Tensor, forced: Tensor | None) -> int:
    """The number of classes that the confidence p and the forced gap F of the least sure sample belong to.

    With R = (1 - p) / p, the forced gap is (1 - p) - R / (C - 1 + R). It reads a value from the device.

    >>> count_classes(torch.tensor([0.5]), torch.tensor([0.25]))
    4
    """
    remedy = "give num_classes"
    if forced is None:
        raise ValueError(f"expected a column forced_gap or free_gap, from which the classes follow, got none; {remedy}")
    if confidence.numel() == 0:
        raise ValueError(f"expected at least one row, from which the classes follow, got none; {remedy}")
    rounding = max(torch.finfo(x.dtype).eps for x in (confidence, forced))
    confidence, forced = widen(confidence).reshape(-1), widen(forced).reshape(-1)
    row = confidence.nan_to_num(2.0).argmin()
    p = confidence[row]
    odds = (1 - p) / p
    rest = 1 - p - forced[row]  # R / (C - 1 + R), which has the rounding errors of 1 - p
    found = float(odds / rest - odds + 1)
    unsure = found * rounding / float(rest)
    if not found >= 2 - NEARLY or max(unsure, abs(found - round(found))) > NEARLY:
        raise ValueError(
            f"expected a confidence and a forced gap from which the number of classes follows, got {float(p):.6g} and "
            f"{float(forced[row]):.6g}; {remedy}"
        )
    return round(found)


def _odds(confidence: Tensor, forced: Tensor | None, rivals: int) -> Tensor:
    plain = (1 - confidence) / confidence
    if forced is None or rivals == 1:
        return plain
    half = ((rivals - 1) - forced * (rivals + 1)) / 2
    root = forced * rivals / (half + (half.square() - forced.square() * rivals).clamp_min(0.0).sqrt())
    return torch.where(confidence > 0.5, root, plain)
