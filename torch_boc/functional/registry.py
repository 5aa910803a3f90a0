"""Scores that tell familiar from unfamiliar inputs by their logits: one registry, higher = more in-distribution."""

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from ..core.coins import gap_of
from . import trials as test
from .evidence import Evidence, gather


@dataclass(frozen=True)
class Score:
    """A named score; call it with logits. Higher means more in-distribution, but for the paper's own score.

    Attributes:
        name: the key in the registry.
        summary: the formula in a line.
        symbol: what tables and figures call it.
        axis: what its values are called on an axis, where that is not the symbol.
        number: what ranks the samples as the score does and never saturates, as minus the odds for msp.
        value: the score as a rising function of that number.
        extras: whether it needs the sums that `gather` takes with `extras` only.
        upside_down: True for the paper's score, which is kept as published and ranks backwards.
    """

    name: str
    summary: str
    number: Callable[[Evidence], Tensor]
    value: Callable[[Tensor], Tensor]
    symbol: str
    axis: str
    extras: bool = False
    upside_down: bool = False

    def function(self, evidence: Evidence) -> Tensor:
        """The score of each row, of what is known of it."""
        return self.value(self.number(evidence))

    def __call__(self, logits: Tensor, *, dim: int = -1, trials: int = 100) -> Tensor:
        """The score of each row of `logits` of shape (..., C), float64, without the class axis `dim`, here the last."""
        return compute_scores(logits, [self.name], dim=dim, trials=trials)[self.name]


class _Scores(Mapping[str, Score]):
    """The scores by name, which nobody can change; an old name is understood, with a warning."""

    def __getitem__(self, name: str) -> Score:
        return _registry[current_name(name)]

    def __contains__(self, name: object) -> bool:
        return name in _registry  # under the name of today

    def __iter__(self) -> Iterator[str]:
        return iter(_registry)

    def __len__(self) -> int:
        return len(_registry)


_registry: dict[str, Score] = {}
scores: Mapping[str, Score] = _Scores()
# The names that scores had before.
RENAMED = {"p_value": "log_p_value"}


def current_name(name: str) -> str:
    """The name of a score today, with a warning if it had another one before."""
    if name in RENAMED:
        warnings.warn(f"the score {name!r} is called {RENAMED[name]!r} now", FutureWarning, stacklevel=3)
    return RENAMED.get(name, name)


def find_score(name: str) -> Score:
    """The score of that name, of today or of before, without a warning; for names that were checked."""
    return _registry[RENAMED.get(name, name)]


def compute_scores(
    logits: Tensor, names: Iterable[str] | None = None, *, dim: int = -1, trials: int = 100
) -> dict[str, Tensor]:
    """Several scores from one pass over the logits.

    Args:
        logits: shape (..., C).
        names: keys of `scores`; all of them by default. The results have the names given here.
        dim: the class axis; by default the last, so that logits of shape (N, T, C) have their C classes there.
        trials: the number of flips, for the scores that are p-values.

    Returns:
        A dict in the order of `names`; each value float64 (float32 on MPS), without the class axis.

    >>> result = compute_scores(torch.tensor([[2.0, 1.0, 0.0, -1.0]]), ["msp", "gap"])
    >>> {name: round(value.item(), 4) for name, value in result.items()}
    {'msp': 0.6439, 'gap': -0.2109}
    """
    found = unsaturated_scores(logits, names, dim=dim, trials=trials)
    return {name: find_score(name).value(number) for name, number in found.items()}


def unsaturated_scores(
    logits: Tensor, names: Iterable[str] | None = None, *, dim: int = -1, trials: int = 100
) -> dict[str, Tensor]:
    """The numbers that rank samples as `compute_scores` does, and also where the scores themselves are all equal to 1.

    >>> logits = torch.tensor([[50.0, 0.0, 0.0], [60.0, 0.0, 0.0]])
    >>> compute_scores(logits, ["msp"])["msp"], unsaturated_scores(logits, ["msp"])["msp"]
    (tensor([1., 1.], dtype=torch.float64), tensor([-3.8575e-22, -1.7513e-26], dtype=torch.float64))
    """
    if isinstance(names, str):
        raise TypeError(f"expected names as a list of scores, got the string {names!r}; use [{names!r}]")
    names = [_checked(name) for name in (_registry if names is None else names)]
    return rank(gather(logits, dim=dim, trials=trials, extras=need_extras(names)), names)


