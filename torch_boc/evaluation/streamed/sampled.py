"""The rows of a random sample, as a set whose coins can be flipped."""

from dataclasses import dataclass

import torch
from torch import Tensor

from ...core.coins import Coins
from ...functional.registry import find_score
from .places import OPPOSITE
from .state import SAMPLED, SetState


@dataclass(frozen=True)
class SampledSet:
    """The sampled rows of a set. The attributes are those of a `ProbedSet`; predictions are not kept."""

    name: str
    coins: Coins
    scores: dict[str, Tensor]
    trials: int
    correct: Tensor | None


def sampled_set(state: SetState) -> SampledSet:
    """The random sample of a state."""
    columns = dict(zip(SAMPLED, state.sample.columns, strict=False))
    kept = [name for name in state.scores if name not in OPPOSITE]
    numbers = dict(zip(kept, state.sample.columns[len(SAMPLED) :], strict=True))
    numbers |= {name: -numbers[other] for name, other in OPPOSITE.items() if name in state.scores}
    coins = Coins(torch.zeros(len(columns["odds"]), dtype=torch.int64), *(columns[x] for x in Coins._fields[1:]))
    values = {name: find_score(name).value(number) for name, number in numbers.items()}
    correct = columns["correct"] > 0.5 if state.labelled else None
    return SampledSet(state.plan.name, coins, values, state.plan.trials, correct)
