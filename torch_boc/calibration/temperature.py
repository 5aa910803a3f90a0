"""Temperature scaling: all logits are divided by the same number."""

import math
import warnings
from collections.abc import Callable
from functools import partial
from typing import Self

import torch
from torch import Tensor, nn

from ..core.chunking import map_chunks
from ..core.dtypes import accumulation_dtype, to_wide, without_dtype_change
from .base import Calibrated, Calibrator, coins_of

LOWEST, HIGHEST = 1e-3, 1e3
# First the range of log T, which has the length 13.8, is halved this many times. The search ends if log T changes by
# less than the tolerance.
HALVINGS, MOST_STEPS, TOLERANCE = 6, 100, 1e-12


class TemperatureScaling(nn.Module, Calibrator):
    """Divides logits by the temperature T that minimizes the summed loss of the calibration split + (log T)² / 2.

    T > 1 lowers the confidence of an overconfident classifier, and T < 1 raises that of an underconfident one. The
    predictions do not change. The logarithm of T is a float64 buffer, which stays float64 after `half()` and the like.
    The second term is a prior. It costs at most 0.0001 of the mean loss of 1,000 samples, and keeps T finite where all
    predictions are correct, or all are wrong. T is at least 0.001 and at most 1000; a warning says if it is a bound.

    A sample whose target has a logit of -inf is left out of the fit, with a warning, because its probability is 0 at
    every temperature.

    >>> logits, target = torch.tensor([[3.0, 0.0], [3.0, 0.0], [3.0, 0.0]]), torch.tensor([0, 0, 1])
    >>> scaling = TemperatureScaling().fit(logits.repeat(100, 1), target.repeat(100))
    >>> round(scaling.temperature, 2), scaling(torch.tensor([3.0, 0.0])).softmax(0)  # two in three are right
    (4.15, tensor([0.6732, 0.3268]))
    """

    name = "temperature"
    log_temperature: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.num_classes = None
        self.register_buffer("log_temperature", torch.zeros((), dtype=torch.float64))

    @property
    def temperature(self) -> float:
        """T; an error before the fit."""
        self._check_fitted()
        return math.exp(self.log_temperature.item())

    @property
    def at_bound(self) -> bool:
        """Whether T is a bound of the search, which says nothing of the best T."""
        return self.log_temperature.item() in (math.log(LOWEST), math.log(HIGHEST))

    def forward(self, logits: Tensor) -> Tensor:
        """Logits of any shape divided by T. float16 and bfloat16 become float32, so that no quotient overflows."""
        self._check_fitted()
        dtype = accumulation_dtype(logits.dtype)
        return logits.to(dtype) / self.log_temperature.exp().to(dtype)

    def _fit(self, logits: Tensor, target: Tensor) -> None:
        self.log_temperature.fill_(_best_log_temperature(_Likelihood(logits, target)))

    def _calibrate(self, logits: Tensor) -> Calibrated:
        scaled = self(logits)
        # The prediction is that of the raw logits, because the division may round two different logits to a tie.
        return Calibrated(logits.argmax(1), coins_of(scaled).confidence, scaled)

    def get_extra_state(self) -> Tensor:
        """The number of classes, 0 before the fit. It is a tensor, so that every file format can hold it."""
        return torch.tensor(self.num_classes or 0)

    def set_extra_state(self, state: Tensor) -> None:
        """Set the number of classes."""
        self.num_classes = int(state) or None

    def extra_repr(self) -> str:
        """The temperature, for `print(module)`."""
        return "not fitted" if self.num_classes is None else f"temperature={self.temperature:.4g}"

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Move to another device with the module, but not to another dtype: float16 has only three digits."""
        super()._apply(without_dtype_change(fn), recurse)
        return self


class _Likelihood:
    """The slope of the mean negative log-likelihood of the targets, with the prior, as a function of log T.

    With a = 1/T the likelihood is mean log sum_j exp(a (z_j - z_target)), convex in a. So there is one minimum,
    and the sign of the slope tells on which side of the minimum a point is.
    """

    def __init__(self, logits: Tensor, target: Tensor) -> None:
        of_target = to_wide(logits.gather(1, target.unsqueeze(1)))
        masked = int(of_target.isinf().sum())
        if masked == len(of_target):
            raise ValueError("expected targets with finite logits, got -inf for the target of every sample")
        if masked:
            message = f"temperature: {masked} of {len(of_target)} samples are left out: their target's logit is -inf"
            warnings.warn(message, stacklevel=4)
            logits, of_target = logits[of_target.squeeze(1).isfinite()], of_target[of_target.isfinite()].unsqueeze(1)
        self.logits, self.top = logits, to_wide(logits.amax(1, keepdim=True))
        self.distance = self.top - of_target

    def __call__(self, log_temperature: float) -> float:
        inverse = math.exp(-log_temperature)
        (slopes,) = map_chunks(partial(_slope, inverse=inverse), self.logits, self.top, self.distance)
        return -inverse * slopes.mean().item() + log_temperature / len(self.distance)


def _slope(logits: Tensor, top: Tensor, distance: Tensor, inverse: float) -> tuple[Tensor]:
    """For each row, the slope of the negative log-likelihood at 1/T = `inverse`, with respect to 1/T."""
    below = to_wide(logits).sub(top).clamp_min_(-1e30)  # a finite number instead of -inf
    # At least -700, because exp is slow on the CPU if it underflows.
    weight = below.mul(inverse).clamp_min_(-700.0).exp_()
    total = weight.sum(1, keepdim=True)
    return (below.mul_(weight).sum(1, keepdim=True) / total + distance,)


def _best_log_temperature(likelihood: _Likelihood) -> float:
    low, high = math.log(LOWEST), math.log(HIGHEST)
    slope_low, slope_high = likelihood(low), likelihood(high)
    if slope_low >= 0 or slope_high <= 0:
        bound, size = (low, "small") if slope_low >= 0 else (high, "large")
        what = f"temperature: the logits are too {size} for a temperature, T = {math.exp(bound):g} is a bound"
        warnings.warn(what, stacklevel=4)
        return bound
    last, slope_last = high, slope_high
    for step in range(MOST_STEPS):
        # The middle of the range, and later where the straight line between both ends is 0.
        weight = 0.5 if step < HALVINGS else slope_high / (slope_high - slope_low)
        middle = weight * low + (1 - weight) * high
        slope = likelihood(middle)
        if slope == 0 or abs(middle - last) < TOLERANCE:
            return middle
        # The method of Illinois: an end that stays twice in a row counts half, so that both ends move.
        stays = 0.5 if step > HALVINGS and slope * slope_last > 0 else 1.0
        if slope < 0:
            low, slope_low, slope_high = middle, slope, slope_high * stays
        else:
            high, slope_high, slope_low = middle, slope, slope_low * stays
        last, slope_last = middle, slope
    return last
