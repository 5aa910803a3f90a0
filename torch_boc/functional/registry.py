"""The scores that separate in-distribution from out-of-distribution inputs, computed from one pass over the logits.

Higher means more in-distribution. A score is a function of the statistics of a sample, and has its name.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import torch
from torch import Tensor

from ..core.chunking import map_chunks
from ..core.coins import gap_of
from ..core.dtypes import accumulation_dtype, is_eager_without_grad, to_wide
from ..core.score_terms import extra_numbers, nearest_rivals
from . import binomial_test as test
from .checks import check_names, classes_last
from .per_sample import SampleStats, check_extras, sample_stats

# Where `choose_temperature` looks: from 2^-6 to 2^10.
LEAST, MOST, STEPS = -6.0, 10.0, 26


@dataclass(frozen=True)
class Score:
    """A named score; call it with logits. Higher means more in-distribution, except for the paper's own score.

    Samples are ranked by `number`, in `BoCSeparation` and `evaluate` alike: the score itself rounds to 1 for many
    samples, whose order would be lost. To rank samples yourself, take `unsaturated_scores`.

    Attributes:
        name: the key in the registry.
        summary: what the score is, in one line.
        number: a number that ranks the samples like the score and does not saturate; for msp it is minus the odds.
        value: the score as a rising function of that number.
        symbol: the name in tables and figures; by default `name` with spaces.
        extras: the numbers that the score needs of those that `sample_stats` computes only on request.
        upside_down: True for the paper's score. It is kept as published, and higher means less in-distribution.
    """

    name: str
    summary: str
    number: Callable[[SampleStats], Tensor]
    value: Callable[[Tensor], Tensor]
    symbol: str
    extras: tuple[str, ...] = ()
    upside_down: bool = False

    def __call__(self, logits: Tensor, *, dim: int = -1, trials: int = 100) -> Tensor:
        """The score of each row of `logits`, in float64, without the class axis `dim`, by default the last axis."""
        return compute_scores(logits, [self.name], dim=dim, trials=trials)[self.name]


registered: dict[str, Score] = {}
scores: Mapping[str, Score] = MappingProxyType(registered)
"""All scores by name: `scores["energy"](logits)`. Higher means more in-distribution."""


def compute_scores(
    logits: Tensor, names: Iterable[str] | None = None, *, dim: int = -1, trials: int = 100
) -> dict[str, Tensor]:
    """Several scores from one pass over the logits.

    Args:
        logits: shape (..., C).
        names: keys of `scores`; by default all.
        dim: the class axis; by default the last, so that logits of shape (N, T, C) have their C classes there.
        trials: the number of coin flips, for the scores that are p-values.

    Returns:
        A dict in the order of `names`. Each value is float64 (float32 on MPS), without the class axis.

    >>> result = compute_scores(torch.tensor([[2.0, 1.0, 0.0, -1.0]]), ["msp", "gap"])
    >>> {name: round(value.item(), 4) for name, value in result.items()}
    {'msp': 0.6439, 'gap': -0.2109}
    """
    numbers = unsaturated_scores(logits, names, dim=dim, trials=trials)
    return {name: scores[name].value(number) for name, number in numbers.items()}


def unsaturated_scores(
    logits: Tensor, names: Iterable[str] | None = None, *, dim: int = -1, trials: int = 100
) -> dict[str, Tensor]:
    """Numbers that rank the samples like `compute_scores`, and still differ where the scores themselves round to 1.

    >>> logits = torch.tensor([[50.0, 0.0, 0.0], [60.0, 0.0, 0.0]])
    >>> compute_scores(logits, ["msp"])["msp"], unsaturated_scores(logits, ["msp"])["msp"]
    (tensor([1., 1.], dtype=torch.float64), tensor([-3.8575e-22, -1.7513e-26], dtype=torch.float64))
    """
    chosen = tuple(scores) if names is None else check_names("scores", names, scores)
    return ranking_numbers(sample_stats(logits, dim=dim, trials=trials, extras=required_extras(chosen)), chosen)


def ranking_numbers(stats: SampleStats, names: Iterable[str]) -> dict[str, Tensor]:
    """`unsaturated_scores` from statistics, gathered with the `extras` that `required_extras` lists."""
    return {name: scores[name].number(stats) for name in names}


def required_extras(names: Iterable[str]) -> tuple[str, ...]:
    """What these scores need as the `extras` of `sample_stats`."""
    return check_extras({extra for name in names for extra in scores[name].extras})


def register(
    summary: str,
    *,
    symbol: str | None = None,
    value: Callable[[Tensor], Tensor] = lambda number: number,
    extras: Iterable[str] = (),
    upside_down: bool = False,
) -> Callable[[Callable[[SampleStats], Tensor]], Callable[[SampleStats], Tensor]]:
    """Register a function of the statistics as the `number` of a score, which gets the function's name; see `Score`."""

    def add(number: Callable[[SampleStats], Tensor]) -> Callable[[SampleStats], Tensor]:
        name = number.__name__.removeprefix("_")
        needs = check_extras(extras)
        registered[name] = Score(name, summary, number, value, symbol or name.replace("_", " "), needs, upside_down)
        return number

    return add


