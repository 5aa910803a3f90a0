"""Drift monitoring: a sequential test whether a stream is exchangeable with the held-out samples."""

import math
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor

from ..core.dtypes import without_dtype_change
from ..core.martingale import MartingaleState, StreamState, count_valid, empty_martingale, empty_stream, grow_wealth
from ..functional.checks import check_share
from ..functional.conformal import seeded_uniforms, stream_p_values
from ..functional.martingale import BINS, HISTOGRAMS, histogram_bets
from ..functional.per_sample import SampleStats
from ..functional.score_bins import BinnedScores
from ..kernels.dispatch import martingale
from .calibration_counts import CheckedState
from .conformal import ConformalTest

# So many samples are compared with each other at once, in a square of booleans; on a GPU, each chunk costs launches.
CHUNK, GPU_CHUNK = 256, 2048
# The seed of the numbers for the classes is so much larger, and so they are independent of those for the scores.
OTHER_SEED = 2**32
# From this many standard errors of the correlation on, a warning says that samples depend on each other.
SIGNIFICANT = 3.0
# A change may have begun so much earlier or later than its estimate, in multiples of the samples until the alarm.
EARLIER, LATER = 2, 2 / 3


class Dependence(NamedTuple):
    """How much the p-values of neighbouring samples depend on each other.

    Attributes:
        correlation: of each p-value with the one before, up to the alarm; NaN without samples.
        error: its standard error if they are independent.
    """

    correlation: float
    error: float


