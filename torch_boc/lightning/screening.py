"""A conformal test in a loop over loaders: calibrated on the first, and how many samples of each it flags."""

import copy

import torch
from torch import Tensor

from ..functional.checks import check_share
from ..functional.conformal import flagged_share, threshold_rank
from ..functional.evidence import Evidence, every
from ..nn import ConformalTest


def uncalibrated(test: bool | ConformalTest | None, alpha: float) -> ConformalTest | None:
    """A new test without samples, with the arguments of `test`, or with the default ones for True; None for no test."""
    if test is None or test is False:
        return None
    check_share("alpha", alpha)
    if not (test is True or isinstance(test, ConformalTest)):
        raise TypeError(f"expected test as True, False or a torch_boc.ConformalTest, got {type(test).__name__}")
    with torch.inference_mode(False):  # a buffer that is made in inference mode could not be changed outside
        found = ConformalTest() if test is True else copy.deepcopy(test)
        found.reset()
    return found


class CountedScores:
    """The scores of one loader, counted in the places of a test. No logits and no scores are kept.

    With two parts, samples 0, 2, 4, ... of this process are counted in the first part, and samples 1, 3, 5, ... in the
    second, however the loader cuts them into batches. All pixels or tokens of a sample are in the same part.

    Args:
        test: says how samples are scored; it is copied.
        parts: into how many parts the samples are cut.

    >>> from torch_boc.functional import gather
    >>> counted = CountedScores(ConformalTest("max_logit"), parts=2)
    >>> for size in (3, 2):
    ...     logits = torch.randn(size, 4)
    ...     counted.update(logits, gather(logits))
    >>> [part.samples.tolist() for part in counted.gathered()]
    [[3], [2]]
    """

    def __init__(self, test: ConformalTest, parts: int) -> None:
        self._parts = [copy.deepcopy(test) for _ in range(parts)]
        self._seen = 0

    def reset(self, device: torch.device) -> None:
        """Forget all samples, and move to the device of those that will come."""
        self._seen = 0
        with torch.inference_mode(False):
            for part in self._parts:
                part.reset()
                part.to(device)

    def update(self, logits: Tensor, evidence: Evidence) -> None:
        """Add a batch: logits with the classes on the second axis, and their evidence. No value is read back."""
        for number, part in enumerate(self._parts):
            start, step = (number - self._seen) % len(self._parts), len(self._parts)
            chosen = every(evidence, start, step)
            if part.scoring.temperature == 1.0:
                part.update(chosen)
            else:
                part.update(logits[start::step].movedim(1, part.dim), chosen.counted)
        self._seen += len(logits)

    def gathered(self) -> list[ConformalTest]:
        """The parts with the samples of all processes; every process must call it."""
        return [part.gathered() for part in self._parts]


def joined(parts: list[ConformalTest]) -> ConformalTest:
    """A new test with the samples of all parts."""
    with torch.inference_mode(False):
        whole = copy.deepcopy(parts[0])
        for part in parts[1:]:
            whole.merge(part)
    return whole


def share_flagged(held_out: ConformalTest, tested: list[ConformalTest], alpha: float) -> Tensor:
    """The share of the tested samples that are flagged at level `alpha`; raises if too few are held out to flag any."""
    samples = held_out.samples.tolist()
    if not any(threshold_rank(number, alpha) for number in samples):
        raise ValueError(f"expected enough held-out samples to flag one at alpha={alpha}, got {sum(samples)}")
    whole = joined(tested)
    return flagged_share(held_out.counts, whole.counts, alpha, whole.invalid)