def _required(x: Tensor | None) -> Tensor:
    if x is None:
        raise ValueError(
            "expected statistics with the top logits and the sums that this score needs, got none of these"
        )
    return x


@register("largest softmax probability", symbol="MSP", value=lambda odds: 1 / (1 - odds))
def msp(stats: SampleStats) -> Tensor:
    return -stats.coins.odds


@register("log of the odds for the prediction, which does not saturate", extras=["log_odds"])
def log_odds(stats: SampleStats) -> Tensor:
    return _required(stats.log_odds)


@register("log sum exp of the logits, minus the energy at temperature 1")
def energy(stats: SampleStats) -> Tensor:
    return _required(stats.top) + torch.log1p(stats.coins.odds)


@register("largest logit")
def max_logit(stats: SampleStats) -> Tensor:
    return _required(stats.top)


@register("minus the entropy of the softmax", extras=["entropy_sum"])
def entropy(stats: SampleStats) -> Tensor:
    odds = stats.coins.odds
    return -(torch.log1p(odds) + _required(stats.entropy_sum) / (1 + odds))


@register("minus the generalized entropy of the 100 largest probabilities", symbol="GEN", extras=["gen"])
def gen(stats: SampleStats) -> Tensor:
    return -_required(stats.gen)


@register("mean log-odds of the coins: mean distance of the rivals below the top logit", extras=["margin"])
def logit_gap(stats: SampleStats) -> Tensor:
    return _required(stats.margin) / (stats.num_classes - 1)


@register("mean distance of the N nearest rivals below the top logit", symbol="logit gap, top N", extras=["top_margin"])
def logit_gap_top(stats: SampleStats) -> Tensor:
    return _required(stats.top_margin) / nearest_rivals(stats.num_classes)


@register("mean chance that the top class beats a rival", symbol="q̄", value=lambda minus_loss: 1 + minus_loss)
def dominance(stats: SampleStats) -> Tensor:
    return -stats.coins.loss


@register(
    "mean chance that the top class beats a rival at temperature 4",
    symbol="q̄ at T = 4",
    value=lambda minus_loss: 1 + minus_loss,
    extras=["tempered_loss"],
)
def _tempered_dominance(stats: SampleStats) -> Tensor:
    return -_required(stats.tempered_loss)


@register("minus the coherence gap", symbol="−Δ")
def gap(stats: SampleStats) -> Tensor:
    return -gap_of(stats.coins.odds, stats.coins.loss)  # torch 2.7 cannot compile the property `gap`


@register("log of the p-value of the expected wins", symbol="p*")
def log_p_value(stats: SampleStats) -> Tensor:
    return test.log_p_value(stats.coins, stats.trials)


