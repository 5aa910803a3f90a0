"""Selective prediction: a threshold with a guaranteed error among accepted predictions, and risk by coverage.

All functions take the counts of correct and of wrong predictions by the bin of their score, from `count_bins`. A
prediction is accepted if its bin is not below the threshold. For a threshold that is fixed beforehand, the number of
wrong ones among n accepted held-out predictions is Binomial(n, risk), so that

    Pr{Binomial(n, error) <= wrong}

is a p-value of the hypothesis that the risk is above `error`. The thresholds are tested from the highest down to the
lowest, one after the other, and a chain of tests ends at the first threshold that is not rejected (fixed-sequence
testing; Angelopoulos and others, 2021, "Learn then test"). The probability that a chain passes the first threshold
whose risk is too high is that of one test. Because one confident mistake would end a single chain at once, there are
several, which share delta. They start where so many predictions are accepted that 0, 2 and 6 mistakes are rejected. A
chain that would start with more than half of the held-out samples is left out, and its share of delta goes to the
others. The starts are ranks among the held-out scores, not thresholds that are fixed beforehand: simulations show that
the guarantee holds with them (`benchmarks/guarantees.py`), there is no proof.
"""

from bisect import bisect_left
from typing import NamedTuple

import torch
from torch import Tensor

from ..core.dtypes import accumulation_dtype, to_wide
from ..core.tally import is_class
from .conformal import lower_tail
from .per_sample import SampleStats, sample_stats
from .registry import scores
from .score_bins import BinnedScores, ScoreConfig, bin_edges, bin_scores
from .summary import COVERAGES, binned_error

# The number of mistakes with which each chain of tests can start.
STARTS = (0, 2, 6)
BY_LOG_ODDS = ScoreConfig("log_odds")


def required_samples(wrong: int, error: float, chance: float) -> int:
    """The least n for which Pr{Binomial(n, error) <= wrong} is at most `chance`.

    >>> required_samples(0, 0.01, 0.05), required_samples(2, 0.01, 0.05)
    (299, 628)
    """
    return bisect_left(range(2**40), -chance, key=lambda n: -lower_tail(wrong, n, error))


def chain_starts(samples: int, max_error: float, delta: float) -> tuple[list[int], float]:
    """The numbers of mistakes with which chains start among this many samples, and the share of delta for each chain.

    >>> chain_starts(299, 0.01, 0.06), chain_starts(3000, 0.01, 0.06)
    (([0], 0.06), ([0, 2, 6], 0.02))
    """
    share = delta / len(STARTS)
    starts = [k for k in STARTS if k == 0 or 2 * required_samples(k, max_error, share) <= samples]
    return starts, delta / len(starts)


def lowest_accepted_bin(right: Tensor, wrong: Tensor, max_error: float, delta: float) -> int:
    """The lowest bin in which predictions can be accepted; the number of bins if none can be.

    With probability at least 1 - `delta` over the draw of the held-out set, at most a share of `max_error` of the
    accepted predictions is wrong, whatever the classifier and the score are. No order of the risks is assumed.

    Args:
        right: (bins,), the counts of correct held-out predictions, on the CPU.
        wrong: (bins,), those of wrong ones.
        max_error: the largest error rate among the accepted predictions.
        delta: the probability with which it may be exceeded.

    >>> right, wrong = torch.tensor([100, 400, 900]), torch.tensor([80, 30, 0])
    >>> lowest_accepted_bin(right, wrong, 0.05, 0.05), lowest_accepted_bin(right, wrong, 0.01, 0.05)
    (1, 2)
    """
    accepted, mistakes = ((x.flip(-1).cumsum(-1).flip(-1)) for x in (right + wrong, wrong))
    mistakes_at_start, chance = chain_starts(int(accepted[0]), max_error, delta)
    starts = {int((accepted >= required_samples(k, max_error, chance)).sum()) - 1 for k in mistakes_at_start}
    # With the same number of mistakes, more accepted predictions never have a larger p-value.
    tested = sorted({*wrong.nonzero().flatten().tolist(), *starts} - {-1}, reverse=True)
    lowest, in_chain = len(right), False
    for threshold, number, bad in zip(tested, accepted[tested].tolist(), mistakes[tested].tolist(), strict=True):
        rejected = (in_chain or threshold in starts) and lower_tail(bad, number, max_error) <= chance
        if in_chain and not rejected:
            lowest = threshold + 1
        in_chain = rejected
        if threshold <= min(starts) and not in_chain:
            break
    return 0 if in_chain else lowest


