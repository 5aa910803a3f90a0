"""Does a confidence of 80 % mean that 80 % are right? The errors of each method, the best method, and the splits."""

from collections.abc import Iterable
from functools import partial
from typing import Any

from ..calibration import Calibrator, Uncalibrated, calibrators
from ..plots import BLUE, CYCLE, FEW_SAMPLES, GREEN, GREY, ORANGE
from .axes import finish, panels
from .parts import NOTHING, Cell, ContrastRow, Figure, Table, Topic, are_best, first_cell, row_cell
from .tables import Results
from .words import distinct_names, listed, number, over, p_text, quoted, shown, small_number, value_text

INTRODUCTION = (
    "Does a confidence of 80 % mean that 80 % are right? The confidence of each method is compared with the share of "
    "right predictions. “By chance” is the error that perfectly calibrated confidences would show with as many "
    "samples. Chance adds to every ECE. Therefore the interval, which is for the true error, reaches further down than "
    "up, and begins at 0 if the method may be perfectly calibrated. “ECE vs MSP” is the difference on the same samples."
)
MSP = Uncalibrated.name
LEAKING = "looks like training data"
SHARING = "has test samples"
# The methods of the diagram take these colours and marks in the order of `calibrators()`.
STYLES = ((BLUE, "o-"), (GREEN, "^-"), (ORANGE, "s--"), (CYCLE[4], "D-"), (CYCLE[5], "v--"))
SECOND_SPLIT = CYCLE[3]


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
    splits = distinct_names(results.calibration["split"])
    honest = [split for split in splits if not split_mark(results, split)]
    chosen = [split for split in splits if split_mark(results, split) and honest] if leaking else honest or splits
    return next(iter(chosen), "")


def _without_logits() -> list[str]:
    """The methods that give a confidence only."""
    return [method.name for method in calibrators() if not method.gives_logits]


def _text(results: Results) -> str:
    borrowing = _without_logits()
    if not borrowing:
        return INTRODUCTION
    verb, whose = ("give", "their") if len(borrowing) > 1 else ("gives", "its")
    return f"{INTRODUCTION} {_capital(listed(borrowing))} {verb} a confidence only: {whose} NLL is that of {MSP}."


def calibration_tables(results: Results) -> list[Table]:
    """The ECE, the NLL and the Brier score of each method, and the calibration splits.

    The lowest are emphasised, but not those of a method that was fitted on samples of the test set.
    """
    return [table for table in (_errors(results), _splits(results)) if table.rows]


def _errors(results: Results) -> Table:
    table = results.calibration
    borrowed, sharing = table["method"].isin(_without_logits()), table["split"].isin(sharing_splits(results))
    columns = (table["ece"], table["nll"].mask(borrowed), table["brier"])
    best = [are_best(column.mask(sharing), min) for column in columns]
    rows = []
    for i, (_, row) in enumerate(table.iterrows() if table["ece"].notna().any() else ()):
        split = str(row["split"])
        method = Cell(str(row["method"]), f"fitted on {split}" if split else "", mark=split_mark(results, split))
        ece, nll, brier = (
            row_cell(row, name, best=flags[i]) for name, flags in zip(("ece", "nll", "brier"), best, strict=True)
        )
        if borrowed.iloc[i]:
            nll = Cell(f"as {MSP}")
        difference = NOTHING if row["method"] == MSP else row_cell(row, "ece_versus_msp", sign=True)
        values = [ece, Cell(number(row["ece_chance"])), difference, nll, brier]
        rows.append([method, *values, Cell(number(row["accuracy"])), Cell(number(row["temperature"], 3))])
    return Table(
        f"Calibration on {results.known}, with 95 % intervals; lower errors are better",
        ["method", "ECE", "by chance", "ECE vs MSP", "NLL", "Brier", "accuracy", "T"],
        rows,
        heading="Calibration: lower errors (ECE, NLL, Brier) are better",
        pages_only=("by chance", "ECE vs MSP"),
    )


