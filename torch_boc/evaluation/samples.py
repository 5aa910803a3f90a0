"""Numbers for the page to explore: single samples, and how many samples of each set a threshold flags."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import torch
from torch import Tensor

from ..data.sets import LogitSet
from ..functional.registry import scores
from ..nn.conformal import ConformalTest
from ..report.choices import TESTED_SCORES
from ..report.tables import AlarmRow, SampleRow
from .detection import ScoredSets
from .probing import ProbedSet, ordered
from .screening import Arranged, arrange

# So many samples of a set are kept: those with the lowest log-odds, and a random choice of the others.
SUSPICIOUS, OTHERS = 100, 900
# The rates of false alarms that thresholds are taken for, in thousandths: fine where a threshold is of use.
RATES = (*range(0, 50), *range(50, 200, 5), *range(200, 1000, 20))


def sample_rows(sets: Sequence[ProbedSet], trusted: Mapping[str, LogitSet], *, seed: int = 42) -> list[SampleRow]:
    """At most `SUSPICIOUS` + `OTHERS` samples of each set, the most suspicious first.

    A sample is suspicious if its log-odds are low, which is what the conformal test of the report goes by. The p-values
    are those of that test.

    Args:
        sets: the test set, and the OOD sets.
        trusted: see `screening_tables`.
        seed: of the random choice, and of the order of the samples for the conformal test.
    """
    arranged = arrange(sets[0], trusted, seed)
    test = ConformalTest(TESTED_SCORES[0], validate_args=False)
    if len(arranged.held_out):
        test.calibrate(arranged.held_out)
    return [row for place, data in enumerate(sets) for row in _of_set(data, place, test, arranged, seed)]


def _of_set(data: ProbedSet, place: int, test: ConformalTest, arranged: Arranged, seed: int) -> Iterator[SampleRow]:
    rising = torch.from_numpy(data.scores["log_odds"].numpy().argsort(kind="stable"))
    first, rest = rising[:SUSPICIOUS], rising[SUSPICIOUS:]
    drawn = torch.randperm(len(rest), generator=torch.Generator().manual_seed(seed))[:OTHERS]
    chosen = torch.cat([first, rest[drawn].sort().values])
    columns = {
        "row": chosen,
        "suspicious": torch.arange(len(chosen)) < len(first),
        "prediction": data.coins.prediction[chosen],
        "target": torch.full_like(chosen, -1) if data.data.target is None else data.data.target[chosen],
        **{name: getattr(data.coins, name)[chosen] for name in ("confidence", "gap", "concentration")},
        "log_odds": data.scores["log_odds"][chosen],
        "p_value": _p_values(data, chosen, test, arranged.known if place == 0 else chosen),
    }
    for values in zip(*(column.tolist() for column in columns.values()), strict=True):
        yield SampleRow(set=data.name, kind="ood" if place else "id", **dict(zip(columns, values, strict=True)))


def _p_values(data: ProbedSet, chosen: Tensor, test: ConformalTest, known: Tensor) -> Tensor:
    """The conformal p-values of some samples; NaN for those that are not `known`, which the test was calibrated on."""
    p = test(data.data.logits[chosen]) if len(known) and int(test.samples.sum()) else torch.tensor(torch.nan)
    return torch.where(torch.isin(chosen, known), p, torch.nan)


def alarm_rows(found: Iterable[ScoredSets]) -> list[AlarmRow]:
    """For each score and for thresholds that flag given shares of the test set: the share of each set below them.

    The paper's score is left out, because it is that of log p* upside down.
    """
    chosen = [x for x in found if not (x.name in scores and scores[x.name].upside_down)]
    return [row for score in chosen for row in _alarms(score)]


def _alarms(score: ScoredSets) -> Iterator[AlarmRow]:
    known, *_ = rising = [ordered(values) for values in score.sets.values()]
    ranks = torch.tensor(RATES) * len(known) // 1000
    thresholds = known[ranks].unique()
    for name, values in zip(score.sets, rising, strict=True):
        shares = torch.searchsorted(values, thresholds).double() / len(values)
        pairs = zip(thresholds.tolist(), shares.tolist(), strict=True)
        yield from (AlarmRow(score.name, name, threshold, share) for threshold, share in pairs)