def aurc(right: Tensor, wrong: Tensor) -> Tensor:
    """The area under the curve of risk by coverage: the mean over k of the error among the k highest scores.

    It is low if correct predictions score higher than wrong ones, and if few are wrong. For samples in one bin, it is
    the mean over their orders.

    Args:
        right: (..., bins), the counts of correct predictions.
        wrong: (..., bins), those of wrong ones.

    Returns:
        Shape (...), float64 (float32 on MPS); NaN without samples.

    >>> aurc(torch.tensor([0, 1, 1]), torch.tensor([1, 0, 0]))  # errors of 0, 0 and 1/3
    tensor(0.1111, dtype=torch.float64)
    """
    here, bad, above, bad_above = _risks(right, wrong)
    rate = bad / here.clamp_min(1.0)
    # The sum over i = 1, ..., m of (w + i r) / (n + i), with m samples here of which a share r is wrong.
    harmonic = torch.digamma(above + here + 1.0) - torch.digamma(above + 1.0)
    return (bad + (bad_above - above * rate) * harmonic).sum(-1) / here.sum(-1)


def augrc(right: Tensor, wrong: Tensor) -> Tensor:
    """The area under the generalized curve: the mean over k of the share of samples that are wrong and among the k.

    Unlike `aurc`, it does not weigh the highest scores most (Traub and others, 2024). Arguments as for `aurc`.

    >>> augrc(torch.tensor([0, 1, 1]), torch.tensor([1, 0, 0]))  # shares of 0, 0 and 1/3
    tensor(0.1111, dtype=torch.float64)
    """
    here, bad, _, bad_above = _risks(right, wrong)
    return (here * bad_above + bad * (here + 1.0) / 2.0).sum(-1) / here.sum(-1) ** 2


def coverage_at_error(right: Tensor, wrong: Tensor, error: float) -> Tensor:
    """The largest share of samples that a threshold accepts with at most this error among them; 0 if there is none.

    It describes these samples. What holds for new ones is `lowest_accepted_bin`. Arguments as for `aurc`.

    >>> coverage_at_error(torch.tensor([1, 8, 9]), torch.tensor([1, 1, 0]), 0.06)
    tensor(0.9000, dtype=torch.float64)
    """
    here, bad, above, bad_above = _risks(right, wrong)
    accepted = above + here
    kept = torch.where(bad_above + bad <= error * accepted * (1 + 1e-12), accepted, 0.0)
    return kept.amax(-1) / here.sum(-1)


def equal_mass_error(right: Tensor, wrong: Tensor, bins: int = 15) -> Tensor:
    """The calibration error in groups of confidence with as many samples each, from counts of shape (bins,).

    All samples of a bin count with the confidence of its middle. A bin at the edge of two groups is divided.

    Args:
        right: the number of correct predictions in each bin of the log odds, for the resolution of `BY_LOG_ODDS`.
        wrong: that of wrong ones.
        bins: the number of groups.
    """
    here = to_wide(right + wrong)
    edges = bin_edges(BY_LOG_ODDS.resolution).to(here).sigmoid()
    excess = right - here * (edges[1:] + edges[:-1]) / 2
    upto = to_wide((right + wrong).cumsum(0))
    ends = upto[-1] * torch.arange(1, bins + 1, device=here.device) / bins
    last = torch.searchsorted(upto, ends).clamp_max(len(upto) - 1)
    # Sums from the start to each end: a running sum of floats has no deterministic form on a GPU.
    whole = torch.arange(len(upto), device=here.device) < last.unsqueeze(1)
    total = torch.where(whole, excess, 0.0).sum(1) + excess[last] * (1.0 - (upto[last] - ends) / here[last])
    return binned_error(total.diff(prepend=total.new_zeros(1)), upto[-1])


