"""What a tally of next-token predictions says: a flat dict of numbers."""

import math

from torch import Tensor

from ..core.precision import widen
from .next_tokens import RANKS, SCALES, SCORE_BINS, MoreSums, TextTally
from .separation import binned_auroc
from .summary import summarize
from .tallies import BinCounts, BinSums

LOST_COINS = list(SCALES).index("lost_coins")
# The keys of `summarize` that are kept, under the same names or under those on the right.
KEPT = {
    "accuracy": "accuracy",
    "nll": "nll",
    "confidence": "confidence",
    "ece_confidence": "ece",
    "brier_confidence": "brier_confidence",
    "gap": "gap",
    "forced_gap": "forced_gap",
    "free_gap": "free_gap",
    "concentration": "concentration",
}


def text_summary(total: TextTally) -> dict[str, float]:
    """The numbers of a text.

    Returns:
        Python numbers; a mean over no tokens is NaN.

        - `tokens`, how many predictions were scored; `invalid`, how many rows of logits had NaN or +inf.
        - `nll`, the mean negative log-likelihood of the tokens in nats, and `perplexity`, its exponential.
        - `accuracy`, the share of tokens that were the likeliest, and `top_5`, `top_10`, `top_100` and `top_1000`.
        - Means over the predictions: `confidence`, `entropy` in nats, `lost_coins`, `gap`, `forced_gap`, `free_gap`,
          `concentration`; and the median `lost_coins_q50` with the quantiles `lost_coins_q05` and `lost_coins_q95`,
          exact to 1 %.
        - `ece`, of the confidence in 15 bins of equal width; `ece_chance`, about what a perfectly calibrated model
          would have by chance, if its predictions were independent; `brier_confidence`, the mean of
          (confidence - right)^2, where right is 1 or 0; `brier_all`, the mean of the sum over the vocabulary of
          (p_c - y_c)^2, between 0 and 2.
        - `forced_share`, the part of the mean gap that confidence forces, and `forced_variance`, the part of its
          variance: 1 - Var(free gap) / Var(gap).
        - `auroc_NAME` for the names of `SCALES`: the chance that a right prediction has a higher score than a wrong
          one; and `auroc_NAME_at_equal_confidence`, the same over pairs of about equal confidence. Lost coins, entropy
          and rho count with a minus sign. Each is computed from 4,096 bins, and can be wrong by `auroc_NAME_error`.
    """
    found = {key: float(value) for key, value in summarize(total.predictions).items()}
    count = found["samples"] or math.nan
    more = dict(zip(MoreSums._fields, (float(x) / count for x in total.sums), strict=True))
    variance = found["gap_std"] ** 2
    free = more["free_gap_square"] - found["free_gap"] ** 2
    numbers = {new: found[old] for old, new in KEPT.items()}
    numbers["ece_chance"] = chance_error(total)
    numbers |= {"perplexity": _exp(found["nll"]), "entropy": more["entropy"], "lost_coins": more["lost_coins"]}
    numbers |= {f"lost_coins_q{100 * x:02.0f}": lost_coins_quantile(total, x) for x in (0.05, 0.5, 0.95)}
    numbers |= {f"top_{r}": int(n) / count for r, n in zip(RANKS[1:], total.ranks[1:], strict=True)}
    numbers |= {"brier_all": more["brier_all"], "forced_share": found["forced_gap"] / (found["gap"] or math.nan)}
    numbers["forced_variance"] = 1 - free / variance if variance > 0 else math.nan
    return {"tokens": int(found["samples"]), "invalid": int(found["invalid"]), **numbers, **_separation(total.scores)}


def _separation(scores: Tensor) -> dict[str, float]:
    """The AUROCs of all scores, over all pairs and over those of one stratum."""
    right, wrong = scores.sum(2)
    aurocs, errors = (x.tolist() for x in binned_auroc(right, wrong))
    within = auroc_within(*scores).tolist()
    found: dict[str, float] = {}
    for name, value, error, inside in zip(SCALES, aurocs, errors, within, strict=True):
        found |= {f"auroc_{name}": value, f"auroc_{name}_at_equal_confidence": inside, f"auroc_{name}_error": error}
    return found


def chance_error(total: TextTally) -> float:
    """The mean ECE of a perfectly calibrated model: the mean of |x| for a normal x, added up over the bins."""
    counts, sums = BinCounts(*total.predictions.bin_counts), BinSums(*total.predictions.bin_sums)
    samples = widen(counts.labelled)
    mean = sums.labelled_confidence / samples.clamp_min(1)
    deviation = (2 / math.pi * samples * mean * (1 - mean)).clamp_min(0).sqrt()
    return float(deviation.sum() / samples.sum())


def auroc_within(right: Tensor, wrong: Tensor) -> Tensor:
    """The AUROC over the pairs of the same stratum, from histograms of shape (S, strata, bins); a tie counts half.

    >>> right, wrong = torch.tensor([[[0, 1], [0, 1]]]), torch.tensor([[[1, 0], [0, 1]]])
    >>> auroc_within(right, wrong)
    tensor([0.7500], dtype=torch.float64)
    """
    positive, negative = widen(right), widen(wrong)
    below = negative.cumsum(-1) - negative / 2
    return (positive * below).sum((-1, -2)) / (positive.sum(-1) * negative.sum(-1)).sum(-1)


def lost_coins_histogram(total: TextTally) -> tuple[list[float], list[int]]:
    """The edges of the bins of the lost coins in rising order, and how many predictions are in each."""
    low, high = SCALES["lost_coins"]  # of minus the decimal logarithm
    counts = total.scores[:, LOST_COINS].sum((0, 1)).flip(0).tolist()
    return [10 ** (-high + (high - low) * i / SCORE_BINS) for i in range(SCORE_BINS + 1)], counts


def lost_coins_quantile(total: TextTally, level: float) -> float:
    """A quantile of the lost coins, interpolated on the logarithmic scale of its bin; NaN without predictions."""
    edges, counts = lost_coins_histogram(total)
    wanted = level * sum(counts)
    for i, count in enumerate(counts):
        if count and wanted <= count:
            return float(edges[i] * (edges[i + 1] / edges[i]) ** (wanted / count))
        wanted -= count
    return math.nan


def _exp(nll: float) -> float:
    """The perplexity; infinite where it is too large for a float."""
    return math.exp(nll) if nll < 700 else math.inf if nll == nll else math.nan
