"""Running means along sequences, and the threshold that few familiar sequences ever cross."""

import math

from torch import Tensor

from ..core.precision import widen
from .checks import check_share
from .conformal import threshold_rank


def running_means(values: Tensor, window: int) -> Tensor:
    """The mean of each `window` successive values: (..., T) to (..., T - window + 1), in float64 (float32 on MPS).

    A window with NaN has the mean NaN. If there are fewer values than the window, the result is empty.

    >>> running_means(torch.tensor([1.0, 3.0, 5.0, 0.0]), 2)
    tensor([2.0000, 4.0000, 2.5000], dtype=torch.float64)
    """
    values = widen(values)
    if values.shape[-1] < window:
        return values[..., :0]
    return values.unfold(-1, window, 1).mean(-1)


def extreme_mean(values: Tensor, window: int, *, highest: bool) -> float:
    """The highest or the lowest running mean of one sequence; it is infinite if no window is without NaN.

    >>> extreme_mean(torch.tensor([1.0, 3.0, 5.0, 0.0]), 2, highest=True)
    4.0
    >>> extreme_mean(torch.tensor([1.0]), 2, highest=True)
    -inf
    """
    means = running_means(values, window)
    means = means[~means.isnan()]
    if len(means) == 0:
        return -math.inf if highest else math.inf
    return float(means.max() if highest else means.min())


def extreme_threshold(extremes: Tensor, alpha: float, *, highest: bool) -> float:
    """The threshold that a new sequence ever crosses with a chance of at most `alpha`.

    Let X be the k-th most extreme of the n numbers, with k = floor(alpha (n + 1)). If the number of a new sequence is
    exchangeable with them, it is more extreme than X with a chance of at most k / (n + 1).

    Args:
        extremes: (n,), the most extreme running mean of each familiar sequence.
        alpha: the largest chance.
        highest: whether extreme means high.

    >>> extreme_threshold(torch.arange(1.0, 100.0), 0.05, highest=True)
    95.0
    """
    check_share("alpha", alpha)
    rank = threshold_rank(len(extremes), alpha)
    if rank == 0:
        raise ValueError(
            f"expected at least {math.ceil(1 / alpha - 1e-9) - 1} sequences for alpha={alpha}, got {len(extremes)}; "
            "give more of them, or a larger alpha"
        )
    found = float(extremes.sort(descending=highest).values[rank - 1])
    if math.isinf(found):
        enough = int(extremes.isfinite().sum())
        raise ValueError(
            f"expected at least {rank} sequences that are as long as the window and have no NaN, got {enough}; "
            "give longer ones, or a smaller window"
        )
    return found
