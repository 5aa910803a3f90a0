"""What the paper reports, what we computed for the same experiment, and one view of the numbers for both."""

import json
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.paper.beyond import beyond_confidence
from torch_boc import zoo
from torch_boc.calibration import LeakWarning
from torch_boc.evaluation import Results, evaluate
from torch_boc.kernels import use
from torch_boc.zoo.entry import Entry, is_training

FOLDER = Path(__file__).parent
REPLICATES = 300
STRATA = 100
METHODS = ("temperature", "isotonic", "vector scaling")
CALIBRATION = ("ece", "nll", "brier")
DETECTION = ("auroc", "fpr95")


class Numbers(NamedTuple):
    """The two tables of an experiment, by method and statistic and by score and statistic."""

    calibration: Mapping[str, Mapping[str, float]]
    ood: Mapping[str, Mapping[str, float]]


@dataclass(frozen=True)
class Published:
    """An experiment of the paper: `content` is its part of published.json."""

    content: Mapping[str, Any]

    @property
    def name(self) -> str:
        """The architecture."""
        return str(self.content["name"])

    @property
    def entry(self) -> str:
        """What our counterpart is called in the zoo."""
        return str(self.content["entry"])

    @property
    def numbers(self) -> Numbers:
        """The paper's two tables."""
        tables = zip((CALIBRATION, DETECTION), ("calibration", "ood"), strict=True)
        return Numbers(
            *(
                {row: dict(zip(names, values, strict=True)) for row, values in self.content[key].items()}
                for names, key in tables
            )
        )


@dataclass(frozen=True)
class Ours:
    """What we computed for an entry of the zoo.

    Attributes:
        entry: of the zoo.
        results: on the whole test set, calibrators fitted on the splits of the entry.
        held_out: the same with calibrators fitted on samples that the network was not trained on; if the entry has no
            such split, on the first half of the test set, and judged on the other half.
        beyond: the tables of `beyond_confidence` by OOD set.
    """

    entry: Entry
    results: Results
    held_out: Results
    beyond: Mapping[str, Any]

    @property
    def ood(self) -> str:
        """The OOD set that stands for the paper's."""
        return next(iter(self.entry.ood))

    @property
    def training_split(self) -> str | None:
        """The split of training samples, as the paper uses it."""
        return next(filter(is_training, self.entry.calibration), None)

    @property
    def held_out_split(self) -> str:
        """The split of samples that the network has not seen."""
        return str(next(x for x in self.held_out.calibration["split"] if x and not is_training(x)))

    @property
    def halved(self) -> bool:
        """Whether calibrators for the held-out column had to take half of the test set."""
        return self.held_out is not self.results

    @property
    def numbers(self) -> Numbers:
        """The paper's two tables with our numbers."""
        return Numbers(calibration_of(self.results, self.training_split), self.detection)

    @property
    def detection(self) -> dict[str, dict[str, float]]:
        """By score, with intervals."""
        table = self.results.ood[self.results.ood["ood"] == self.ood]
        return {row["score"]: row for row in table.to_dict("records")}


def calibration_of(results: Results, split: str | None) -> dict[str, dict[str, float]]:
    """By method: those without a split, and those fitted on `split`."""
    rows = results.calibration.to_dict("records")
    return {row["method"]: row for row in rows if row["split"] in ("", split)}


def published() -> list[Published]:
    """The paper's experiments."""
    content = json.loads((FOLDER / "published.json").read_text(encoding="utf-8"))
    return [Published(experiment) for experiment in content["experiments"]]


def available(experiments: Iterable[Published]) -> dict[str, Entry]:
    """The entries of the zoo that stand for the paper's experiments, as far as there are any."""
    known = zoo.names()
    return {x.entry: zoo.load(x.entry) for x in experiments if x.entry in known}


def compute(entry: Entry, replicates: int = REPLICATES) -> Ours:
    """Everything that the page says of an entry.

    By torch's operations, so that the page is the same on a machine without a native library: another rounding of the
    scores moves an end of an interval by up to 2e-4.
    """
    with use("torch"):
        return _compute(entry, replicates)


def _compute(entry: Entry, replicates: int) -> Ours:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LeakWarning)  # one split leaks on purpose, and the page says so
        held_out = results = evaluate(entry.id, entry.ood, calibration=entry.calibration, replicates=replicates).results
        if all(map(is_training, entry.calibration)):
            half, rest = entry.held_out()
            held_out = evaluate(rest, calibration={half.name: half}, replicates=replicates).results
    tables = {
        name: beyond_confidence(entry.id, data, strata=STRATA, replicates=replicates)
        for name, data in entry.ood.items()
    }
    return Ours(entry, results, held_out, tables)
