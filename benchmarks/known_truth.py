"""Populations whose true errors and areas are known, to draw samples from: what intervals and sentences are judged by.

The rows of a population are real logits, of the zoo, and each has the chances with which its target is drawn. So the
true calibration error of any confidence is a sum over the rows, without chance: that of the same bins with infinitely
many samples.
"""

import math
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from torch_boc import zoo
from torch_boc.core.tally import equal_bin
from torch_boc.functional.summary import calibration_error

BINS = 15
TPR = 0.95


class Population(NamedTuple):
    """Rows of logits, and the chances (rows, classes) of their targets."""

    logits: Tensor
    chances: Tensor

    def draw(self, samples: int, numbers: Any) -> tuple[Tensor, Tensor]:
        """Logits and targets of this many samples, with replacement."""
        rows = torch.from_numpy(numbers.integers(len(self.logits), size=samples))
        levels = torch.from_numpy(numbers.random(samples)).unsqueeze(1)
        target = (self.chances[rows].cumsum(1) < levels).sum(1).clamp_max(self.chances.shape[1] - 1)
        return self.logits[rows], target

    def true_error(self, confidence: Tensor, prediction: Tensor, bins: int = BINS) -> float:
        """The calibration error of what a method says of every row, with infinitely many samples."""
        chance = self.chances.gather(1, prediction.unsqueeze(1)).squeeze(1)
        return float(calibration_error(confidence, chance, bins))


@cache
def network(name: str, temperature: float) -> Population:
    """The test logits of a network of the zoo, if it were calibrated at `temperature`: perfectly so if that is 1."""
    logits = zoo.load(name).id.logits.double()
    return Population(logits, torch.softmax(logits / temperature, 1))


def one_bad_bin(name: str, lost: float = 0.3) -> Population:
    """A network that is calibrated but for the confidences from 0.8 to 0.8667, which are too high by `lost`."""
    logits, chances = network(name, 1.0)
    top, place = chances.max(1)
    bad = (equal_bin(top, BINS) == 12).double()
    change = torch.full_like(chances, lost / (chances.shape[1] - 1)).scatter_(1, place.unsqueeze(1), -lost)
    return Population(logits, chances + bad.unsqueeze(1) * change)


class Normals(NamedTuple):
    """Scores of two sets, both normal, the in-distribution ones higher by `shift` and `spread` times as wide."""

    shift: float
    spread: float = 1.0

    def draw(self, id_samples: int, ood_samples: int, numbers: Any) -> tuple[Tensor, Tensor]:
        """Scores of both sets."""
        first = numbers.normal(self.shift, self.spread, id_samples)
        return torch.from_numpy(first), torch.from_numpy(numbers.normal(0, 1, ood_samples))

    def truth(self, ratio: float) -> dict[str, float]:
        """AUROC, FPR95 and average precision, with `ratio` out-of-distribution samples for each other."""
        recall = (torch.arange(200_000, dtype=torch.float64) + 0.5) / 200_000
        alarms = self._above(recall)
        area = float(torch.special.ndtr(torch.tensor(self.shift / math.hypot(1, self.spread), dtype=torch.float64)))
        fpr95 = float(self._above(torch.tensor(TPR, dtype=torch.float64)))
        return {"auroc": area, "fpr95": fpr95, "aupr": float((recall / (recall + ratio * alarms)).mean())}

    def _above(self, recall: Tensor) -> Tensor:
        """The share of out-of-distribution samples above the threshold that keeps `recall` of the others."""
        return torch.special.ndtr(-(self.shift - self.spread * torch.special.ndtri(recall)))


def normals(auroc: float, spread: float = 1.0) -> Normals:
    """Two normals with a given AUROC."""
    place = torch.special.ndtri(torch.tensor(auroc, dtype=torch.float64))
    return Normals(float(place) * math.hypot(1, spread), spread)


def made_logits(samples: int, numbers: Any, *, evenness: float, doubt: float = -1.0, classes: int = 6) -> Tensor:
    """Logits with random odds around `doubt`; the higher `evenness`, the more evenly the rivals share them."""
    odds = 1 / (1 + torch.from_numpy(numbers.normal(-doubt, 1, (samples, 1))).exp())
    shares = torch.from_numpy(numbers.dirichlet([evenness] * (classes - 1), samples)).clamp_min(1e-12)
    return torch.cat([torch.zeros(samples, 1, dtype=torch.float64), (odds * shares).log()], 1)
