"""The sections of a report in their order, and what stands above and below them.

A new section needs a function from `Results` to a `Section`, or to None if there is nothing to say, in `TOPICS`.
"""

import math
from typing import NamedTuple

from ..calibration import CALIBRATORS, LeakWarning, OverlapWarning
from ..calibration.split_checks import overlap_message, repeated_message
from ..data.logit_set import SMALLEST
from .calibration import calibration_advice, calibration_section, direction, leak_sentences, method_text
from .coherence import coherence_section
from .detection import detection_section
from .elements import Section
from .format import PERCENT, counted, interval_text, join_words, percent, score_label, short_percent
from .mistakes import error_section, sample_section
from .results import Results, where
from .review import (
    condition,
    delay_text,
    drift_section,
    flagged,
    guarantee,
    held_out_name,
    refusal,
    review_section,
    reviewed,
    unlike,
    violated,
)

TOPICS = (
    calibration_section,
    review_section,
    detection_section,
    drift_section,
    coherence_section,
    error_section,
    sample_section,
)
# With fewer samples nothing is said; with fewer than the second number, intervals are too narrow.
FEWEST, SMALL_SET = 30, 100
# Labels are called wrong if the accuracy is this many standard errors below that of guessing.
BELOW_CHANCE = 4.0
INTERVALS = (
    "for the lower end of the ECE, what chance adds is subtracted; for AUROC vs confidence by DeLong’s method; wider, "
    "as for binomial counts, if few samples are on one side; for shares of flagged samples by Clopper and Pearson"
)
FROM_PROBABILITIES = (
    f"logarithms of the given probabilities, with {SMALLEST} instead of a probability of 0; the energy is left out, "
    "because it is always 0 after a softmax"
)
MISFIT, GUESSING = "the labels do not match the logits", "accuracy no better than guessing"


class Number(NamedTuple):
    """A main number of a report.

    Attributes:
        key: its name for programs: accuracy, confidence, ece, coverage, review, detected or delay.
        text: the value with its unit, or why there is none.
        label: what it is.
        note: its interval, or its condition.
        value: the value as a share or in samples; NaN if there is none or it is not valid.
    """

    key: str
    text: str
    label: str
    note: str
    value: float


class Narrative(NamedTuple):
    """What a report says, in the order in which it is said.

    Attributes:
        finding: the title.
        headline: the sets and their sizes, in one line.
        numbers: the main numbers.
        actions: what to do, each with a command or a name.
        warnings: what is wrong with the samples.
        sections: the topics.
        figures: the figures as SVG, by name.
        measured: how it was measured: the settings, by their names.
    """

    finding: str
    headline: str
    numbers: list[Number]
    actions: list[tuple[str, str]]
    warnings: list[str]
    sections: list[Section]
    figures: dict[str, str]
    measured: dict[str, str]

    @property
    def verdict(self) -> list[str]:
        """All sentences."""
        return [*self.warnings, *(sentence for section in self.sections for sentence in section.sentences)]


def make_narrative(results: Results) -> Narrative:
    """What the numbers say."""
    sections, figures = [], {}
    for topic in TOPICS:
        section = topic(results)
        if section is not None:
            few = size(results) < FEWEST
            sections.append(section._replace(sentences=[], aside=[]) if few else section)
            for name, (chart, alt) in section.charts.items():
                figures[name] = chart.svg(alt)
    name, result = str(results.settings.get("title", "")).partition(": ")[0], finding(results)
    title = f"{name}: {result}" if name else result[0].upper() + result[1:]
    measured, accuracy = measured_how(results), results.settings["accuracy"]
    parts = [measured["samples"], f"accuracy {percent(accuracy)}" if accuracy == accuracy else ""]
    parts.append(f"{measured['classes']} classes")
    headline = " · ".join(filter(None, parts))
    parts_above = title, headline, numbers(results), actions(results), warnings_of(results)
    return Narrative(*parts_above, sections, figures, measured)


def size(results: Results) -> int:
    """The number of test samples."""
    return int(results.settings["samples"][results.test_set])


def doubt(results: Results) -> str:
    """MISFIT if the accuracy is below that of guessing, or above it only with labels lower by one; GUESSING; or ""."""
    accuracy, chance = float(results.settings["accuracy"]), 1 / results.settings["classes"]
    error = BELOW_CHANCE * math.sqrt(chance * (1 - chance) / size(results))
    if accuracy < chance - error or accuracy < chance + error < results.settings.get("shifted_accuracy", 0.0):
        return MISFIT
    return GUESSING if accuracy <= chance + error / 2 else ""


def constant_class(results: Results) -> str:
    """The class of all predictions, and whether it is the majority class; "" if predictions differ."""
    if len(results.classes) != 1:
        return ""
    row, rest = results.classes.iloc[0], results.confusions.sort_values("samples", ascending=False)
    name = results.class_name(int(row["prediction"]))
    if len(rest) and rest.iloc[0]["samples"] > row["precision"] * row["samples"]:
        return f"{name}; the majority class is {results.class_name(int(rest.iloc[0]['target']))}"
    return f"{name}, the majority class"