class DriftMonitor(CheckedState):
    """Raises an alarm when a stream of samples drifts away from the held-out samples of a test.

    Each sample is ranked among the held-out samples and all earlier samples of the stream. Without drift, the p-values
    of these ranks are independent and uniform, and bets against that win nothing: their wealth is a test martingale.
    `evidence` is the logarithm of the wealth, and there is an `alarm` once it has reached log(1 / alpha). While the
    stream is exchangeable with the held-out samples, the probability of ever raising a false alarm is at most `alpha`,
    in a stream of any length, however often you check. `torch_boc.functional.martingale` has the bets.

    **The condition: samples do not depend on each other.** The frames of a video, several requests of one session, or a
    test set in the order of its classes raise false alarms: if each sample comes twice, in more than half of the
    streams. Take one sample of each session or every k-th frame, or shuffle batches. `dependence` estimates the
    autocorrelation and warns. It misses bursts after long quiet times: no warning does not mean independence.

    An endless stream needs `run_length`: there is then at most one false alarm in that many samples on average, and
    `evidence` is the logarithm of a number that is compared with `run_length`.

    The scores do not show that some classes have become rare. With `mix`, half of the wealth bets that the mix of
    predicted classes differs from that of the held-out and earlier samples.

    Samples in batches of any size give the same result as one sample at a time, up to rounding. After many samples of
    the new kind they count as normal, and the evidence stops growing: `reset` starts again from the held-out samples.
    All states are buffers: `state_dict` and `load_state_dict` continue a stream after a restart. On a GPU, the
    bets of `mix`, and without Triton all bets, are running sums of floats by torch's operations: they raise under
    `torch.use_deterministic_algorithms(True)`.

    A test with its default score shows drift of the confidence. For drift beyond the confidence, monitor
    `ConformalTest("concentration", groups="confidence")` as well.

    Args:
        conformal_test: a calibrated test, which is copied.
        alpha: the probability of ever raising a false alarm; by default 0.01.
        run_length: instead of `alpha`, the mean number of samples until a false alarm, such as 100_000.
        mix: whether to watch the mix of predicted classes, too.
        seed: of the numbers that break ties, and of the order of the classes.

    >>> test = ConformalTest("max_logit").calibrate(torch.linspace(1, 5, 999)[:, None] * torch.eye(3)[0])
    >>> monitor = DriftMonitor(test, alpha=0.01)
    >>> stream = torch.linspace(1, 5, 100).view(4, 25).T.reshape(100, 1) * torch.eye(3)[0]
    >>> evidence = monitor.update(stream)
    >>> bool(monitor.alarm)
    False
    >>> evidence = monitor.update(stream / 3)
    >>> bool(monitor.alarm), monitor.change
    (True, (84, 106))
    """

    seen: Tensor
    skipped: Tensor
    evidence: Tensor
    peak: Tensor
    alarm_at: Tensor
    began: Tensor
    pairs: Tensor
    histograms: Tensor

    def __init__(
        self,
        conformal_test: ConformalTest,
        alpha: float | None = None,
        *,
        run_length: float | None = None,
        mix: bool = False,
        seed: int = 0,
    ) -> None:
        super().__init__()
        if not isinstance(conformal_test, ConformalTest):
            raise TypeError(
                f"expected conformal_test as a torch_boc.ConformalTest, got {type(conformal_test).__name__}"
            )
        if run_length is not None and (alpha is not None or not 1 < run_length < math.inf):
            raise ValueError(f"expected alpha, or run_length above 1, got alpha={alpha} and run_length={run_length}")
        self.alpha = None if run_length is not None else check_share("alpha", 0.01 if alpha is None else alpha)
        self.run_length, self.mix, self.seed = run_length, mix, seed
        self.conformal_test, self.pool = conformal_test.clone(), conformal_test.clone()
        with torch.inference_mode(False):  # a buffer that is made in inference mode could not be changed outside
            for name, value in self._start().items():
                self.register_buffer(name, value)

    @property
    def bound(self) -> float:
        """The evidence at which there is an alarm: log(1 / alpha), or the logarithm of the run length."""
        return math.log(self.run_length) if self.alpha is None else -math.log(self.alpha)  # type: ignore[arg-type]

    @property
    def alarm(self) -> Tensor:
        """Whether the evidence has reached its `bound` at any time since the start: a boolean on the device."""
        return self.peak >= self.bound

    @property
    def change(self) -> tuple[int, int] | None:
        """The range of sample numbers in which the change probably began, as seen at the alarm; None without an alarm.

        `began` is the likeliest number. On the bundled models, the range contained the truth in 86 to 100 of 100
        streams. It reads from the device, and warns if the samples depend on each other.
        """
        self.pool.refuse_probabilities()
        if not bool(self.alarm):
            return None
        _ = self.dependence
        began, at = int(self.began), int(self.alarm_at)
        return max(0, began - EARLIER * (at - began)), min(at, began + math.ceil(LATER * (at - began)))

    @property
    def dependence(self) -> Dependence:
        """How much each p-value depends on the one before, up to the alarm; warns if it is significant.

        It reads from the device.
        """
        _, number, total, squares, products = self.pairs.tolist()
        if number < 2:
            return Dependence(math.nan, math.nan)
        mean, product = total / 2 / number, products / number  # the squares are (x + y)^2, half of which is less xy
        variance = squares / 2 / number - product - mean**2
        correlation, error = (product - mean**2) / max(variance, 1e-300), number**-0.5
        if correlation > SIGNIFICANT * error:
            warnings.warn(
                f"neighbouring samples depend on each other (correlation {correlation:.2f}, standard error "
                f"{error:.2f}): false alarms are frequent, or the input changes slowly; take one sample of each "
                "session, every k-th frame, or shuffled batches",
                stacklevel=2,
            )
        return Dependence(correlation, error)

    def update(
        self,
        logits: Tensor | SampleStats | None = None,
        *,
        scores: Tensor | None = None,
        group: Tensor | None = None,
    ) -> Tensor:
        """Add the next samples of the stream. No value is read back.

        Args:
            logits: shape (N, C), or their statistics. With more axes, the order of the samples is that of `reshape`. No
                bet is placed on rows with NaN or +inf; they are counted in `skipped`.
            scores: instead of logits, the scores of the samples, if the test was given scores.
            group: the group of each sample, for a test with groups of your own.

        Returns:
            The evidence after each sample, with one axis.
        """
        if self.mix and scores is not None:
            raise ValueError("expected logits for a monitor with mix=True, got scores")
        binned = self.pool.bin_scores(logits, scores=scores, group=group)
        number = count_valid(binned.valid.reshape(-1), self.seen)
        index = number[:-1]
        uniform = seeded_uniforms(self.seed, index)
        ranked: list[Tensor] = []
        gains: list[Tensor] = []
        step = CHUNK if index.device.type == "cpu" else GPU_CHUNK
        # Each sample is ranked among all before it, which it then joins.
        for first in range(0, len(uniform) or 1, step):
            part = slice(first, first + step)
            chunk = BinnedScores(*(None if x is None else x.reshape(-1)[part] for x in binned))  # type: ignore[arg-type]
            ranked.append(stream_p_values(self.pool.counts, *chunk[:3], uniform[part]))
            if self.mix:
                other = seeded_uniforms(self.seed + OTHER_SEED, index[part])
                gain, histograms = histogram_bets(self._classes_ranked(chunk, other), self.histograms)
                self.histograms.copy_(histograms)
                gains.append(gain)
            self.pool.add(chunk)
        endless = self.alpha is None
        mixed: list[Tensor] = []
        if self.mix:  # the mean of two martingales is a martingale
            state = [self.get_buffer(f"mix_{name}") for name in MartingaleState._fields]
            *mixed, after = grow_wealth(torch.cat(gains), MartingaleState(*state), number, endless)
            torch._foreach_copy_(state, [*after])
        p = torch.cat(ranked) if len(ranked) > 1 else ranked[0]
        stream = StreamState(*map(self.get_buffer, StreamState._fields))
        return martingale(p, number, mixed, self.bound, endless, stream)

    def _classes_ranked(self, chunk: BinnedScores, uniform: Tensor) -> Tensor:
        """The p-values of the predicted classes, in a random order of the classes."""
        classes = self.pool.classes
        order = seeded_uniforms(self.seed, torch.arange(len(classes), device=classes.device)).argsort()
        position = order.argsort().index_select(0, chunk.prediction)  # type: ignore[arg-type]
        counts = classes.index_select(0, order).unsqueeze(0)
        return stream_p_values(counts, position, None, chunk.valid, uniform)

    def reset(self) -> None:
        """Forget the stream, and start again from the held-out samples."""
        self.pool = self.conformal_test.clone()
        for name, value in self._start().items():
            getattr(self, name).copy_(value)

    def _start(self) -> dict[str, Tensor]:
        """The states before the first sample."""
        states = empty_stream()._asdict()
        if self.mix:
            states |= {f"mix_{name}": value for name, value in empty_martingale(len(HISTOGRAMS))._asdict().items()}
            states["histograms"] = torch.zeros(len(HISTOGRAMS), BINS, dtype=torch.float64)
        return states

    def _adds_up(self) -> bool:
        """Whether the samples, the alarm and the evidence are consistent."""
        if type(self.seen) is not Tensor:  # a fake tensor has no values
            return True
        seen, skipped, at, began = (int(x) for x in (self.seen, self.skipped, self.alarm_at, self.began))
        counts = [0, began, at, seen, seen + skipped]
        states = [x for name, x in self.named_buffers(recurse=False) if name != "pairs"]
        consistent = counts == sorted(counts) and (at > 0) == bool(self.alarm) and bool(self.evidence <= self.peak)
        consistent &= not any(bool(x.isnan().any()) for x in states)
        begin = torch.cat([x for name, x in self.named_buffers(recurse=False) if name.endswith("begin")])
        consistent &= bool(((begin >= 0) & (begin <= seen)).all())
        joined = self.pool.counts - self.conformal_test.counts
        return consistent and bool((joined >= 0).all()) and int(joined.sum()) <= seen

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Move to another device with the module, but not to another dtype."""
        super()._apply(without_dtype_change(fn), recurse)
        return self

    @property
    def settings(self) -> dict[str, Any]:
        """What the alarm means."""
        return {"alpha": self.alpha, "run_length": self.run_length, "mix": self.mix}
