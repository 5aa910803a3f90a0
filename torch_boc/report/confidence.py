"""Is its confidence honest, how much should a person see, where is it wrong, and which samples to look at."""

from typing import Any, NamedTuple

from ..calibration import CALIBRATORS, DominanceConfidence, TemperatureScaling, Uncalibrated
from ..plots import FEW_SAMPLES
from .parts import Cell, Section, Table, cells, make_table
from .svg import BLUE, GREEN, GREY, ORANGE, Chart
from .tables import Results, where
from .words import listed, number, off_by, over, p_text, percent, shown, small_number

MSP = Uncalibrated.name
LEAKING, SHARING = "easier than the test set", "has test samples"
CALLED = {MSP: "as it is", DominanceConfidence.name: "dominance q̄ (BoC)"}
# The methods that give a confidence only.
WITHOUT_LOGITS = [method.name for method in CALIBRATORS if not method.gives_logits]


class Repair(NamedTuple):
    """What may be said of calibration.

    Attributes:
        plain: the row of plain confidence.
        best: the row of the method to use, if any is shown to be better than plain confidence: of temperature and
            structured scaling, as far as they are better or as good as the best, the one with the lower loss on
            held-out halves of the split; otherwise the method with the lowest error.
        others: the other methods that are not shown to be worse than the lowest error.
        tied: whether the best is not shown to be worse, either.
        comparisons: the number of methods that are compared with plain confidence.
        fitted: whether a method was fitted on samples that are not those of the test set.
    """

    plain: Any
    best: Any
    others: Any
    tied: bool
    comparisons: int
    fitted: bool


def split_marks(results: Results) -> dict[str, str]:
    """What is wrong with calibration splits, for those that something is wrong with."""
    leaking = results.leaks[results.leaks["suspicious"].astype(bool)]["split"]
    sharing = where(results.overlaps, kind="calibration", suspicious=True)["set"]
    return dict.fromkeys(leaking, LEAKING) | dict.fromkeys(sharing, SHARING)


def method_text(row: Any) -> str:
    """A calibration method and the split that it was fitted on."""
    name = CALLED.get(row["method"], row["method"])
    return f"{name} fitted on “{row['split']}”" if row["split"] else str(name)


def repair(results: Results) -> Repair | None:
    """Which method is shown to be better calibrated than plain confidence; None without targets.

    A low error of a method that was fitted on samples of the test set is no achievement, so it does not count.
    """
    table = results.calibration[results.calibration["ece"].notna()]
    table = table[table["split"].map(split_marks(results)) != SHARING]
    plain, others = where(table, method=MSP), table[table["method"] != MSP]
    if not len(plain):
        return None
    better, ties = others[shown(others, "ece_versus_msp") < 0], others[shown(others, "ece_versus_best") == 0]
    best, tied = None, False
    if len(better):
        usable = others[others["fold_nll"].notna() & others.index.isin([*better.index, *ties.index])]
        usable = where(usable, split=usable["split"].iloc[0]) if len(usable) else better
        best = others.loc[usable["ece" if usable is better else "fold_nll"].idxmin()]
        tied = best.name in ties.index
        ties = ties.drop(index=best.name, errors="ignore")
    fitted = bool((table["split"] != "").any())
    return Repair(plain.iloc[0], best, ties, tied, len(others), fitted)


def direction(results: Results) -> str:
    """Whether the network is too sure or too modest."""
    known, right = results.gaps.iloc[0]["confidence"], results.settings["accuracy"]
    error = where(results.calibration, method=MSP)["ece"].iloc[0]
    if abs(known - right) < error / 2:
        return "too sure in some places and too modest in others"
    return "too sure" if known > right else "too modest"


def honest(results: Results) -> Section:
    """Does a confidence of 80 % mean that 80 % are right?"""
    title, found = "Is its confidence honest?", repair(results)
    if found is None:
        return Section(title, [f"“{results.known}” has no targets, so nothing is said of calibration."])
    plain, best = found.plain, found.best
    says = f"It says {percent(results.gaps.iloc[0]['confidence'])} on average and is right {percent(plain['accuracy'])}"
    how = f"chance alone makes {100 * plain['ece_chance']:.1f} points, so that it may be perfect"
    sentences = [f"{says} of the time: off by {off_by(plain)}, {direction(results) if plain['ece_low'] > 0 else how}."]
    if best is not None:
        close = [method_text(row) for _, row in found.others.iterrows()]
        verb = "are" if len(close) > 1 else "is"
        rank = f"as good, as far as {results.settings['samples'][results.known]:,} samples can tell"
        doubt = ", though that split is easier than the test set" if split_marks(results).get(best["split"]) else ""
        close = [close[0][0].upper() + close[0][1:], *close[1:]] if close else []
        also = f" {listed(close)} {verb} {rank if found.tied else 'better here'}." if close else ""
        lead = f"It is repaired by {method_text(best)}{doubt}: off by {off_by(best)}"
        sentences.append(f"{lead}{over(found.comparisons)}.{also}")
    else:
        none = "No method is" if found.fitted else "Nothing was fitted on other samples, and dominance q̄ is not"
        sentences.append(f"{none} shown to be better than plain confidence{over(found.comparisons)}.")
    dots = f"Dots: how often predictions of a given confidence are right, in bins with {FEW_SAMPLES} samples or more"
    note = f"{dots}, with 95 % intervals. On the dotted line it is honest."
    more = {"All calibration methods": [error_table(results), split_table(results)]}
    return Section(title, sentences, reliability_chart(results, best), more=more, note=note)


