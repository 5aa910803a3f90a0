"""The numbers that an evaluation keeps of each sample, from one pass over the logits."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ..core.coins import Coins
from ..core.tally import log_loss
from ..data.sets import LogitSet
from ..functional.evidence import gather
from ..functional.registry import scores

# How many logits are computed at once. For ten classes these are 200,000 rows.
BLOCK_ELEMENTS = 2**21


@dataclass(frozen=True)
class ProbedSet:
    """A set, and columns of numbers for its samples in float64. Only the set itself has the class axis.

    Attributes:
        data: the set itself.
        coins: the coins of each sample.
        scores: every score of the registry, by name.
        trials: the number of coin flips of the scores that are p-values.
        nll: the negative log-likelihood of the target; None without targets.
    """

    data: LogitSet
    coins: Coins
    scores: dict[str, Tensor]
    trials: int
    nll: Tensor | None = None

    @property
    def name(self) -> str:
        """The name of the set in tables."""
        return self.data.name

    @property
    def correct(self) -> Tensor | None:
        """Which predictions are right; None without targets."""
        return None if self.data.target is None else self.coins.prediction == self.data.target


def probe_set(data: LogitSet, trials: int = 100) -> ProbedSet:
    """The columns of `data`, computed block by block.

    >>> probed = probe_set(LogitSet(torch.tensor([[2.0, 0.0], [0.0, 1.0]]), torch.tensor([0, 0])))
    >>> probed.correct, probed.nll.round(decimals=3)
    (tensor([ True, False]), tensor([0.1270, 1.3130], dtype=torch.float64))
    """
    parts = [_probe_rows(*block, trials) for block in row_blocks(data)]
    coins = Coins(*(torch.cat(column) for column in zip(*(part[0][:5] for part in parts), strict=True)))
    columns = {name: torch.cat([part[1][name] for part in parts]) for name in scores}
    return ProbedSet(data, coins, columns, trials, _joined([part[2] for part in parts]))


def row_blocks(data: LogitSet) -> Iterator[tuple[Tensor, Tensor | None]]:
    """Logits and targets of `data`, in pieces of bounded size."""
    size = max(1, BLOCK_ELEMENTS // data.num_classes)
    for start in range(0, len(data), size):
        rows = slice(start, start + size)
        yield data.logits[rows], None if data.target is None else data.target[rows]


def ordered(values: Tensor) -> Tensor:
    """The values in rising order. They are sorted by NumPy, which is many times as fast as torch on the CPU."""
    array = values.double().clone().numpy()
    array.sort()
    return torch.from_numpy(array)


def _probe_rows(logits: Tensor, target: Tensor | None, trials: int) -> tuple[Coins, dict[str, Tensor], Tensor | None]:
    evidence = gather(logits, target, trials=trials, extras=True)
    columns = {name: score.function(evidence) for name, score in scores.items()}
    nll = None if evidence.distance is None else log_loss(evidence.coins.odds, evidence.distance)
    return evidence.coins, columns, nll


def _joined(parts: Sequence[Tensor | None]) -> Tensor | None:
    whole = [part for part in parts if part is not None]
    return torch.cat(whole) if whole else None
