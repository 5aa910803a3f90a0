"""Check 5: the same logits give the same bits."""

from collections import Counter

import torch
from torch import Tensor

from ..functional import bag_of_coins, sample_columns
from ..metrics import BoCMetric, CoherenceGap
from .cases import make_logits, make_target
from .outcomes import Finding, check

REPEATS = 50
SHAPES = {"cuda": (8_192, 1_000), "cpu": (128, 1_000)}


@check("repeats", f"{REPEATS} repeats give the same bits: coins, gradient, columns and the sums of the metrics")
def repeats(device: torch.device) -> Finding:
    """Sums that are added in another order each time differ in their last bits."""
    rows, classes = SHAPES[device.type]
    logits, target = make_logits(rows, classes, device=device), make_target(rows, classes, device)
    first, differ = compute(logits, target), Counter[str]()
    for _ in range(REPEATS - 1):
        again = compute(logits, target)
        differ.update(name for name in first if not same_bits(first[name], again[name]))
    text = ", ".join(f"{name} in {count}" for name, count in differ.most_common())
    found = f"of {REPEATS - 1} repeats, these differ from the first: {text}" if differ else "all bits are the same"
    return Finding(not differ, found, details={"repeats that differ": dict(differ)})


def compute(logits: Tensor, target: Tensor) -> dict[str, Tensor]:
    """All values that must be the same, under the names of the parts of the library."""
    leaf = logits.detach().requires_grad_()
    coins = bag_of_coins(leaf)
    (gradient,) = torch.autograd.grad((coins.gap + coins.concentration).sum(), leaf)
    metric, gap = BoCMetric().to(logits.device), CoherenceGap().to(logits.device)
    metric.update(logits, target)
    gap.update(logits)
    columns = sample_columns(logits)
    return {
        **{f"coins.{name}": x.detach() for name, x in coins._asdict().items()},
        "gradient": gradient,
        **{f"column {name}": x for name, x in columns.items()},
        **{f"BoCMetric {name}": x for name, x in metric.total()._asdict().items()},
        "CoherenceGap": gap.compute(),
    }


def same_bits(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors are the same to the last bit, NaN included."""
    return torch.equal(*(x.contiguous().reshape(-1).view(torch.uint8) for x in (one, other)))