def reliability_chart(results: Results, best: Any) -> dict[str, tuple[Chart, str]]:
    """Accuracy against confidence: as it is, calibrated by the method to use or else a temperature, and dominance."""
    chart = Chart("its confidence", "right")
    chart.rule((0, 1), (0, 1))
    table, parts = results.reliability[results.reliability["samples"] >= FEW_SAMPLES], []
    fitted = TemperatureScaling.name if best is None else best["method"]
    drawn = {MSP: ORANGE, fitted: BLUE, DominanceConfidence.name: GREEN}
    for (method, split), rows in table.groupby(["method", "split"], sort=False):
        if method not in drawn:
            continue
        leaks = split_marks(results).get(split, "")
        name = CALLED.get(method, f"{method}, {split}")
        colour = GREY if leaks else drawn[method]
        chart.line(rows["confidence"], rows["accuracy"], colour, name, 'stroke-dasharray="6 4"' if leaks else "")
        for _, row in rows.iterrows():
            told = f"{name}: says {percent(row['confidence'])}, right {percent(row['accuracy'])}"
            ends = row["accuracy_low"], row["accuracy_high"]
            chart.dot(row["confidence"], row["accuracy"], colour, f"{told}, {row['samples']:,} samples", ends)
        error = where(results.calibration, method=method, split=split)["ece"]
        parts.append(f"{name}: ECE {number(float(error.iloc[0]))}" if len(error) else name)
    alt = f"Reliability diagram, accuracy against confidence in each bin. {'; '.join(parts)}."
    return {"reliability": (chart, alt)} if parts else {}


def error_table(results: Results) -> Table:
    """The errors of each method. The lowest are emphasised, but not those of a method that has seen the test set."""
    marks, table = split_marks(results), results.calibration
    lowest = table[table["split"].map(marks) != SHARING].min(numeric_only=True)
    names = []
    for _, row in table.iterrows():
        fitted = f"fitted on {row['split']}" if row["split"] else ""
        names.append(Cell(CALLED.get(row["method"], row["method"]), fitted, mark=marks.get(row["split"], "")))
    losses = cells(table, "nll", best=lowest["nll"])
    for place, method in enumerate(table["method"]):
        if method in WITHOUT_LOGITS:
            losses[place] = Cell(CALLED[MSP])
    return make_table(
        f"Calibration on {results.known}, with 95 % intervals; lower errors are better. “By chance” is the ECE of a "
        "perfect confidence with as many samples",
        {
            "method": names,
            "ECE": cells(table, "ece", best=lowest["ece"]),
            "by chance": cells(table, "ece_chance"),
            "ECE vs as it is": cells(table, "ece_versus_msp", sign=True),
            "NLL": losses,
            "NLL on halves of the split": cells(table, "fold_nll"),
            "Brier": cells(table, "brier", best=lowest["brier"]),
            "accuracy": cells(table, "accuracy"),
            "T": cells(table, "temperature", 3),
        },
    )


def split_table(results: Results) -> Table:
    """The accuracy on each calibration split and on the test set, and the number of samples that both have."""
    marks, table = split_marks(results), results.leaks
    shared = where(results.overlaps, kind="calibration").set_index("set")["shared"]
    return make_table(
        "Calibration splits: is the network more accurate there than on the test set, and do they share samples?",
        {
            "split": [Cell(split, mark=marks.get(split, "")) for split in table["split"]],
            "samples": [f"{samples:,}" for samples in table["samples"]],
            "shared": [f"{int(shared[split]):,}" if split in shared else "–" for split in table["split"]],
            "accuracy": cells(table, "accuracy"),
            "on test": cells(table, "test_accuracy"),
            "p-value": [small_number(p) for p in table["p_value"]],
        },
    )


def leak_sentences(results: Results) -> list[str]:
    """A sentence for each split that is easier than the test set."""
    found = []
    for _, row in where(results.leaks, suspicious=True).iterrows():
        fits = where(results.calibration, split=row["split"])
        fit, fault = fits[fits["temperature"] < 1], "What is fitted there does not hold for other samples."
        if len(fit):
            value, off = number(fit.iloc[0]["temperature"], 3), off_by(fit.iloc[0])
            fault = f"A temperature fitted there, {value}, is below 1 and makes it more sure: off by {off}."
        found.append(
            f"Do not fit on “{row['split']}”. The network is right on {percent(row['accuracy'])} there and on "
            f"{percent(row['test_accuracy'])} of the test set (p {p_text(row['p_value'])}). It is easier than "
            f"the test set: training data, or another mix of classes. {fault}"
        )
    return found
