"""How often guarantees are broken under a known truth: studies for `python -m benchmarks.coverage`.

The limit of each share is in the column `truth`, and its Monte Carlo error in the column `error`.
"""

import math
import warnings
from collections.abc import Mapping
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy
import torch
from torch import Tensor

from benchmarks.known_truth import BINS, Population, network
from torch_boc import Acceptance, ConformalTest, DriftMonitor, RiskMonitor
from torch_boc.calibration import Calibrator, MatrixScaling, TemperatureScaling, VectorScaling
from torch_boc.data.logit_set import LogitSet
from torch_boc.evaluation.calibration import CalibratedSamples, calibration_rows
from torch_boc.evaluation.decisions import class_tables
from torch_boc.evaluation.inputs import probe_set
from torch_boc.evaluation.intervals import random_numbers
from torch_boc.evaluation.significance import significant_sign
from torch_boc.functional import scores
from torch_boc.functional.martingale import risk_evidence
from torch_boc.functional.selective import STARTS, chain_starts, lowest_accepted_bin

MAX_ERROR, DELTA, ALPHA = 0.01, 0.05, 0.05
BURSTS = ((5, 50), (10, 100), (10, 200), (20, 200), (20, 400))  # so many equal samples begin after that many others
FITTED = (TemperatureScaling, VectorScaling, MatrixScaling)
ERRORS = (0.01, 0.02, 0.03, 0.05, 0.1)  # of the streams of labels


def share_row(case: str, what: str, limit: float, hits: Any) -> dict[str, Any]:
    """A line of the table: how often something happened, with its Monte Carlo error."""
    share = float(numpy.mean(hits))
    error = math.sqrt(share * (1 - share) / len(hits))
    return {"case": case, "what": what, "truth": limit, "share": round(share, 4), "error": round(error, 4)}


def mean_row(case: str, what: str, values: Any) -> dict[str, Any]:
    """A line of the table: a mean with its Monte Carlo error."""
    error = numpy.std(values) / math.sqrt(len(values))
    return {"case": case, "what": what, "share": round(float(numpy.mean(values)), 4), "error": round(float(error), 4)}


def median_row(case: str, what: str, values: Any) -> dict[str, Any]:
    """A line of the table: a median with its Monte Carlo error, from the order statistics one standard error away."""
    ordered, half = numpy.sort(values), math.sqrt(len(values)) / 2
    low, high = (ordered[min(max(0, round(len(values) / 2 + x)), len(values) - 1)] for x in (-half, half))
    error = round(float(high - low) / 2, 1) if math.isfinite(high) else None
    return {"case": case, "what": what, "share": float(numpy.median(values)), "error": error}


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
        rows.append(median_row(f"{case}: median number of labels", "alarm", alarms))
    return rows


class Truth(NamedTuple):
    """Predictions from the lowest score to the highest, and the probability that each is wrong."""

    error: Tensor

    def draw(self, samples: int, numbers: Any) -> tuple[Tensor, Tensor]:
        """The counts of correct and of wrong ones of a held-out set, by the rank of their score."""
        rows = torch.from_numpy(numbers.integers(len(self.error), size=samples))
        wrong = torch.from_numpy(numbers.random(samples)) < self.error[rows]
        counts = torch.bincount(rows * 2 + wrong, minlength=2 * len(self.error)).view(-1, 2)
        return counts[:, 0], counts[:, 1]

    def accepted(self, lowest: int) -> tuple[float, float]:
        """The true error of what is accepted from this rank on, and its share."""
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
        draws = (truth.draw(n, numbers) for _ in range(repetitions))
        errors, covered = numpy.array([truth.accepted(lowest_accepted_bin(*x, MAX_ERROR, DELTA)) for x in draws]).T
        rows.append(share_row(case, f"error above {MAX_ERROR:.0%}", DELTA, errors > MAX_ERROR * (1 + 1e-12)))
        rows.append(mean_row(case, "accepted", covered))
    return rows


def shared_delta_study(n: int, repetitions: int) -> list[dict[str, Any]]:
    """What `Acceptance` accepts at 1 % if delta is shared among the chains that can start, and among all of them."""
    rows, all_starts = [], lambda samples, max_error, delta: ([*STARTS], delta / len(STARTS))
    for case, truth in truths().items():
        numbers = random_numbers(0, "shared delta", case, str(n))
        draws = [truth.draw(n, numbers) for _ in range(repetitions)]
        rules = {"among chains that can start": chain_starts, "among all chains": all_starts}
        for rule, starts in rules.items():
            with patch("torch_boc.functional.selective.chain_starts", starts):
                covered = [truth.accepted(lowest_accepted_bin(*x, MAX_ERROR, DELTA))[1] for x in draws]
            rows.append(mean_row(case, f"accepted, delta {rule}", covered))
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
            row, _ = calibration_rows(CalibratedSamples(confidence, right, torch.zeros(n).double()), BINS, 100, numbers)
            held.append(row["ece_low"] - 1e-12 <= abs(accuracy - claimed) <= row["ece_high"] + 1e-12)
        rows.append(share_row(case, "interval of the ECE with the true one", 0.95, held))
    return rows