def warnings_of(results: Results) -> list[str]:
    """What is wrong with the samples: labels that do not fit, small sets, shared samples, leaks, what is left out."""
    settings, sentences, doubtful = results.settings, [], doubt(results)
    sizes, accuracy = settings["samples"], settings["accuracy"]
    if size(results) < FEWEST:
        few = f"Nothing can be said with {counted(size(results), 'test sample')}; collect at least {FEWEST}"
        sentences.append(f"{few}, and {SMALL_SET} or more for intervals.")
    elif doubtful == MISFIT:
        guess, shifted = percent(1 / settings["classes"]), settings.get("shifted_accuracy", 0.0)
        from_one = f" With each label lower by one, it is {percent(shifted)}." if shifted > accuracy else ""
        lead = f"{MISFIT.capitalize()}: accuracy is {percent(accuracy)}, and guessing gives {guess}."
        sentences.append(f"{lead} Labels may be counted from 1, or the classes may be in another order.{from_one}")
    elif doubtful:
        sentences.append(f"Accuracy is {percent(accuracy)}, no better than guessing: there is nothing to calibrate.")
    if constant := constant_class(results):
        sentences.append(f"Every prediction is {constant}: no sample is distinguished from another class.")
    small = [f"“{name}” has {count}" for name, count in sizes.items() if count < SMALL_SET]
    if small:
        few = f"With fewer than {SMALL_SET} samples"
        sentences.append(f"{few} numbers are rough and intervals too narrow: {join_words(small)}.")
    sentences += [fault for _, fault in set_faults(results)]
    if settings.get("from_columns"):
        lead = "The tables hold the columns of a predictor, not logits, so these parts are left out"
        sentences.append(f"{lead}: {join_words(settings['left_out'])}.")
    drawn = [f"{sizes[x]:,} of the {total:,} rows of “{x}”" for x, total in settings.get("sampled", {}).items()]
    if drawn:
        lead = f"A random sample was read: {join_words(drawn)}"
        sentences.append(f"{lead}. All numbers and intervals are those of the sample.")
    return sentences


def set_faults(results: Results) -> list[tuple[type[UserWarning], str]]:
    """Sets that share or repeat samples, and splits that are easier or harder than the test set: also as warnings."""
    sizes, faults = results.settings["samples"], []
    for _, row in where(results.overlaps, suspicious=True).iterrows():
        names = {"test": f"“{results.test_set}”", "other": f"“{row['set']}”"}
        faults.append((OverlapWarning, overlap_message(row["kind"], row["shared"], sizes[results.test_set], **names)))
    for name, count in results.settings.get("repeated", {}).items():
        faults.append((OverlapWarning, repeated_message(count, sizes[name], f"“{name}”")))
    return [*faults, *((LeakWarning, sentence) for sentence in leak_sentences(results))]


def finding(results: Results) -> str:
    """The most important result in a few words, without the name of the model."""
    advice, doubtful = calibration_advice(results), doubt(results)
    if size(results) < FEWEST:
        return f"{counted(size(results), 'test sample')}: too few to evaluate"
    if doubtful == MISFIT:
        return MISFIT
    if constant_class(results):
        return "constant prediction"
    if doubtful:
        return doubtful
    if advice is None:
        return "calibration not evaluated: no targets"
    if not advice.miscalibrated:
        return f"no miscalibration detected with {size(results):,} samples"
    result = f"{direction(results)}: ECE {percent(advice.plain['ece'])}"
    if advice.best is None:
        return result
    size_of_it = "" if advice.verb == "corrects" else f" to {percent(advice.best['ece'])}"
    return f"{result}; {advice.best['method']} {advice.verb} it{size_of_it}"


