"""Confidences and whether they were right: for each sample, and as sums over any number of samples.

The calibration of a method follows from the sums alone. Those of two parts of a data set add up, so that a part can be
of any size, and can be summed up anywhere.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from ..functional.histogram import count, equal_bin

# The number of cells in each bin of confidence, for right and for wrong predictions. The bootstrap draws cells.
SUB_CELLS = 64


class Judged(NamedTuple):
    """For each test sample, the confidence of a method, whether its prediction is right, and the loss of the target."""

    confidence: Tensor
    correct: Tensor
    nll: Tensor


class BinSums(NamedTuple):
    """Sums over the samples in each bin of confidence, each of shape (bins,).

    Attributes:
        samples: the number of samples.
        hits: the number of right predictions.
        confidence: the sum of the confidences.
        squares: the sum of (right - confidence)².
        chance: the sum of p (1 - p), the variance that perfectly calibrated confidences p would have.
    """

    samples: Tensor
    hits: Tensor
    confidence: Tensor
    squares: Tensor
    chance: Tensor


class JudgedTally(NamedTuple):
    """Sums over judged samples, in float64.

    Attributes:
        cells: (3, 2, bins, sub-cells): the number of samples, the sum of their confidences, and the sum of their Brier
            scores, for wrong and for right predictions, in each cell of confidence.
        nll: (2,), the sum of the losses and of their squares.
    """

    cells: Tensor
    nll: Tensor

    @property
    def bins(self) -> int:
        """The number of bins of confidence."""
        return self.cells.shape[2]

    @property
    def samples(self) -> int:
        """The number of samples."""
        return int(self.cells[0].sum())

    def mean_nll(self) -> float:
        """The mean loss."""
        return float(self.nll[0]) / self.samples

    def brier(self) -> float:
        """The mean of (confidence - right)²."""
        return float(self.cells[2].sum()) / self.samples

    def accuracy(self) -> float:
        """The share of right predictions."""
        return float(self.cells[0, 1].sum()) / self.samples

    def in_bins(self) -> BinSums:
        """The sums of each bin."""
        samples, confidence, squares = self.cells.sum(-1)
        # With s = (confidence - right)², p (1 - p) is p - s if the prediction is wrong, and (1 - p) - s if it is right.
        away = torch.stack([confidence[0], samples[1] - confidence[1]])
        chance = (away - squares).clamp_min(0.0).sum(0)
        return BinSums(samples.sum(0), samples[1], confidence.sum(0), squares.sum(0), chance)

    def filled(self) -> tuple[Tensor, Tensor]:
        """For each cell with samples, its count; and its bin, correctness, mean confidence and mean Brier score."""
        flat = self.cells.flatten(1)
        places = flat[0].nonzero().flatten()
        means = flat[1:, places] / flat[0, places]
        size = self.bins * SUB_CELLS
        bin_of, right = places % size // SUB_CELLS, places >= size
        return flat[0, places], torch.stack([bin_of.double(), right.double(), *means])


class JointTally(NamedTuple):
    """Sums over samples that two methods judge.

    Attributes:
        cells: (3, 4 bins²): the number of samples, and the sums of right - confidence of each method. The samples of a
            cell have the same bin and the same correctness, for both methods.
        bins: the number of bins of confidence.
    """

    cells: Tensor
    bins: int

    def filled(self) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """For each cell with samples, its count, and its mean errors in the bins of each method (cells, bins)."""
        places, bins = self.cells[0].nonzero().flatten(), self.bins
        counts, *means = self.cells[0, places], *(self.cells[1:, places] / self.cells[0, places])
        homes = places // (4 * bins), places // 4 % bins
        one, other = (
            (home.unsqueeze(1) == torch.arange(bins)) * mean.unsqueeze(1)
            for home, mean in zip(homes, means, strict=True)
        )
        return counts, (one, other)


def tally_judged(judged: Judged, bins: int) -> JudgedTally:
    """The sums of some samples.

    >>> tally = tally_judged(Judged(torch.tensor([0.9, 0.6]), torch.tensor([True, False]), torch.ones(2)), 2)
    >>> tally.samples, tally.accuracy(), tally.in_bins().confidence
    (2, 0.5, tensor([0.0000, 1.5000], dtype=torch.float64))
    """
    confidence, hit = judged.confidence.double(), judged.correct.double()
    size = bins * SUB_CELLS
    home = equal_bin(confidence, bins)
    # equal_bin(confidence, size) could put a confidence at the edge of a bin into a cell of another bin, by rounding.
    within = (confidence * size).ceil().nan_to_num(1.0).long() - 1 - home * SUB_CELLS
    place = home * SUB_CELLS + within.clamp(0, SUB_CELLS - 1) + judged.correct * size
    columns = torch.stack([torch.ones_like(confidence), confidence, (confidence - hit).square()])
    cells = count(place.expand(3, -1), columns, 2 * size).view(3, 2, bins, SUB_CELLS)
    nll = judged.nll.double()
    return JudgedTally(cells, torch.stack([nll.sum(), nll.square().sum()]))


def tally_both(one: Judged, other: Judged, bins: int) -> JointTally:
    """The sums of samples that two methods judge."""
    places = [equal_bin(x.confidence, bins) for x in (one, other)]
    cell = (places[0] * bins + places[1]) * 4 + one.correct.long() * 2 + other.correct.long()
    errors = [x.correct.double() - x.confidence.double() for x in (one, other)]
    columns = torch.stack([torch.ones_like(errors[0]), *errors])
    return JointTally(count(cell.expand(3, -1), columns, 4 * bins**2), bins)
