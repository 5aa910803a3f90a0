"""How often guarantees are broken under a known truth: studies for `python -m benchmarks.coverage`.

The limit of each share is in the column `truth`, and its Monte Carlo error in the column `error`.
"""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy
import torch
from torch import Tensor

from benchmarks.known_truth import BINS, network
from torch_boc import RiskMonitor
from torch_boc.evaluation.intervals import random_numbers
from torch_boc.evaluation.reliability import Judged, judge
from torch_boc.functional import scores
from torch_boc.functional.acceptance import accepted_place
from torch_boc.functional.betting import risk_evidence

MAX_ERROR, DELTA, ALPHA = 0.01, 0.05, 0.05
ERRORS = (0.01, 0.02, 0.03, 0.05, 0.1)  # of the streams of labels


def share_row(case: str, what: str, limit: float, hits: Any) -> dict[str, Any]:
    """A line of the table: how often something happened, with its Monte Carlo error."""
    share = float(numpy.mean(hits))
    error = math.sqrt(share * (1 - share) / len(hits))
    return {"case": case, "what": what, "truth": limit, "share": round(share, 4), "error": round(error, 4)}


def audit_study(n: int, repetitions: int) -> list[dict[str, Any]]:
    """`RiskMonitor` on streams of n labels: alarms, and intervals that ever miss the error."""
    rows, number = [], torch.arange(1, n + 1)
    for error in ERRORS:
        numbers, alarms, missed = random_numbers(0, "audit", str(error), str(n)), [], []
        for _ in range(repetitions):
            bad, monitor = torch.from_numpy(numbers.random(n) < error), RiskMonitor(MAX_ERROR, ALPHA)
            monitor.update(~bad)
            alarms.append(int(monitor.alarm_at) or math.inf)
            ends = [risk_evidence(number, bad.cumsum(0), error, above=x).max() for x in (True, False)]
            missed.append(max(ends) >= math.log(2 / ALPHA))
        case = f"error {100 * error:.0f} %"
        limit = ALPHA if error <= MAX_ERROR else 1.0
        rows.append(share_row(f"{case}: ever an alarm", "alarm", limit, numpy.isfinite(alarms)))
        rows.append(share_row(f"{case}: ever an interval without it", "interval", ALPHA, missed))
        rows.append({"case": f"{case}: median number of labels", "what": "alarm", "share": numpy.median(alarms)})
    return rows


class Truth(NamedTuple):
    """Predictions from the lowest score to the highest, and the chance that each is wrong."""

    error: Tensor

    def draw(self, samples: int, numbers: Any) -> tuple[Tensor, Tensor]:
        """The counts of correct and of wrong ones of a held-out set, by the place of their score."""
        rows = torch.from_numpy(numbers.integers(len(self.error), size=samples))
        wrong = torch.from_numpy(numbers.random(samples)) < self.error[rows]
        counts = torch.bincount(rows * 2 + wrong, minlength=2 * len(self.error)).view(-1, 2)
        return counts[:, 0], counts[:, 1]

    def accepted(self, lowest: int) -> tuple[float, float]:
        """The true error of what is accepted from this place on, and its share."""
        some = self.error[lowest:]
        return float(some.mean()) if len(some) else 0.0, len(some) / len(self.error)


def real(name: str, temperature: float) -> Truth:
    """The predictions of a network, if it were calibrated at this temperature."""
    logits, chances = network(name, temperature)
    score, prediction = scores["log_odds"](logits), logits.argmax(1, keepdim=True)
    return Truth(1 - chances.gather(1, prediction)[score.argsort(), 0])


def steps(*errors: float) -> Truth:
    """An error that changes in steps."""
    return Truth(torch.tensor(errors, dtype=torch.float64).repeat_interleave(4000 // len(errors)))


def truths() -> Mapping[str, Truth]:
    """Networks, and errors that are made to break the chains."""
    networks = {"minilm-clinc150": 1.0, "resnet20-cifar10": 1.4, "roberta-agnews": 1.0, "vit-cifar10": 1.0}
    return {
        **{name: real(name, temperature) for name, temperature in networks.items()},
        "just too high everywhere": steps(1.001 * MAX_ERROR),
        "too high below": steps(*[0.03] * 10, *[0.0] * 10),
        "just too high below": steps(*[0.0201] * 10, *[0.0] * 10),
        "mistakes at the top": steps(*[0.006] * 19, 0.09),
        "up and down": steps(*[0.0, 0.0201] * 10),
    }


def acceptance_study(n: int, repetitions: int) -> list[dict[str, Any]]:
    """`Acceptance` of n held-out samples at 1 %: how often the true error is above, and what is accepted."""
    rows = []
    for case, truth in truths().items():
        numbers = random_numbers(0, "acceptance", case, str(n))
        found = [truth.accepted(accepted_place(*truth.draw(n, numbers), MAX_ERROR, DELTA)) for _ in range(repetitions)]
        errors, covered = numpy.array(found).T
        rows.append(share_row(case, f"error above {MAX_ERROR:.0%}", DELTA, errors > MAX_ERROR * (1 + 1e-12)))
        rows.append({"case": case, "what": "accepted", "share": round(float(covered.mean()), 4)})
    return rows


def few_errors_study(n: int, repetitions: int) -> list[dict[str, Any]]:
    """The interval of the ECE where few predictions, or few mistakes, are among n: confidences around a wrong mean."""
    rows = []
    for accuracy, claimed in ((0.99, 0.999), (0.995, 1.0), (0.98, 0.99), (0.97, 0.995), (0.01, 0.001), (0.02, 0.1)):
        case = f"accuracy {accuracy:.1%}, mean confidence {claimed:.1%}"
        numbers, held = random_numbers(0, "few errors", case, str(n)), []
        for _ in range(repetitions):
            right = torch.from_numpy(numbers.random(n) < accuracy)
            confidence = torch.from_numpy(claimed + min(claimed, 1 - claimed) * numbers.uniform(-1, 1, n))
            row, _ = judge(Judged(confidence, right, torch.zeros(n).double()), BINS, 100, numbers)
            held.append(row["ece_low"] - 1e-12 <= abs(accuracy - claimed) <= row["ece_high"] + 1e-12)
        rows.append(share_row(case, "interval of the ECE with the true one", 0.95, held))
    return rows
