"""The sets of an evaluation, checked, and the numbers that are kept of each sample from one pass over the logits."""

import operator
import os
import warnings
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..core.coins import Coins
from ..core.tally import log_loss
from ..data.files import read_logits
from ..data.logit_set import ColumnSet, LogitSet
from ..functional.per_sample import SampleStats, sample_stats
from ..functional.registry import scores
from ..inference import check_complete
from ..ray import check_complete as ray_complete

TEST = "id"
# After a softmax these scores are the same for every sample, but for rounding.
LOST = ("energy",)
# How many logits are computed at once. For ten classes these are 200,000 rows.
BLOCK_ELEMENTS = 2**21
# The rows of a file that are read; of more rows a random sample.
MAX_ROWS = 1_000_000
AnySet = LogitSet | ColumnSet


@dataclass(frozen=True)
class ProbedSet:
    """A set, and columns of numbers for its samples in float64. Only the set itself has the class axis.

    Attributes:
        data: the set itself.
        coins: the coins of each sample.
        scores: the number that ranks the samples by each score of the registry (`Score.number`, which does not
            saturate), without those that need logits where there are columns or probabilities.
        correct: which predictions are correct; None without targets.
        nll: the negative log-likelihood of the target; None without targets.
    """

    data: AnySet
    coins: Coins
    scores: dict[str, Tensor]
    correct: Tensor | None = None
    nll: Tensor | None = None

    @property
    def name(self) -> str:
        """The name of the set in tables."""
        return self.data.name


def probe_set(data: AnySet, trials: int = 100) -> ProbedSet:
    """The columns of `data`, computed block by block.

    >>> probed = probe_set(LogitSet(torch.tensor([[2.0, 0.0], [0.0, 1.0]]), torch.tensor([0, 0])))
    >>> probed.correct, probed.nll.round(decimals=3)
    (tensor([ True, False]), tensor([0.1270, 1.3130], dtype=torch.float64))
    """
    parts: list[Any] = []
    columns: dict[str, list[Tensor]] = defaultdict(list)
    for stats in _sample_stats(data, trials):
        odds, distance = stats.coins.odds, stats.distance
        loss = torch.full_like(odds, torch.nan) if distance is None else log_loss(odds, distance)
        parts.append((*stats.coins[:5], loss))
        for name, score in scores.items():
            if not (data.from_probabilities and name in LOST):
                with suppress(ValueError):  # it needs a number that columns do not have
                    number = score.number(stats)
                    columns[name].append(number)
    *coins, nll = map(torch.cat, zip(*parts, strict=True))
    numbers = dict(zip(columns, map(torch.cat, columns.values()), strict=True))
    if data.target is None:
        return ProbedSet(data, Coins(*coins), numbers)
    return ProbedSet(data, Coins(*coins), numbers, coins[0] == data.target, nll)


def _sample_stats(data: AnySet, trials: int) -> Iterator[SampleStats]:
    if isinstance(data, ColumnSet):
        below = data.stats.distance
        distance = None if below is None or bool(below.isnan().any()) else below  # the loss of a wrong prediction
        yield data.stats._replace(trials=trials, distance=distance)
        return
    for rows in row_blocks(data.logits, *([] if data.target is None else [data.target])):
        yield sample_stats(*rows, trials=trials, extras=True)


