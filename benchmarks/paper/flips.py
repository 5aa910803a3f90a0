"""The effect of the number of coin flips, as in the paper: with the expected wins, and with sampled ones."""

import math
from collections.abc import Sequence

import torch

from torch_boc.evaluation import LogitSet
from torch_boc.evaluation.inputs import probe_set, sorted_by_numpy
from torch_boc.functional import auroc
from torch_boc.functional.binomial_test import log_p_value, sample_wins
from torch_boc.functional.summary import calibration_error

BINS = 15
VARIANTS = ("deterministic", "Monte Carlo")
# By variant and number of flips, the ECE of q̄ and the AUROC of s_BoC.
Flips = dict[tuple[str, int], tuple[float, float]]


def flip_numbers(test: LogitSet, ood: LogitSet, counts: Sequence[int], seed: int = 42) -> Flips:
    """The numbers of both variants.

    In the deterministic variant the confidence is the dominance itself, and the score uses the expected wins. In the
    Monte Carlo variant both are computed from sampled wins.
    """
    sets, generator, flips = [probe_set(test), probe_set(ood)], torch.Generator().manual_seed(seed), Flips()
    for variant in VARIANTS:
        for k in counts:
            error, ranked = math.nan, []
            for data in sets:
                wins = sample_wins(data.coins, k, generator=generator) if variant == VARIANTS[1] else None
                # It ranks as the paper's score does, and has no ties by rounding.
                ranked.append(-log_p_value(data.coins, k, wins=wins))
                if data is sets[0] and data.correct is not None:
                    share = data.coins.dominance if wins is None else wins / k
                    error = float(calibration_error(share, data.correct, BINS))
            # `auroc` is four times as fast if the first scores are in order.
            flips[variant, k] = error, float(auroc(sorted_by_numpy(ranked[0]), ranked[1]))
    return flips