def risk_summary(counts: Tensor, bins: int) -> dict[str, Tensor]:
    """The numbers of `RISK_KEYS`, from the counts of correct and of wrong predictions, of shape (2, bins)."""
    right, wrong = counts
    areas = {"aurc": aurc(right, wrong), "augrc": augrc(right, wrong)}
    areas["ece_equal_mass"] = equal_mass_error(right, wrong, bins)
    return areas | {key: coverage_at_error(right, wrong, error) for key, error in COVERAGES.items()}


def bin_predictions(stats: SampleStats, scoring: ScoreConfig = BY_LOG_ODDS) -> tuple[BinnedScores, Tensor]:
    """The bins of the predictions, of which those with a target that is a class are valid; and which are wrong."""
    if stats.target is None:
        raise ValueError("expected statistics with targets, got none")
    binned = bin_scores(stats, scoring)
    valid = binned.valid & is_class(stats.target, stats.num_classes)
    return binned._replace(valid=valid), stats.coins.prediction != stats.target


def _risks(right: Tensor, wrong: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """For each bin, the samples and the wrong ones in it, and those in higher bins."""
    here, bad = right + wrong, wrong  # sums of integers: those of floats have no deterministic form on a GPU
    above, bad_above = (x.flip(-1).cumsum(-1).flip(-1) - x for x in (here, bad))
    return to_wide(here), to_wide(bad), to_wide(above), to_wide(bad_above)


class AcceptanceThreshold(NamedTuple):
    """A threshold for each group of samples; scalars if there is one group. All are on the CPU.

    Attributes:
        score: predictions that score at least this are accepted; inf if none can be, and -inf if all can be.
        coverage: the share of the held-out samples that is accepted.
        samples: the number of held-out samples.
    """

    score: Tensor
    coverage: Tensor
    samples: Tensor


def suggest_remedy(right: Tensor, wrong: Tensor, max_error: float, delta: float) -> str:
    """How many held-out samples, or which error, are needed to accept some predictions, if nothing is accepted."""
    samples, remedies = int((right + wrong).sum()), []
    if samples < (needed := required_samples(0, max_error, delta)):
        remedies.append(f"at least {needed} held-out samples")
    else:  # with times as many samples, one threshold at least would pass its test
        bad, number = (x.flip(0).cumsum(0) for x in (wrong, right + wrong))
        ends = [*(wrong.flip(0).nonzero().flatten() - 1).clamp_min(0).tolist(), len(wrong) - 1]
        few = [(w, n) for w, n in zip(bad[ends].tolist(), number[ends].tolist(), strict=True) if w < n * max_error]
        for times in (2, 4, 8, 16, 32, 64):
            chance = chain_starts(times * samples, max_error, delta)[1]
            if any(lower_tail(times * w, times * n, max_error) <= chance for w, n in few):
                remedies.append(f"about {times * samples} held-out samples like these")
                break
    while max_error < 0.5:
        max_error *= 1.25
        if lowest_accepted_bin(right, wrong, min(max_error, 0.5), delta) < len(right):
            remedies.append(f"max_error={min(max_error, 0.5):.2g}")
            break
    return " or ".join(remedies) or "a classifier with fewer mistakes"


def target_log_odds(stats: SampleStats) -> Tensor:
    """The log odds of the target's class, for samples whose prediction is wrong: its probability is at most 1/2."""
    log_p = -torch.log1p(stats.coins.odds) - stats.distance  # type: ignore[operator]
    return log_p - torch.log1p(-log_p.exp())


def class_log_odds(logits: Tensor) -> Tensor:
    """The log odds of every class, log(p / (1 - p)), in the shape of the logits, with the classes on the last axis.

    >>> class_log_odds(torch.tensor([[4.0, 2.0, 2.0], [50.0, 0.0, 0.0]]))
    tensor([[  1.3069,  -2.1269,  -2.1269],
            [ 49.3069, -50.0000, -50.0000]])
    """
    stats = sample_stats(logits, dim=-1, extras=["log_odds"])
    log_p = logits.to(accumulation_dtype(logits.dtype)).log_softmax(-1)
    top = torch.arange(logits.shape[-1], device=logits.device) == stats.coins.prediction.unsqueeze(-1)
    of_top = scores["log_odds"].number(stats).to(log_p.dtype).unsqueeze(-1)
    return torch.where(top, of_top, log_p - torch.log1p(-log_p.exp()))
