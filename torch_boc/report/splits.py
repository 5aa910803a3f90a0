"""The calibration splits: which of them look like training data, and which have samples of the test set."""

from collections.abc import Iterable

from .parts import Cell, Table
from .results import Results
from .words import distinct_names, number, p_text, quoted, small_number

LEAKING = "looks like training data"
SHARING = "has test samples"


def suspicious_splits(results: Results) -> list[str]:
    """The calibration splits that look like training data."""
    return distinct_names(results.leaks[results.leaks["suspicious"].astype(bool)]["split"])


def sharing_splits(results: Results) -> list[str]:
    """The calibration splits that have samples of the test set in them."""
    table = results.overlaps
    return distinct_names(table[(table["kind"] == "calibration") & table["suspicious"].astype(bool)]["set"])


def split_mark(results: Results, split: str) -> str:
    """What is wrong with a calibration split; "" if nothing is."""
    if split in sharing_splits(results):
        return SHARING
    return LEAKING if split in suspicious_splits(results) else ""


def first_split(results: Results, *, leaking: bool = False) -> str:
    """The first split that nothing is wrong with; the first split if there is none; "" without splits.

    Args:
        results: the numbers.
        leaking: take the first split that something is wrong with, if there is also one that nothing is wrong with.
    """
    splits, suspicious = (
        distinct_names(results.calibration["split"]),
        suspicious_splits(results) + sharing_splits(results),
    )
    honest = [split for split in splits if split not in suspicious]
    chosen = [split for split in splits if split in suspicious and honest] if leaking else honest or splits
    return next(iter(chosen), "")


def split_table(results: Results) -> Table | None:
    """The accuracy on each calibration split and on the test set, and the number of samples that both have."""
    shared = results.overlaps[results.overlaps["kind"] == "calibration"].set_index("set")["shared"]
    rows = [
        [
            Cell(str(row["split"]), mark=split_mark(results, row["split"])),
            Cell(f"{int(row['samples']):,}"),
            Cell(f"{int(shared[row['split']]):,}" if row["split"] in shared else "–"),
            Cell(number(row["accuracy"])),
            Cell(number(row["test_accuracy"])),
            Cell(number(row["z"], 1, sign=True)),
            Cell(small_number(row["p_value"])),
        ]
        for _, row in results.leaks.iterrows()
    ]
    caption = "Calibration splits: is the network more accurate there than on the test set, and do they share samples?"
    return Table(caption, ["split", "samples", "shared", "accuracy", "on test", "z", "p-value"], rows) if rows else None


def leak_sentences(results: Results) -> Iterable[str]:
    """A sentence for each split that looks like training data."""
    fits = results.calibration[results.calibration["temperature"] < 1]
    for _, row in results.leaks.iterrows():
        if not row["suspicious"]:
            continue
        fit = fits[fits["split"] == row["split"]]
        fault = "what is fitted on it does not hold for other samples"
        if len(fit):
            value = number(fit.iloc[0]["temperature"], 3)
            fault = f"the temperature fitted on it, {value}, is below 1 and makes confidences higher"
        yield (
            f"The calibration split {quoted(row['split'])} looks like training data: accuracy "
            f"{number(row['accuracy'])} there, {number(row['test_accuracy'])} on the test set "
            f"(p {p_text(row['p_value'])}); {fault}. Do not use it."
        )
