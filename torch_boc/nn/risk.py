"""An audit of accepted predictions by labels: is their error still at most the guaranteed one?"""

import math
from typing import Any

import torch
from torch import Tensor

from ..functional.checks import check_share
from ..functional.martingale import risk_evidence, risk_interval
from .calibration_counts import CheckedState


class RiskMonitor(CheckedState):
    """Raises an alarm when labels of accepted predictions show that more than `max_error` of them are wrong.

    `Acceptance` guarantees an error on inputs like the held-out ones. This audits it in production, where inputs
    may have changed: label some of the accepted predictions, and pass which of them are correct. The probability of
    ever raising a false alarm is at most `alpha`, in a stream of any length, however often you check. The labels
    feed an e-process of "the error is at most `max_error`" (Podkopaev and Ramdas 2022),
    `torch_boc.functional.risk_evidence`.

    **The condition: labels are drawn at random among the accepted predictions, whether correct or wrong.** Labels
    from complaints, or only of easy samples, void both the alarm and the interval.

    At a `max_error` of 1 % and an `alpha` of 5 %, the median number of labels until the alarm is about 800 at a true
    error of 2 %, 240 at 3 %, 80 at 5 % and 26 at 10 %.

    Args:
        max_error: the largest error rate among the accepted predictions.
        alpha: the probability of ever raising a false alarm, and of an `interval` that ever misses the error.

    Attributes:
        labels: a buffer, the number of labelled predictions.
        wrong: a buffer, how many of them are wrong.
        alarm_at: a buffer, the number of labels at the alarm; 0 without one.

    >>> monitor = RiskMonitor(max_error=0.01)
    >>> evidence = monitor.update(torch.arange(100) % 10 > 0)  # every tenth is wrong
    >>> bool(monitor.alarm), int(monitor.alarm_at), [round(end, 3) for end in monitor.interval()]
    (True, 21, [0.032, 0.214])
    """

    labels: Tensor
    wrong: Tensor
    alarm_at: Tensor

    def __init__(self, max_error: float = 0.01, alpha: float = 0.05) -> None:
        super().__init__()
        self.max_error, self.alpha = check_share("max_error", max_error), check_share("alpha", alpha)
        with torch.inference_mode(False):  # a buffer that is made in inference mode could not be changed outside
            for name in ("labels", "wrong", "alarm_at"):
                self.register_buffer(name, torch.zeros((), dtype=torch.int64))

    @property
    def alarm(self) -> Tensor:
        """Whether there has been an alarm: a boolean on the device."""
        return self.alarm_at > 0

    def update(self, correct: Tensor) -> Tensor:
        """Add labelled predictions, in any order within the batch. No value is read back.

        Args:
            correct: booleans of any shape, which of the accepted and labelled predictions are correct.

        Returns:
            The evidence after each of them, with one axis: there is an alarm from log(1 / alpha) on.
        """
        if not isinstance(correct, Tensor) or correct.dtype != torch.bool:
            got = correct.dtype if isinstance(correct, Tensor) else type(correct).__name__
            raise TypeError(f"expected correct as a tensor of booleans, got {got}; pass prediction == target")
        bad = (~correct).reshape(-1)
        labels = self.labels + torch.arange(1, len(bad) + 1, device=bad.device)
        wrong = self.wrong + bad.cumsum(0)
        evidence = risk_evidence(labels, wrong, self.max_error)
        first = torch.cat([evidence >= -math.log(self.alpha), bad.new_ones(1)]).long().argmax()
        at = torch.cat([labels, labels.new_zeros(1)]).take(first)
        self.alarm_at.copy_(torch.where(self.alarm, self.alarm_at, at))
        self.labels.add_(len(bad))
        self.wrong.add_(bad.sum())
        return evidence

    def interval(self) -> tuple[float, float]:
        """The error among the accepted predictions: with probability 1 - `alpha`, all of these intervals contain it.

        The condition is that of the alarm, and that the error does not change: `reset` after a change. It reads from
        the device.
        """
        return risk_interval(int(self.labels), int(self.wrong), self.alpha)

    def reset(self) -> None:
        """Forget all labels, for example after a new calibration."""
        for buffer in self.buffers():
            buffer.zero_()

    def _adds_up(self) -> bool:
        """Whether the counts are not negative, and none is larger than the labels."""
        return type(self.labels) is not Tensor or all(0 <= int(x) <= int(self.labels) for x in self.buffers())

    @property
    def settings(self) -> dict[str, Any]:
        """What the alarm means."""
        return {"max_error": self.max_error, "alpha": self.alpha}
