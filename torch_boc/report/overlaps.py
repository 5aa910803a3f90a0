"""Samples of the test set that stand in another set as well, in words."""

from collections.abc import Iterable, Mapping
from typing import Any

from .results import Results
from .words import quoted

# What the numbers are worth then, and the remedy, by what the other set is for.
MEANING = {
    "calibration": (
        "the calibration split",
        "what is fitted on it has seen these answers, and its errors here are too low. Fit on other samples.",
    ),
    "ood": (
        "the out-of-distribution set",
        "a sample cannot be both, and the AUROC is too close to 0.5. Leave them out of one of the two.",
    ),
    "train": (
        "the training set",
        "accuracy and calibration are partly those of training samples. Test on other samples.",
    ),
}


def overlaps(results: Results) -> Iterable[str]:
    """A sentence for each set that shares samples with the test set."""
    test, size = next(iter(results.settings["samples"].items()))
    for _, row in results.overlaps[results.overlaps["suspicious"].astype(bool)].iterrows():
        yield sentence(row, quoted(test), quoted(row["set"]), size)


def sentence(row: Mapping[str, Any], test: str, other: str, size: int) -> str:
    """How many rows are shared, what that does, and what to do."""
    what, meaning = MEANING[row["kind"]]
    called = what if row["kind"] == "train" else f"{what} {other}"
    return f"{row['shared']:,} of the {size:,} rows of {test} are also in {called}: {meaning}"
