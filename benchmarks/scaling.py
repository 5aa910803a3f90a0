"""Gradients, tails, sampling, and what a logit costs in batches of several sizes; `benchmarks.probe` runs them."""

from collections.abc import Callable
from functools import partial

import scipy.stats
import torch
from torch import Tensor

from benchmarks.harness import best_times, ratio, target
from benchmarks.ways import compiled, in_torch
from torch_boc.functional import bag_of_coins, binomial_log_tail, flip_coins, sample_wins


def targets() -> list[dict[str, object]]:
    """All ratios of this file."""
    return [*gradient_targets(), *tail_targets(), *linear_targets()]


def gradient_targets() -> list[dict[str, object]]:
    """Forward and backward of the mean gap over those of softmax."""
    logits = 4 * torch.randn(16_384, 1_000, generator=torch.Generator().manual_seed(0))
    logits.requires_grad_()
    weights = torch.ones_like(logits)

    def backward(function: Callable[[Tensor], Tensor], *given: Tensor) -> None:
        logits.grad = None
        function(logits).backward(*given)

    best = best_times(
        {
            "gap": lambda: backward(lambda z: bag_of_coins(z).gap.mean()),
            "softmax": lambda: backward(lambda z: z.softmax(-1), weights),
        }
    )
    name = "forward and backward of the mean gap / of softmax, (16384, 1000) float32"
    return [target(name, ratio(best, "gap", "softmax"), 2.5)]


def linear_targets() -> list[dict[str, object]]:
    """Time for each logit, over that of the batch in which it is least, from 10^6 to 10^8 logits of 1,000 classes."""
    logits = 4 * torch.randn(100_000, 1_000, generator=torch.Generator().manual_seed(0))
    batches = {str(rows): partial(bag_of_coins, logits[:rows]) for rows in (1_000, 10_000, 100_000)}
    each = {int(rows): time / int(rows) for rows, time in best_times(batches).items()}
    return [
        target(f"coins, a logit of {1_000 * rows:,} / the least", time / min(each.values()), 1.1)
        for rows, time in each.items()
    ]


def tail_targets() -> list[dict[str, object]]:
    """Tails and sampling, for 100,000 rows and 100 trials."""
    logits = 4 * torch.randn(100_000, 10, generator=torch.Generator().manual_seed(0))
    coins = bag_of_coins(logits)
    wins = torch.round(100 * coins.dominance.double())
    counts, chances = (wins - 1).numpy(), coins.confidence.double().numpy()
    tail = partial(binomial_log_tail, wins, 100)
    best = best_times(
        {
            "scipy": lambda: scipy.stats.binom.sf(counts, 100, chances),
            "tail": lambda: tail(coins.odds),
            "tail in torch": partial(in_torch(tail), coins.odds),
            "tail by torch.compile": partial(compiled(lambda odds: binomial_log_tail(wins, 100, odds)), coins.odds),
            "sample": lambda: sample_wins(coins, 100),
            "flip": lambda: flip_coins(logits, 100),
        }
    )
    limits = {"tail": 0.25, "tail in torch": 1.0, "tail by torch.compile": 0.5}
    return [
        *(
            target(f"binomial_log_{name} / scipy.stats.binom.sf", ratio(best, name, "scipy"), limit)
            for name, limit in limits.items()
        ),
        target("sample_wins / flip_coins", ratio(best, "sample", "flip"), 1 / 20),
    ]