@register("minus the concentration of the rest on few rivals", symbol="−ρ")
def concentration(stats: SampleStats) -> Tensor:
    return -stats.coins.concentration


@register(
    "the paper's score, 1 - p-value: upside down, higher = less in-distribution",
    symbol="s_BoC",
    value=lambda minus_log: -torch.expm1(-minus_log),
    upside_down=True,
)
def structural_score(stats: SampleStats) -> Tensor:
    return -test.log_p_value(stats.coins, stats.trials)


def tempered_dominance(logits: Tensor, temperature: float | Tensor, *, dim: int = -1) -> Tensor:
    """The mean chance that the top class beats a rival at temperature T.

        q_T = mean_j sigmoid((z_top - z_j) / T)

    At T = 1 this is the dominance. For T to infinity it ranks the samples as the score `logit_gap`. The score
    `tempered_dominance` has T = 4.

    Args:
        logits: shape (..., C).
        temperature: T, above 0; a number, or a tensor with one number, whose value is not checked.
        dim: the class axis; by default the last.

    Returns:
        Shape (...), float64 (float32 on MPS). It is differentiable in the logits.

    >>> logits = torch.tensor([[8.0, 4.0, 0.0, -4.0]])
    >>> [round(tempered_dominance(logits, t).item(), 4) for t in (1.0, 4.0)]
    [0.9939, 0.8548]
    """
    if isinstance(temperature, Tensor):
        if temperature.numel() != 1:
            raise ValueError(f"expected one temperature, got a tensor of shape {tuple(temperature.shape)}")
    elif not 0.0 < temperature < math.inf:
        raise ValueError(f"expected a temperature above 0, got {temperature}")
    return 1.0 - _tempered_loss(classes_last(logits, dim), temperature)


def choose_temperature(logits: Tensor, *, dominance: float = 0.9, dim: int = -1) -> Tensor:
    """The temperature at which the median dominance of in-distribution samples is 0.9.

    At T = 1 the coins of a confident network are almost sure to be won, and differ little between samples. At a large T
    they are nearly fair for all samples. The rule takes held-out in-distribution samples only: no
    out-of-distribution sample and no target is needed. `benchmarks/results/scores.md` compares it with other rules.

    Args:
        logits: shape (..., C), of held-out in-distribution samples. Rows with NaN or +inf do not count.
        dominance: the median to reach, between 0.5 and 1.
        dim: the class axis; by default the last.

    Returns:
        A tensor with one number in float64 (float32 on MPS), between 2^-6 and 2^10, to one part in a million. It has no
        gradient.

    >>> logits = torch.tensor([[8.0, 4.0, 0.0, -4.0], [9.0, 0.0, 0.0, 0.0], [2.0, 1.0, 0.0, 0.0]])
    >>> round(choose_temperature(logits).item(), 3)
    3.056
    """
    if not 0.5 < dominance < 1.0:
        raise ValueError(f"expected a dominance between 0.5 and 1, got {dominance}")
    rows = classes_last(logits.detach(), dim)
    if rows.shape[:-1].numel() == 0:
        raise ValueError(f"expected logits of at least one sample, got shape {tuple(logits.shape)}")
    low = to_wide(torch.full((), LEAST, device=rows.device))
    high = torch.full_like(low, MOST)
    for _ in range(STEPS):  # the dominance of every sample falls with the temperature
        middle = (low + high) / 2
        above = _tempered_loss(rows, middle.exp2()).nanmedian() < 1.0 - dominance
        low, high = torch.where(above, middle, low), torch.where(above, high, middle)
    return ((low + high) / 2).exp2()


def _tempered_loss(rows: Tensor, temperature: float | Tensor) -> Tensor:
    """The mean chance that the top class loses a coin flip at this temperature."""
    if not is_eager_without_grad(rows):
        return extra_numbers(rows, ("tempered_loss",), temperature=temperature)[0]
    return map_chunks(lambda z: (sample_stats(z.to(accumulation_dtype(z.dtype)) / temperature).coins.loss,), rows)[0]
