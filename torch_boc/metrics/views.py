"""Keys of `BoCMetric` as metrics of one number each, for what takes no metric that returns a dict."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor
from torchmetrics import MetricCollection

from ..functional.summary import CLASSWISE, DEFAULT_KEYS, check_keys
from .base import ProbeMetric
from .coherence import BoCMetric

BETTER_LOW = {"invalid", "ece", "ece_dominance", CLASSWISE, "ece_equal_mass", "nll", "brier_confidence"}
BETTER_LOW |= {"brier_dominance", "aurc", "augrc"}


class BoCView(BoCMetric):
    """One key of a `BoCMetric` as a scalar; all views of a collection have the states of all its keys."""

    def __init__(self, key: str, **options: Any) -> None:
        super().__init__(**options)
        self.key = key

    @property
    def higher_is_better(self) -> bool:  # type: ignore[override]
        """What MetricTracker and sweeps maximize."""
        return self.key not in BETTER_LOW

    def compute(self) -> Tensor:  # type: ignore[override]
        """The value of the key over all batches so far, in the dtype of torchmetrics: float32 by default."""
        return super().compute()[self.key].to(self.dtype)

    plot = ProbeMetric.plot  # type: ignore[assignment]


def boc_metrics(
    keys: Sequence[str] = DEFAULT_KEYS, *, prefix: str | None = "val/boc/", **options: Any
) -> MetricCollection:
    """Keys of `BoCMetric` as a `torchmetrics.MetricCollection` of scalars, which share one state and one update.

    Lightning's `self.log_dict(collection)` and `MetricTracker(collection)` take it unchanged. A single metric of it,
    such as `boc_metrics()["gap"]`, is for `self.log`, `BootStrapper` and `MinMaxMetric`. MetricTracker (since
    torchmetrics 1.7) reads the direction of every metric; keys that are neither good nor bad, such as `gap`, have
    "higher" there.

    Args:
        keys: the keys, in this order. Without targets, those that need them are NaN.
        prefix: the start of every name.
        options: arguments of `BoCMetric`, such as `num_classes`, `dim` and `binary`.

    >>> metrics = boc_metrics(["accuracy", "gap"])
    >>> metrics.update(torch.tensor([[4.0, 1.0, 0.0], [0.0, 2.0, 1.0]]), torch.tensor([0, 2]))
    >>> metrics.compute()
    {'val/boc/accuracy': tensor(0.5000), 'val/boc/gap': tensor(0.0859)}
    """
    names = check_keys(keys)
    metrics = MetricCollection({}, prefix=prefix)
    for name in names:  # one after the other, because a collection sorts the names of a dict
        metrics.add_metrics({name: BoCView(name, **options, keys=names)})
    return metrics
