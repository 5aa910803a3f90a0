"""The slow reference: the paper's definitions, word for word, in arithmetic with digits to spare.

Nothing here uses the identities of `torch_boc`: confidence is a softmax value, coins are e^a / (e^a + e^b), and tails
are sums of binomial masses. Each function works on one row, and returns mpmath numbers.
"""

import math
from collections import namedtuple
from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
import scipy.special
import scipy.stats
import torch
from mpmath import mp, mpf
from torch import Tensor

# Every quantity of one given class of a row, and of the top class, under the names of `torch_boc.functional.Coins`.
Standing = namedtuple("Standing", "confidence odds dominance loss gap log_probability rank")
Probe = namedtuple("Probe", "prediction confidence odds dominance loss gap lower upper concentration")


def probe(row: Sequence[float]) -> Probe:
    """The probe of one row: largest softmax value, mean of the coins, and where the mean lies between its bounds."""
    with mp.workdps(_digits(row)):
        top = max(range(len(row)), key=lambda c: row[c])
        top_class = class_probe(row, top)
        lower, upper = dominance_bounds(top_class.odds, len(row))
        room = upper - lower
        concentration = (top_class.dominance - lower) / room if room > mpf(10) ** (8 - mp.dps) else mpf(0)
        return Probe(top, *top_class[:5], lower, upper, concentration)


def class_probe(row: Sequence[float], index: int) -> Standing:
    """The softmax value of a class, the mean of its coins against all others, and its place in the order of logits."""
    with mp.workdps(_digits(row) + int(max(row) - row[index])):
        weights = [mp.exp(mpf(z)) for z in row]
        coins = [weights[index] / (weights[index] + weight) for j, weight in enumerate(weights) if j != index]
        confidence, dominance = weights[index] / mp.fsum(weights), mp.fsum(coins) / len(coins)
        gap = dominance - confidence if len(row) > 2 else mpf(0)  # one coin: equal by definition, not to the last digit
        rank = 1 + sum(z > row[index] for z in row)
        odds = (1 - confidence) / confidence
        return Standing(confidence, odds, dominance, 1 - dominance, gap, mp.log(confidence), rank)


def _digits(row: Sequence[float]) -> int:
    """Digits that leave 40 after 1 - confidence, or the distance of logits that nearly tie, has cancelled, squared."""
    first, second = sorted(row)[:-3:-1]
    distance = first - second if second > -math.inf else 0
    width = first - min(row)
    return 50 + int(distance) + (int(-2 * math.log10(width)) if 0 < width < 1 else 0)


def dominance_bounds(odds: mpf, num_classes: int) -> tuple[mpf, mpf]:
    """The dominance of the two extreme rows: the weight of the rivals (the top's is 1) is spread evenly, or heaped."""
    rivals = num_classes - 1
    odds = mpf(odds)
    full = min(int(odds), rivals)
    heaped = full * mpf(1) / 2
    if full < rivals:
        heaped += 1 / (1 + odds - full) + (rivals - full - 1)
    return 1 / (1 + odds / rivals), heaped / rivals


def expected_wins(row: Sequence[float], trials: int) -> int:
    """round(k * dominance), half to even."""
    with mp.workdps(_digits(row)):
        return int(mp.nint(trials * probe(row).dominance))


def log_p_value(row: Sequence[float], trials: int) -> mpf:
    """The log of Pr{Binomial(k, confidence) >= round(k * dominance)}."""
    with mp.workdps(_digits(row)):
        return binomial_log_tail(expected_wins(row, trials), trials, probe(row).odds)


def binomial_log_tail(wins: int, trials: int, odds: float | mpf, *, digits: int = 40) -> mpf:
    """The log of Pr{Binomial(k, 1 / (1 + odds)) >= wins}: the masses from `wins` to k, or 1 minus the others."""
    if wins <= 0:
        return mpf(0)
    if wins > trials:
        return -mp.inf
    with mp.workdps(digits):
        p = 1 / (1 + mpf(odds))
        if wins > trials * p:
            first, ratios = wins, ((trials - i) / ((i + 1) * mpf(odds)) for i in range(wins, trials))
        else:
            first, ratios = wins - 1, (i * mpf(odds) / (trials - i + 1) for i in range(wins - 1, 0, -1))
        log_sum = _log_mass(first, trials, mpf(odds)) + mp.log(_series(ratios))
        return log_sum if wins > trials * p else mp.log1p(-mp.exp(log_sum))