def fitted_study(n: int, repetitions: int) -> list[dict[str, Any]]:
    """`Acceptance` at 5 % of logits that a calibrator gives, fitted on the same n samples, or on n others."""
    rows, most = [], 0.05
    for name in ("vit-cifar10", "minilm-clinc150"):
        truth = network(name, 1.0)
        for method in FITTED:
            for same in (True, False):
                case = f"{name}, {method.name} fitted on {'the same' if same else 'other'} samples"
                numbers, broken = random_numbers(0, "fitted", case, str(n)), []
                for _ in range(repetitions):
                    logits, target = truth.draw(n, numbers)
                    fit: Calibrator = method()
                    with warnings.catch_warnings():
                        warnings.simplefilter("ignore", UserWarning)  # many weights for so few samples
                        fit.fit(*((logits, target) if same else truth.draw(n, numbers)))
                    broken.append(true_risk(truth, fit, logits, target, most) > most)
                rows.append(share_row(case, f"error above {most:.0%}", DELTA, broken))
    return rows


def true_risk(truth: Population, fit: Calibrator, logits: Tensor, target: Tensor, most: float) -> float:
    """The true error of what is accepted by calibrated logits; 0 if nothing is."""
    held_out, everything = (fit.calibrate(x) for x in (logits, truth.logits))
    assert held_out.logits is not None
    assert everything.logits is not None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # nothing may be accepted
        accepted = Acceptance().calibrate(held_out.logits, target).accept(everything.logits, most, DELTA)
    right = truth.chances.gather(1, everything.prediction.unsqueeze(1))[accepted]
    return float(1 - right.mean()) if len(right) else 0.0


def bursts_study(n: int, repetitions: int) -> list[dict[str, Any]]:
    """False alarms of `DriftMonitor` in n samples with bursts of equal ones, and how often `dependence` warns."""
    rows, test = [], ConformalTest().calibrate(scores=(torch.arange(5_000) + 0.5) / 5_000)
    for size, gap in BURSTS:
        numbers, alarms, warned = random_numbers(0, "bursts", str(size), str(gap)), [], []
        for _ in range(repetitions):
            p = torch.from_numpy(numbers.random(n))
            place = torch.arange(n)
            within = place % (gap + size) - gap
            monitor = DriftMonitor(test, alpha=ALPHA)
            monitor.update(scores=p[place - within.clamp_min(0)])
            with warnings.catch_warnings(record=True) as messages:
                warnings.simplefilter("always")
                _ = monitor.dependence
            alarms.append(bool(monitor.alarm))
            warned.append(bool(messages))
        case = f"{size} equal samples after {gap}"
        rows += [share_row(case, "alarm", ALPHA, alarms), share_row(case, "warned", 1.0, warned)]
    return rows


def sets_study(n: int, repetitions: int) -> list[dict[str, Any]]:
    """Sets at a coverage of 90 %: what they cover, over all samples or in the worst class, and how many are empty."""
    rows = []
    for name in ("resnet20-cifar10", "vit-cifar10"):
        truth = network(name, 1.4)
        top = truth.chances.gather(1, truth.logits.argmax(1, keepdim=True))[:, 0]
        for nonempty, by_class in ((False, False), (True, False), (False, True), (True, True)):
            case = f"{name}, {'never empty' if nonempty else 'plain'}, {'by class' if by_class else 'all classes'}"
            numbers, shares = random_numbers(0, "sets", case, str(n)), []
            for _ in range(repetitions):
                accept = Acceptance("prediction", resolution=1024).calibrate(*truth.draw(n, numbers))
                sets = accept.sets(truth.logits, 0.9, nonempty=nonempty, by_class=by_class)
                within, empty = truth.chances * sets, ~sets.any(1)
                some = [within.sum() / len(sets), empty.double().mean(), top[empty].mean()]
                shares.append([*some, *(within.sum(0) / truth.chances.sum(0))])
            means, spread = numpy.mean(shares, 0), numpy.std(shares, 0) / math.sqrt(repetitions)
            places = {"covered": 0, "covered, worst class": 3 + int(means[3:].argmin())}
            places |= {} if means[1] < 1e-3 else {"empty": 1, "top class correct if empty": 2}
            for what, i in places.items():
                limit = 0.9 if i == 0 or (by_class and i > 2) else None
                row = {"case": case, "what": what, "truth": limit, "share": round(float(means[i]), 4)}
                rows.append(row | {"error": round(float(spread[i]), 4)})
    return rows


def classes_study(n: int, repetitions: int) -> list[dict[str, Any]]:
    """How often a report names any class as miscalibrated, and class 0, whose precision is lower by 0.12 or 0."""
    rows = []
    for lost in (0.0, 0.12):
        truth = network("resnet20-cifar10", 1.0)
        in_class = (truth.logits.argmax(1) == 0).double().unsqueeze(1)
        change = torch.full_like(truth.chances, lost / 9)
        change[:, 0] = -lost
        chances = (truth.chances + in_class * change).clamp_min(0)
        truth = Population(truth.logits, chances / chances.sum(1, keepdim=True))
        numbers, some, first = random_numbers(0, "classes", str(lost), str(n)), [], []
        for _ in range(repetitions):
            table = class_tables(probe_set(LogitSet(*truth.draw(n, numbers))), None)["classes"]
            named = table["prediction"][significant_sign(table, "excess") != 0].tolist()
            some.append(bool(set(named) - {0}))
            first.append(0 in named)
        case = f"precision of class 0 lower by {lost:.0%}"
        rows.append(share_row(case, "another class is named", 0.05, some))
        rows.append(share_row(case, "class 0 is named", 1.0 if lost else 0.05, first))
    return rows
