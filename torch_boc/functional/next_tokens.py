"""Counts and sums over the next-token predictions of a text, in memory of fixed size, whatever its length is.

The tally of two texts is the sum of their tallies, as for `tallies.py`, which holds what all classifiers have.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from ..core.blocks import blockwise
from ..core.coins import Coins
from ..core.precision import widen
from .bounds import forced_gap
from .checks import bare, check_target, classes_last
from .evidence import Evidence, flat, gather, is_class, log_loss, settle
from .histogram import as_place, equal_bin
from .registry import energy, entropy, logit_gap
from .tallies import Tally, empty_tally
from .tally import add_evidence

BINS = 15
# A token counts among the likeliest r if its rank is at most r.
RANKS = (1, 5, 10, 100, 1000)
# What tells right from wrong predictions, and the ends of the scale on which it is counted; higher is more sure.
SCALES = {
    "confidence": (-12.0, 20.0),  # minus the logarithm of the odds
    "lost_coins": (-6.0, 8.0),  # minus the decimal logarithm
    "entropy": (-2.0, 8.0),  # minus the decimal logarithm
    "logit_gap": (0.0, 64.0),
    "energy": (-128.0, 128.0),
    "concentration": (-1.0, 0.0),  # minus rho, as for the score of this name
}
SCORE_BINS = 4096
# Strata of equal confidence: a quarter of a unit of the log-odds each, the first and the last open.
STRATA, STRATUM, LOWEST_STRATUM = 64, 0.25, -8.0


class MoreSums(NamedTuple):
    """Sums over the predictions that count; the last is the Brier score over all tokens of the vocabulary."""

    entropy: Tensor
    lost_coins: Tensor
    free_gap_square: Tensor
    brier_all: Tensor


class TextTally(NamedTuple):
    """The counts in int64 and the sums in float64 (float32 on MPS).

    Attributes:
        predictions: the tally of the next-token predictions.
        sums: the fields of `MoreSums`.
        bin_sums: (2, 15), the forced and the free gap in each bin of confidence.
        ranks: how many tokens are among the likeliest `RANKS`.
        scores: (2, S, strata, bins), how many right (first) and wrong predictions are in each bin of each of the
            `SCALES`, in each stratum of confidence.
    """

    predictions: Tally
    sums: Tensor
    bin_sums: Tensor
    ranks: Tensor
    scores: Tensor


def empty_text_tally(device: torch.device | str | None = None) -> TextTally:
    """The tally of no text."""
    like = empty_tally(BINS, device)
    sums = like.sums.new_zeros(len(MoreSums._fields))
    counts = like.counts.new_zeros(2, len(SCALES), STRATA, SCORE_BINS)
    return TextTally(like, sums, like.sums.new_zeros(2, BINS), like.counts.new_zeros(len(RANKS)), counts)


def add_tallies(total: TextTally, other: TextTally) -> None:
    """Add a tally to another, in place."""
    for own, more in zip((*total.predictions, *total[1:]), (*other.predictions, *other[1:]), strict=True):
        own.add_(more.to(own.device))


def add_predictions(total: TextTally, logits: Tensor, target: Tensor, *, ignore_index: int = -100) -> None:
    """Add next-token predictions to a tally, in place. No gradient is taken, and the host waits for no value.

    Args:
        total: from `empty_text_tally`.
        logits: (..., V).
        target: (...), the tokens that came.
        ignore_index: places with this target do not count.
    """
    rows = classes_last(bare(logits), -1)
    target = check_target(target, rows.shape[:-1])
    rows, target = rows.reshape(-1, rows.shape[-1]), target.reshape(-1)
    evidence = gather(rows, target, extras=("surprise", "margin"), ignore_index=ignore_index)
    add_evidence(total.predictions, evidence)
    coins, valid, _ = settle(evidence)
    valid = valid & is_class(target, evidence.num_classes)
    own = target.clamp(0, rows.shape[-1] - 1)
    doubled, rank = blockwise(_doubled_and_rank, rows, rows.gather(1, own.unsqueeze(1)))
    _add_sums(total, evidence, coins, valid, doubled)
    total.ranks.add_(torch.stack([(valid & (rank <= most)).sum() for most in RANKS]))
    _add_scores(total.scores, evidence, valid, coins.prediction == target)


def _doubled_and_rank(rows: Tensor, own: Tensor) -> tuple[Tensor, Tensor]:
    """The log of the sum of exp(2 z), and the rank of the token with the logit `own`."""
    return widen(torch.logsumexp(2 * rows.float(), -1)), (rows > own).sum(-1) + 1


def _add_sums(total: TextTally, evidence: Evidence, coins: Coins, valid: Tensor, doubled: Tensor) -> None:
    free = coins.free_gap.clamp_min(0.0)
    forced = forced_gap(coins.odds, evidence.num_classes)
    assert evidence.distance is not None
    own = torch.exp(-log_loss(coins.odds, flat(evidence.distance)))
    squares = torch.exp(doubled - 2 * flat(energy(evidence)))  # the sum of p^2 over the vocabulary
    lost = coins.loss * (evidence.num_classes - 1.0)
    sums = MoreSums(-flat(entropy(evidence)), lost, free * free, squares - 2 * own + 1)
    total.sums.add_(torch.stack(sums).masked_fill(~valid, 0.0).sum(1))
    places = equal_bin(coins.confidence, BINS, has_nan=False).expand(2, -1)
    total.bin_sums.scatter_add_(1, places, torch.stack([forced, free]).masked_fill(~valid, 0.0))


def score_numbers(evidence: Evidence) -> Tensor:
    """The numbers of `SCALES`, of shape (S, N)."""
    coins = evidence.coins
    lost, spread = coins.loss * (evidence.num_classes - 1.0), (-entropy(evidence)).clamp_min(0.0)
    numbers = (-coins.odds.log(), -lost.log10(), -spread.log10(), logit_gap(evidence), energy(evidence))
    return torch.stack([flat(x) for x in (*numbers, -coins.concentration)])


def _add_scores(total: Tensor, evidence: Evidence, valid: Tensor, right: Tensor) -> None:
    """Count each prediction under its stratum and its bin, of each score."""
    numbers = score_numbers(evidence)
    low, high = (widen(x).unsqueeze(1) for x in numbers.new_tensor([*SCALES.values()]).unbind(1))
    place = as_place((numbers - low) / (high - low) * SCORE_BINS, SCORE_BINS)
    stratum = as_place((numbers[0] - LOWEST_STRATUM) / STRATUM, STRATA)
    score = torch.arange(len(SCALES), device=numbers.device).unsqueeze(1)
    where = (((~right).long() * len(SCALES) + score) * STRATA + stratum) * SCORE_BINS + place
    total.view(-1).scatter_add_(0, where.reshape(-1), valid.long().expand_as(where).reshape(-1))