def _log_mass(wins: int, trials: int, odds: mpf) -> mpf:
    """The log of binomial(k, w) p^w (1 - p)^(k - w)."""
    with mp.extradps(15):  # the logarithms of factorials cancel
        choose = mp.loggamma(trials + 1) - mp.loggamma(wins + 1) - mp.loggamma(trials - wins + 1)
        return choose + (trials - wins) * (mp.log(odds) if wins < trials else 0) - trials * mp.log1p(odds)


def _series(ratios: Iterator[mpf]) -> mpf:
    """1 + r1 + r1 r2 + ..., until a term no longer counts; the ratios decrease, and are below 1 after the first few."""
    total = term = mpf(1)
    for ratio in ratios:
        term *= ratio
        total += term
        if ratio < 1 and term < total * (1 - ratio) * mp.eps:
            break
    return total


def obvious_probe(logits: Tensor, trials: int = 100) -> dict[str, Tensor]:
    """What a user would write: softmax, sigmoid of differences, a mask for the top class, and SciPy for the p-value."""
    confidence, prediction = logits.softmax(-1).max(-1)
    top = logits.gather(-1, prediction.unsqueeze(-1))
    coins = torch.sigmoid(top - logits)
    rivals = torch.ones_like(coins).scatter(-1, prediction.unsqueeze(-1), 0)
    dominance = (coins * rivals).sum(-1) / (logits.shape[-1] - 1)
    wins = torch.round(trials * dominance)
    p_value = scipy.stats.binom.sf((wins - 1).double().cpu().numpy(), trials, confidence.double().cpu().numpy())
    return {
        "prediction": prediction,
        "confidence": confidence,
        "dominance": dominance,
        "gap": dominance - confidence,
        "p_value": torch.from_numpy(p_value).to(logits.device),
    }


def summary(logits: np.ndarray, target: np.ndarray, *, trials: int = 100, bins: int = 15) -> dict[str, float]:
    """The means over a data set, as a user would take them from float64 probabilities."""
    columns = obvious_probe(torch.from_numpy(logits).double(), trials).values()
    prediction, confidence, dominance, gap, p_value = (x.numpy() for x in columns)
    correct = prediction == target
    bounds = [dominance_bounds((1 - p) / p, logits.shape[-1]) for p in confidence.tolist()]
    forced = np.array([float(lower) for lower, _ in bounds]) - confidence
    return {
        "samples": len(logits),
        "confidence": confidence.mean(),
        "dominance": dominance.mean(),
        "gap": gap.mean(),
        "gap_std": gap.std(),
        "forced_gap": forced.mean(),
        "free_gap": (gap - forced).mean(),
        "p_value": p_value.mean(),
        "structural_score": 1 - p_value.mean(),
        "rejection_rate": (p_value <= 0.05).mean(),
        "accuracy": correct.mean(),
        "nll": -scipy.special.log_softmax(logits, axis=-1)[np.arange(len(target)), target].mean(),
        "brier_confidence": ((confidence - correct) ** 2).mean(),
        "brier_dominance": ((dominance - correct) ** 2).mean(),
        "ece": calibration_error(confidence, correct, bins),
        "ece_dominance": calibration_error(dominance, correct, bins),
        "gap_correct": gap[correct].mean(),
        "gap_wrong": gap[~correct].mean(),
    }


def calibration_error(score: np.ndarray, correct: np.ndarray, bins: int = 15) -> float:
    """Expected calibration error over equal bins that are closed on the right, bin by bin."""
    edges = np.linspace(0, 1, bins + 1)
    error = 0.0
    for low, high in pairwise(edges):
        inside = (score > low) & (score <= high)
        if inside.any():
            error += inside.mean() * abs(correct[inside].mean() - score[inside].mean())
    return error