def numbers(results: Results) -> list[Number]:
    """The main numbers: accuracy, ECE, coverage at a guaranteed error, the share to review and the detection delay."""
    settings, advice, share = results.settings, calibration_advice(results), results.settings["review_share"]
    key, value, label = "accuracy", settings["accuracy"], "accuracy"
    if advice is None:
        key, value, label = "confidence", float(results.gaps.iloc[0]["confidence"]), "mean confidence"
    sizes = f"{counted(size(results), 'sample')}, {settings['classes']:,} classes"
    tiles = [Number(key, percent(value), label, sizes, value)]
    if size(results) < FEWEST:
        return tiles
    if advice is not None:
        text, note = percent(advice.plain["ece"]), f"uncalibrated {interval_text(advice.plain, 'ece', **PERCENT)}"
        if advice.best is not None:
            text += f" → {percent(advice.best['ece'])}"
            note += f"; {advice.best['method']} {interval_text(advice.best, 'ece', **PERCENT)}"
        tiles.append(Number("ece", text, "ECE", f"{note} (95 % intervals)", advice.plain["ece"]))
    for _, row in results.acceptance[:1].iterrows():
        text, note, value = percent(row["accepted"]), guarantee(results, row), row["accepted"]
        if not row["accepted"]:
            text, note, value = "none", refusal(row), math.nan
        elif violated(results):
            text, value = "not valid", math.nan
            note = f"{percent(row['wrong'])} of what it accepts are wrong; {violated(results)}"
        tiles.append(Number("coverage", text, f"coverage at ≤ {short_percent(row['error'])} error", note, value))
    if advice is None and share is not None:
        note = f"finds {reviewed(results, share)[1]}"
        tiles.append(Number("review", short_percent(share), "to review", note, share))
    for _, row in where(flagged(results), kind="ood").iterrows():
        level, name = short_percent(row["alpha"]), score_label(row["score"])
        note = f"conformal test of {name}, FPR ≤ {level} on average, {condition(results)}"
        note = f"conformal test of {name}, whose FPR is not valid here: {unlike(results)}" if unlike(results) else note
        text, label = percent(row["flagged"]), f"{row['set']} detected at {level} FPR"
        tiles.append(Number("detected", text, label, note, row["flagged"]))
    for _, row in results.delays[:1].iterrows():
        alpha = short_percent(row["alpha"])
        note = f"probability of ever raising a false alarm ≤ {alpha}, {condition(results)}"
        note = f"not valid here: {unlike(results)}" if unlike(results) else note
        value = math.nan if unlike(results) else row["delay"]
        tiles.append(Number("delay", delay_text(row), f"detection delay, {row['ood']}", note, value))
    return tiles


def actions(results: Results) -> list[tuple[str, str]]:
    """What to do now: sentences, each with a command or a name."""
    advice, share = calibration_advice(results), results.settings["review_share"]
    if size(results) < FEWEST:
        return [(f"Collect at least {FEWEST} test samples, then run this again.", "")]
    if doubt(results) == MISFIT:
        return [("Check the order of the classes and the first label, then run this again.", "")]
    if constant := constant_class(results):
        return [(f"Check the training of the model: every prediction is {constant}.", "")]
    if doubt(results):
        return [("Check the labels and the training of the model: its accuracy is that of guessing.", "")]
    # Without a trusted split, the numbers are those of the test set as the held-out samples.
    steps, tested = [], f"new.npz --calibration {'val.npz' if held_out_name(results) else 'test.npz'}"
    best = None if advice is None else advice.best
    # Logits of a calibrator with many weights void the guarantee, if it was fitted on the held-out samples.
    raw = " (by uncalibrated logits)" if best is not None else ""
    if best is not None:
        name = next(method.__name__ for method in CALIBRATORS if method.name == best["method"])
        steps.append((f"Calibrate with {method_text(best)}.", f"torch_boc.calibration.{name}"))
    elif advice is not None and advice.miscalibrated and not advice.fitted:
        text = "Fit a calibrator on held-out samples like those of the test set."
        steps.append((text, "torch-boc report test.npz --calibration val.npz"))
    if unlike(results):
        text = "Collect held-out samples like the new ones: no guarantee is valid with these."
        return [*steps, (text, "torch-boc report test.npz --calibration new-val.npz")]
    accepted = results.acceptance[: int(not violated(results))].query("accepted > 0")
    for _, row in accepted.iterrows():
        most = "all" if row["accepted"] == 1 else f"the {percent(row['accepted'])} most confident"
        text = f"Automate {most} predictions{raw}: {guarantee(results, row)}."
        steps.append((text, f"torch-boc screen {tested} --error {row['error']:g} -o queue.csv"))
    if share is not None and not len(accepted):
        text, options = f"Review the least confident {short_percent(share)}.", f"--score log_odds --alpha {share:g}"
        steps.append((text, f"torch-boc screen {tested} {options} -o queue.csv"))
    return [*steps, ("Monitor for drift.", f"torch-boc monitor {tested} --state stream.pt")]


def measured_how(results: Results) -> dict[str, str]:
    """The settings, by their names."""
    settings = results.settings
    bootstrap = f"95 %, bootstrap with {settings['replicates']:,} replicates, seed {settings['seed']}; {INTERVALS}"
    sampled = [f"{name} {settings['samples'][name]:,} of {n:,}" for name, n in settings.get("sampled", {}).items()]
    pairs = {
        "samples": ", ".join(f"{name} {count:,}" for name, count in settings["samples"].items()),
        "classes": str(settings["classes"]),
        "logits": FROM_PROBABILITIES if settings.get("from_probabilities") else "",
        "calibration error": f"{settings['bins']} bins of equal width, closed on the right",
        "coin flips": f"k = {settings['trials']}",
        "intervals": bootstrap,
        "several comparisons": "what a sentence calls “shown” is corrected for all comparisons of the same kind, by "
        "Holm’s method, at the level of 5 %; the intervals in the tables are not corrected",
        "random rows": f"{', '.join(sampled)} rows, drawn uniformly, seed {settings['seed']}" if sampled else "",
        "left out": "; ".join(settings.get("left_out", ())),
        "date": str(settings.get("date", "")),
        "versions": ", ".join(f"{name} {version}" for name, version in settings.get("versions", {}).items()),
    }
    return {name: value for name, value in pairs.items() if value}