def _splits(results: Results) -> Table:
    """The accuracy on each calibration split and on the test set, and the number of samples that both have."""
    shared = results.overlaps[results.overlaps["kind"] == "calibration"].set_index("set")["shared"]
    rows = []
    for _, row in results.leaks.iterrows():
        split = str(row["split"])
        both = f"{int(shared[split]):,}" if split in shared else "–"
        texts = [f"{int(row['samples']):,}", both, number(row["accuracy"]), number(row["test_accuracy"])]
        texts += [number(row["z"], 1, sign=True), small_number(row["p_value"])]
        rows.append([Cell(split, mark=split_mark(results, split)), *map(Cell, texts)])
    caption = "Calibration splits: is the network more accurate there than on the test set, and do they share samples?"
    return Table(caption, ["split", "samples", "shared", "accuracy", "on test", "z", "p-value"], rows)


def calibrated(results: Results) -> Iterable[str]:
    """Which method is shown to be better calibrated than plain confidence, if there is one."""
    table = results.calibration[results.calibration["ece"].notna()]
    # A low error of a method that was fitted on samples of the test set is no achievement.
    seen = table["split"].isin(sharing_splits(results))
    table = table[~seen]
    plain = table[table["method"] == MSP]
    if not len(plain):
        yield f"{quoted(results.known)} has no targets, so nothing is said of calibration."
        return
    msp, others = plain.iloc[0], table[table["method"] != MSP]
    lowest, better = table.loc[table["ece"].idxmin()], others[shown(others, "ece_versus_msp") < 0]
    if len(better):
        best = better.loc[better["ece"].idxmin()]
        doubt = ", though that split looks like training data" if best["split"] in suspicious_splits(results) else ""
        ties = others[shown(others, "ece_versus_best") == 0]
        close = [_method(row) for place, row in ties.iterrows() if place != best.name]
        verb = "are" if len(close) > 1 else "is"
        yield (
            f"Best calibrated is {_method(best)}{doubt}: ECE {value_text(best, 'ece')}, against "
            f"{value_text(msp, 'ece')} of plain confidence, {MSP}{over(len(others))}."
            + (f" {_capital(listed(close))} {verb} not shown to be worse." if close else "")
            + _perfect(best)
        )
        return
    fitted = len(distinct_names(table["split"])) > 0
    none = "Nothing was fitted on other samples" if seen.any() else "No calibration set was given"
    rivals = "No method is" if fitted else f"{none}, and BoC is not"
    rest = ""
    if lowest["method"] != MSP:
        rest = f"; the lowest, {value_text(lowest, 'ece')} of {_method(lowest)}, differs by "
        rest += f"{value_text(lowest, 'ece_versus_msp', sign=True)}, which is within chance{over(len(others))}"
    said = _perfect(msp) or _perfect(lowest)
    yield f"{rivals} shown to beat plain confidence ({MSP}), whose ECE is {value_text(msp, 'ece')}{rest}.{said}"


def _perfect(row: Any) -> str:
    """A sentence if a perfectly calibrated confidence could have that error: if its interval begins at 0."""
    if not row["ece_low"] <= 0:
        return ""
    chance = number(row["ece_chance"])
    return f" A perfectly calibrated confidence has an ECE of {chance} by chance alone: {_method(row)} may be perfect."


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]


def _method(row: Any) -> str:
    """A calibration method and the split that it was fitted on."""
    return f"{row['method']} fitted on {quoted(row['split'])}" if row["split"] else str(row["method"])


def leak_sentences(results: Results) -> Iterable[str]:
    """A sentence for each split that looks like training data."""
    fits = results.calibration[results.calibration["temperature"] < 1]
    for _, row in results.leaks[results.leaks["suspicious"].astype(bool)].iterrows():
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


def reliability_curves(results: Results) -> list[tuple[str, str, str]]:
    """The lines of the diagram: the method, the split that it was fitted on ("" for none), and its name in the legend.

    Each method has a line for the first two splits that it was fitted on.
    """
    table = results.reliability
    pairs = list(dict.fromkeys(zip(table["method"], table["split"], strict=True)))
    splits = {method: [pair for pair in pairs if pair[0] == method][:2] for method in _methods()}
    chosen = [pair for pair in pairs if pair in splits.get(pair[0], ())]
    return [(*pair, f"{pair[0]}, {pair[1]}" if len(splits[pair[0]]) > 1 else pair[0]) for pair in chosen]


