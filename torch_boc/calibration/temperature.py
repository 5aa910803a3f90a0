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

# The search for log T begins between minus and plus this, and ends if log T changes by less than the tolerance.
FARTHEST, MOST_STEPS, TOLERANCE = 50.0, 100, 1e-12


class TemperatureScaling(nn.Module, Calibrator):
    """Divides logits by the temperature T that minimizes the summed loss of the calibration split + (log T)² / 2.

    T > 1 lowers the confidence of an overconfident classifier, and T < 1 raises that of an underconfident one. The
    predictions do not change. The logarithm of T is a float64 buffer, which stays float64 after `half()` and the like.
    The second term is a prior. It costs at most 0.0001 of the mean loss of 1,000 samples, and keeps T finite where all
    predictions are correct, or all are wrong.

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

    def forward(self, logits: Tensor) -> Tensor:
        """Logits of any shape divided by T. float16 and bfloat16 become float32, so that no quotient overflows."""
        self._check_fitted()
        dtype = accumulation_dtype(logits.dtype)
        return logits.to(dtype) / self.log_temperature.exp().to(dtype)

    def _fit(self, logits: Tensor, target: Tensor) -> None:
        of_target = to_wide(logits.gather(1, target.unsqueeze(1)))
        possible = of_target.isfinite().squeeze(1)
        if not bool(possible.any()):
            raise ValueError("expected targets with finite logits, got -inf for the target of every sample")
        if masked := int((~possible).sum()):
            message = f"temperature: {masked} of {len(possible)} samples are left out: their target's logit is -inf"
            warnings.warn(message, stacklevel=3)
            logits, of_target = logits[possible], of_target[possible]
        self.log_temperature.fill_(_best_log_temperature(logits, of_target))

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


def _slope_and_curvature(logits: Tensor, top: Tensor, of_target: Tensor, inverse: float) -> tuple[Tensor, Tensor]:
    """For each row, those of the negative log-likelihood at 1/T = `inverse`, with respect to 1/T."""
    below = to_wide(logits).sub(top).clamp_min_(-1e30)  # a finite number instead of -inf
    # At least -700, because exp is slow on the CPU if it underflows.
    weight = below.mul(inverse).clamp_min_(-700.0).exp_()
    weight /= weight.sum(1, keepdim=True)
    mean = weight.mul_(below).sum(1, keepdim=True)
    return mean + top - of_target, weight.mul_(below).sum(1, keepdim=True) - mean.square()


def _best_log_temperature(logits: Tensor, of_target: Tensor) -> float:
    """Newton's method between ends on both sides of the best log T, which is between -50 and 50 thanks to the prior.

    With a = 1/T the likelihood is mean log sum_j exp(a (z_j - z_target)), convex in a.
    """
    low, high, here = -FARTHEST, FARTHEST, 0.0
    rows = logits, to_wide(logits.amax(1, keepdim=True)), of_target
    for _ in range(MOST_STEPS):
        inverse = math.exp(-here)
        of_rows = map_chunks(partial(_slope_and_curvature, inverse=inverse), *rows)
        first, second = (x.mean().item() for x in of_rows)
        slope = here / len(logits) - inverse * first
        curvature = 1 / len(logits) + inverse * first + inverse**2 * second
        low, high = (here, high) if slope < 0 else (low, here)
        last, here = here, here - slope / curvature if curvature > 0 else low
        if not low < here < high:
            here = (low + high) / 2
        if abs(here - last) < TOLERANCE:
            break
    return here
