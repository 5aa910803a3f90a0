"""An alarm that may be looked at after every sample: has the input drifted away from the held-out samples?"""

import math
from collections.abc import Callable
from typing import Self

import torch
from torch import Tensor, nn

from ..core.precision import moves_only, widen
from ..functional.betting import Capital, empty_capital, place_bets
from ..functional.checks import check_share
from ..functional.conformal import look_up_ranks, rank_p_values, seeded_uniforms, stream_ranks
from ..functional.evidence import Evidence
from ..functional.screening import Placing
from .conformal import ConformalTest

# So many samples are compared with each other at once: a square of booleans of this size.
PIECE = 256


class DriftMonitor(nn.Module):
    """Watches a stream of samples, and raises an alarm when they no longer look like the held-out samples of a test.

    Each sample is ranked among the held-out samples and all earlier samples of the stream. If nothing has changed, the
    p-values of these ranks are independent and uniform, and a gambler who bets against that does not get rich. The
    logarithm of the gambler's capital is the `evidence`. There is an `alarm` once it has reached log(1 / alpha).
    Without drift, this happens with a chance of at most `alpha` in a stream of any length, however often one looks. The
    bets are in `torch_boc.functional.betting`.

    Samples in batches of any size give the same result as one sample at a time, up to rounding. After many samples of
    the new kind, the monitor takes them for normal, and the evidence stops growing: `reset` starts again from the
    held-out samples. All states are buffers: `state_dict` and `load_state_dict` continue a stream after a restart.

    A test with its default score shows drift of how sure the predictions are. To ask whether there is more than that,
    monitor `ConformalTest("concentration", groups="confidence")` beside it.

    Args:
        test: a calibrated test, which is copied; None if only `update_p_values` is called.
        alpha: the chance of a false alarm.
        seed: of the numbers that break ties.

    >>> test = ConformalTest("max_logit").calibrate(torch.linspace(1, 5, 999)[:, None] * torch.eye(3)[0])
    >>> monitor = DriftMonitor(test, alpha=0.01)
    >>> familiar = torch.linspace(1, 5, 100).view(4, 25).T.reshape(100, 1) * torch.eye(3)[0]
    >>> evidence = monitor.update(familiar)
    >>> bool(monitor.alarm)
    False
    >>> evidence = monitor.update(familiar / 3)
    >>> bool(monitor.alarm), monitor.change
    (True, 100)
    """

    log_shares: Tensor
    rise: Tensor
    begin: Tensor
    seen: Tensor
    skipped: Tensor
    evidence: Tensor
    peak: Tensor
    alarm_at: Tensor
    began: Tensor

    def __init__(self, test: ConformalTest | None = None, alpha: float = 0.01, *, seed: int = 0) -> None:
        super().__init__()
        if not (test is None or isinstance(test, ConformalTest)):
            raise TypeError(f"expected test as a torch_boc.ConformalTest, got {type(test).__name__}")
        self.alpha, self.seed = check_share("alpha", alpha), seed
        self.test, self.own = (None if test is None else test.clone() for _ in range(2))
        with torch.inference_mode(False):  # a buffer that is made in inference mode could not be changed outside
            for name, value in self._start().items():
                self.register_buffer(name, value)

    @property
    def alarm(self) -> Tensor:
        """Whether the evidence has reached log(1 / alpha) at any time since the start: a boolean on the device."""
        return self.peak >= -math.log(self.alpha)

    @property
    def change(self) -> int | None:
        """After how many samples the change probably began, as seen at the alarm; None without an alarm.

        It reads from the device.
        """
        if self.own is not None:
            self.own.refuse_probabilities()
        return int(self.began) if bool(self.alarm) else None

    def update(self, logits: Tensor | Evidence, *, dim: int | None = None) -> Tensor:
        """Add the next samples of the stream. No value is read back.

        Args:
            logits: shape (N, C), or their evidence. With more axes, the order of the samples is that of `reshape`. No
                bet is placed on rows with NaN or +inf; they are counted in `skipped`.
            dim: the class axis, if it is not that of the test.

        Returns:
            The evidence after each sample, with one axis.
        """
        if self.own is None:
            raise ValueError("expected a monitor with a test, got one without; use update_p_values")
        placing = self.own.place(logits, dim=dim)
        uniform = seeded_uniforms(self.seed, self.seen + placing.valid.cumsum(0) - 1)
        ranked = [uniform.new_zeros(0)]
        for first in range(0, len(uniform), PIECE):  # each sample is ranked among all before it, which it then joins
            part = slice(first, first + PIECE)
            group = None if placing.group is None else placing.group[part]
            piece = Placing(placing.place[part], group, placing.valid[part])
            ranks = look_up_ranks(self.own.counts, self.own.counts.cumsum(-1), piece.place, group)
            p = rank_p_values(stream_ranks(ranks, *piece), uniform[part])
            ranked.append(torch.where(piece.valid, p, torch.nan))
            self.own.add(piece)
        return self._bet(torch.cat(ranked))

    def update_p_values(self, p: Tensor) -> Tensor:
        """Add p-values that were made elsewhere: independent and uniform in (0, 1) if nothing has changed.

        Conformal p-values are so only if they are smoothed, and if each sample joins the held-out ones after it is
        ranked. NaN is skipped. Returns the evidence after each p-value.
        """
        if not isinstance(p, Tensor) or not p.is_floating_point():
            got = getattr(p, "dtype", type(p).__name__)
            raise TypeError(f"expected p-values as a floating-point tensor, got {got}")
        if p.device.type == "cpu" and not torch.compiler.is_compiling() and bool(((p < 0) | (p > 1)).any()):
            raise ValueError(f"expected p-values in [0, 1], got {float(p.min())} to {float(p.max())}")
        return self._bet(widen(p).reshape(-1))

    def reset(self) -> None:
        """Forget the stream, and start again from the held-out samples."""
        self.own = None if self.test is None else self.test.clone()
        for name, value in self._start().items():
            getattr(self, name).copy_(value)

    def _bet(self, p: Tensor) -> Tensor:
        """Bet on p-values, and write the state. Returns the evidence after each."""
        bets = place_bets(p, Capital(self.log_shares, self.rise, self.begin), self.seen)
        number = self.seen + (~p.isnan()).cumsum(0)
        reached = bets.evidence >= -math.log(self.alpha)
        never = torch.iinfo(torch.int64).max
        first = torch.cat([torch.where(reached, number, never), number.new_full((1,), never)]).amin()
        new = (self.alarm_at == 0) & (first < never)
        at_alarm = torch.where(reached & (number == first), bets.begin, 0).sum()
        self.began.copy_(torch.where(new, at_alarm, self.began))
        self.alarm_at.copy_(torch.where(new, first, self.alarm_at))
        self.peak.copy_(torch.cat([bets.evidence, self.peak.reshape(1)]).amax())
        self.evidence.copy_(torch.cat([self.evidence.reshape(1), bets.evidence])[-1])
        self.skipped.add_(p.isnan().sum())
        self.seen.add_((~p.isnan()).sum())
        for name, value in bets.capital._asdict().items():
            getattr(self, name).copy_(value)
        return bets.evidence

    @staticmethod
    def _start() -> dict[str, Tensor]:
        """The states before the first sample."""
        number, count = torch.zeros((), dtype=torch.float64), torch.zeros((), dtype=torch.int64)
        counts = {name: count.clone() for name in ("seen", "skipped", "alarm_at", "began")}
        return {**empty_capital()._asdict(), **counts, "evidence": number.clone(), "peak": number.clone()}

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Move to another device with the module, but not to another dtype."""
        super()._apply(moves_only(fn), recurse)
        return self

    def get_extra_state(self) -> Tensor:
        """The chance of a false alarm, as a tensor, so that every file format can hold it."""
        return torch.tensor(self.alpha, dtype=torch.float64)

    def set_extra_state(self, state: Tensor) -> None:
        """Raise if the stream began with another chance of a false alarm: its alarm would not be that of this one."""
        if float(state) != self.alpha:
            raise ValueError(f"expected the state of a monitor with alpha={self.alpha}, got alpha={float(state)}")

    def extra_repr(self) -> str:
        """The arguments, for `print(module)`."""
        return f"alpha={self.alpha}, seed={self.seed}"