def curve_points(results: Results, method: str, split: str) -> Any:
    """The bins of a line that have enough samples."""
    table = results.reliability[results.reliability["samples"] >= FEW_SAMPLES]
    return table[(table["method"] == method) & (table["split"] == split)].sort_values("bin_low")


def _methods() -> list[str]:
    return [method.name for method in calibrators() if method.in_diagram][: len(STYLES)]


def reliability_figure(results: Results) -> Any:
    """Accuracy against confidence, with bootstrap bands; None if there is nothing to show."""
    curves = reliability_curves(results)
    if not curves or not (results.reliability["samples"] >= FEW_SAMPLES).any():
        return None
    styles = dict(zip(_methods(), STYLES, strict=False))
    figure, (axis,) = panels(1)
    axis.plot([0, 1], [0, 1], color=GREY, linewidth=1, linestyle=":")
    for i, (method, split, label) in enumerate(curves):
        rows, (colour, style) = curve_points(results, method, split), styles[method]
        colour = SECOND_SPLIT if any(method == other for other, *_ in curves[:i]) else colour
        low, high = rows["accuracy_low"], rows["accuracy_high"]
        axis.fill_between(rows["confidence"], low, high, color=colour, alpha=0.18, linewidth=0)
        # With many classes BoC has one point, at the right edge: it is drawn whole.
        options = {"markersize": 4, "linewidth": 1.4, "clip_on": False}
        axis.plot(rows["confidence"], rows["accuracy"], style, color=colour, label=label, **options)
    axis.set(xlabel="confidence", ylabel="accuracy", xlim=(0, 1), ylim=(0, 1))
    return finish(figure, [axis], "upper left")


def _describe(results: Results) -> str:
    parts = []
    for method, split, label in reliability_curves(results):
        rows = results.calibration[(results.calibration["method"] == method) & (results.calibration["split"] == split)]
        parts.append(f"{label}: ECE {number(rows.iloc[0]['ece'])}" if len(rows) else label)
    return f"Reliability diagram, accuracy against confidence in each bin, with 95 % bands. {'; '.join(parts)}"


def _contrast() -> Iterable[ContrastRow]:
    yield Cell("calibrated on"), _calibrated_on
    for method in calibrators():
        yield Cell(f"ECE, {method.name}"), partial(_error, method, leaking=False)
        if method.needs_fit and method.in_diagram:
            yield Cell(f"ECE, {method.name}", mark=LEAKING), partial(_error, method, leaking=True)


def _calibrated_on(results: Results) -> Cell:
    split = first_split(results)
    return Cell(split, mark=split_mark(results, split)) if split else NOTHING


def _error(method: Calibrator, results: Results, *, leaking: bool) -> Cell:
    table = results.calibration[results.calibration["method"] == method.name]
    split = first_split(results, leaking=leaking) if method.needs_fit else ""
    return first_cell(table[table["split"] == split], "ece")


CALIBRATION = Topic(
    "Calibration",
    _text,
    calibration_tables,
    (
        Figure(
            "reliability",
            reliability_figure,
            f"How often predictions of a given confidence are right, for bins with {FEW_SAMPLES} samples or more. "
            "Dotted: perfect calibration. Shaded: 95 % bootstrap bands.",
            _describe,
        ),
    ),
    sentences=(calibrated,),
    details=(leak_sentences,),
    contrast=_contrast,
    glossary=(
        ("p̂", "confidence: the largest softmax probability."),
        ("MSP", "plain confidence p̂, the maximum softmax probability, as a method or a score."),
        ("ECE", "expected calibration error: the mean difference between confidence and the share that is right."),
        ("NLL", "negative log-likelihood of the right class, on average."),
        ("Brier", "the mean squared difference between confidence and being right (1) or wrong (0)."),
        ("T", "the temperature that the logits are divided by."),
    ),
)