def rank(evidence: Evidence, names: Iterable[str]) -> dict[str, Tensor]:
    """`unsaturated_scores` of samples whose logits were passed over before; see `need_extras`."""
    return {name: find_score(name).number(evidence) for name in names}


def need_extras(names: Iterable[str]) -> bool:
    """Whether one of these scores looks at the sums that `gather` takes with `extras` only."""
    return any(find_score(name).extras for name in names)


def _checked(name: str) -> str:
    if current_name(name) not in _registry:
        raise ValueError(f"expected a score among {', '.join(_registry)}, got {name!r}")
    return name


def _given(x: Tensor | None) -> Tensor:
    if x is None:
        raise ValueError("expected evidence with the top logits and the sums that this score needs, got none of these")
    return x


def _itself(number: Tensor) -> Tensor:
    return number


def _confidence(minus_odds: Tensor) -> Tensor:
    return 1 / (1 - minus_odds)


def _chance(minus_complement: Tensor) -> Tensor:
    return 1 + minus_complement


def _complement(minus_log: Tensor) -> Tensor:
    return -torch.expm1(-minus_log)


def _register(
    summary: str,
    *,
    symbol: str,
    axis: str | None = None,
    value: Callable[[Tensor], Tensor] = _itself,
    extras: bool = False,
    upside_down: bool = False,
) -> Callable[[Callable[[Evidence], Tensor]], Callable[[Evidence], Tensor]]:
    def add(number: Callable[[Evidence], Tensor]) -> Callable[[Evidence], Tensor]:
        name = number.__name__
        facts = {"symbol": symbol, "axis": axis or symbol}
        _registry[name] = Score(name, summary, number, value, **facts, extras=extras, upside_down=upside_down)
        return number

    return add


@_register("largest softmax probability", symbol="MSP", value=_confidence)
def msp(evidence: Evidence) -> Tensor:
    return -evidence.coins.odds


@_register("log sum exp of the logits, minus the energy at temperature 1", symbol="energy")
def energy(evidence: Evidence) -> Tensor:
    return _given(evidence.top) + torch.log1p(evidence.coins.odds)


@_register("largest logit", symbol="max logit")
def max_logit(evidence: Evidence) -> Tensor:
    return _given(evidence.top)


@_register("minus the entropy of the softmax", symbol="entropy", extras=True)
def entropy(evidence: Evidence) -> Tensor:
    odds = evidence.coins.odds
    return -(torch.log1p(odds) + _given(evidence.surprise) / (1 + odds))


@_register(
    "mean log-odds of the coins: mean distance of the rivals below the top logit", symbol="logit gap", extras=True
)
def logit_gap(evidence: Evidence) -> Tensor:
    return _given(evidence.margin) / (evidence.num_classes - 1)


@_register("mean chance that the top class beats a rival", symbol="q̄", value=_chance)
def dominance(evidence: Evidence) -> Tensor:
    return -evidence.coins.loss


@_register("minus the coherence gap", symbol="−Δ")
def gap(evidence: Evidence) -> Tensor:
    return -gap_of(evidence.coins.odds, evidence.coins.loss)  # not of a property: torch 2.7 cannot compile that


@_register("log of the p-value of the expected wins", symbol="p*", axis="log p*")
def log_p_value(evidence: Evidence) -> Tensor:
    return test.log_p_value(evidence.coins, evidence.trials)


@_register("minus the concentration of the rest on few rivals", symbol="−ρ")
def concentration(evidence: Evidence) -> Tensor:
    return -evidence.coins.concentration


@_register(
    "the paper's score, 1 - p-value: upside down, higher = less in-distribution",
    symbol="s_BoC",
    value=_complement,
    upside_down=True,
)
def structural_score(evidence: Evidence) -> Tensor:
    return -test.log_p_value(evidence.coins, evidence.trials)