def row_blocks(logits: Tensor, *others: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """The rows of the logits and of other tensors alongside, in chunks of bounded size."""
    size = max(1, BLOCK_ELEMENTS // logits.shape[1])
    return zip(*(rows.split(size) for rows in (logits, *others)), strict=True)


def sorted_by_numpy(values: Tensor) -> Tensor:
    """The values in rising order. They are sorted by NumPy, which is many times as fast as torch on the CPU."""
    array = values.double().clone().numpy()
    array.sort()
    return torch.from_numpy(array)


def single_set(source: Any, name: str, **options: Any) -> AnySet:
    """The set as a LogitSet on the CPU, where all the work is done, or as the columns of a predictor."""
    if isinstance(source, str | os.PathLike):
        warn_if_incomplete(source)
    if not isinstance(source, LogitSet):
        return read_logits(source, name, **options)
    target = None if source.target is None else source.target.cpu()
    columns = {key: column.detach().cpu() for key, column in source.columns.items()}
    return read_logits(replace(source, logits=source.logits.detach().cpu(), target=target, columns=columns), name)


def warn_if_incomplete(source: str | os.PathLike[str]) -> None:
    """Warn if the manifest next to this folder says that a predictor has not finished it."""
    folder = Path(source).absolute()
    if "://" not in str(source) and folder.is_dir() and Path(f"{folder}.run").is_dir():
        try:
            if any(folder.glob("part-*.parquet")):
                check_complete(folder, checksums=False)  # the rows that are read have their checksums compared
            else:
                ray_complete(folder)
        except (ValueError, FileNotFoundError) as error:
            warnings.warn(f"the report is on a part of the samples: {error}", stacklevel=4)


def several_sets(source: Any, name: str, **options: Any) -> dict[str, AnySet]:
    """The sets by name: a single set is called `name`, and the keys of a mapping are the names of its sets."""
    if source is None:
        return {}
    # A mapping whose "logits" are an array is one set. Otherwise there is a set that is called "logits".
    if not isinstance(source, Mapping) or hasattr(x := source.get("logits"), "shape") or isinstance(x, list):
        return {name: single_set(source, name, **options)}
    sets: dict[str, AnySet] = {}
    for key, value in source.items():
        if not isinstance(key, str) or not key:
            raise ValueError(f"{name}: expected names of sets as strings, got {key!r}")
        data = single_set(value, key, **options)
        if data.name in sets:
            raise ValueError(f"{name}: expected names that differ when they are printed, got {data.name!r} twice")
        sets[data.name] = data
    return sets


def read_sets(
    id: Any, ood: Any, calibration: Any, train: Any, **options: Any
) -> tuple[AnySet, dict[str, AnySet], dict[str, AnySet], dict[str, AnySet]]:
    """The test set, and by their names the OOD sets, the calibration splits and the training set.

    All have different names and as many classes as the test set, and the splits and the training set have targets.
    """
    test, oods = single_set(id, TEST, **options), several_sets(ood, "ood", **options, targets=False)
    splits = several_sets(calibration, "calibration", **options)
    training = {} if train is None else {"train": single_set(train, "train", **options)}
    names = [TEST]
    for name, data in (*oods.items(), *splits.items(), *training.items()):
        if name in names:
            raise ValueError(f"expected a different name for each set, got {name!r} twice; rename one")
        names.append(name)
        if data.num_classes != test.num_classes:
            raise ValueError(
                f"expected the same number of classes in every set, got {test.num_classes} in {TEST!r} and "
                f"{data.num_classes} in {name!r}"
            )
        if data.from_probabilities != test.from_probabilities:
            kinds = ["probabilities" if x.from_probabilities else "logits" for x in (test, data)]
            raise ValueError(
                f"expected all sets as logits or all as probabilities, got {kinds[0]} in {TEST!r} and {kinds[1]} "
                f"in {name!r}; a softmax changes what scores of several sets are compared by"
            )
        if name not in oods and (data.target is None or isinstance(data, ColumnSet)):
            raise ValueError(f"{name}: expected logits with targets, got none; give (logits, target)")
    return test, oods, splits, training


def labelled(data: AnySet) -> tuple[Tensor, Tensor]:
    """The logits and the targets of a set that was checked to have both."""
    assert isinstance(data, LogitSet)
    assert data.target is not None
    return data.logits, data.target


def check_integers(least: int, **values: int) -> list[int]:
    """The values as integers of at least `least`; otherwise an error."""
    for name, value in values.items():
        if isinstance(value, bool) or not hasattr(value, "__index__") or operator.index(value) < least:
            raise ValueError(f"expected {name} as an integer of at least {least}, got {value!r}")
    return [*map(operator.index, values.values())]
