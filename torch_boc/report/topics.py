"""The sections of a report in their order, and what stands above and below them.

A new section needs a function from `Results` to a `Section`, or to None if there is nothing to say, in `TOPICS`.
"""

import math
from typing import NamedTuple

from ..calibration import CALIBRATORS
from ..calibration.leaks import overlap_message
from ..data.sets import SMALLEST
from .coherence import coherence
from .confidence import direction, honest, leak_sentences, method_text, repair
from .detection import unfamiliar
from .errors import look, mistakes
from .parts import Section
from .screening import alarm_of, change, knee, review, reviewed
from .tables import Results, where
from .words import interval_text, listed, number, percent, short_percent

TOPICS = (honest, review, unfamiliar, change, coherence, mistakes, look)
# The intervals of a set with fewer samples than this are too narrow.
SMALL_SET = 100
# Labels are called wrong if the accuracy is so many standard errors below that of guessing.
BELOW_CHANCE = 4.0
INTERVALS = (
    "for the lower end of the ECE, what chance adds is subtracted; for AUROC vs confidence by DeLong’s method; wider, "
    "as for binomial counts, if few samples are on one side; for shares of flagged samples by Clopper and Pearson"
)
FROM_PROBABILITIES = (
    f"logarithms of the given probabilities, with {SMALLEST} in place of a probability of 0; the energy is left out, "
    "because it is always 0 after a softmax"
)
MISFIT = "the labels do not seem to fit the logits"


class Story(NamedTuple):
    """What a report says, in the order in which it is said.

    Attributes:
        finding: the title.
        headline: the sets and their sizes, in one line.
        numbers: the most important numbers, each with what it is, and small print.
        actions: what to do, each with a command or a name.
        warnings: what is wrong with the samples.
        sections: the questions and their answers.
        figures: the figures as SVG, by name.
        measured: how it was measured: the settings, by their names.
    """

    finding: str
    headline: str
    numbers: list[tuple[str, str, str]]
    actions: list[tuple[str, str]]
    warnings: list[str]
    sections: list[Section]
    figures: dict[str, str]
    measured: dict[str, str]

    @property
    def verdict(self) -> list[str]:
        """All sentences."""
        return [*self.warnings, *(said for section in self.sections for said in section.sentences)]


def tell(results: Results) -> Story:
    """What the numbers say."""
    sections, figures = [], {}
    for topic in TOPICS:
        section = topic(results)
        if section is not None:
            sections.append(section)
            for name, (chart, alt) in section.charts.items():
                figures[name] = chart.svg(alt)
    name, found = str(results.settings.get("title", "")).partition(": ")[0], finding(results)
    title = f"{name}: {found}" if name else found[0].upper() + found[1:]
    measured, right = measured_how(results), results.settings["accuracy"]
    parts = [measured["samples"], f"{percent(right)} right" if right == right else "", f"{measured['classes']} classes"]
    said = title, " · ".join(filter(None, parts)), numbers(results), actions(results), warnings_of(results)
    return Story(*said, sections, figures, measured)


def labels_fit(results: Results) -> bool:
    """Whether the predictions are right at least as often as guesses would be."""
    right, chance = float(results.settings["accuracy"]), 1 / results.settings["classes"]
    error = math.sqrt(chance * (1 - chance) / results.settings["samples"][results.known])
    return not right < chance - BELOW_CHANCE * error


def warnings_of(results: Results) -> list[str]:
    """What is wrong with the samples: labels that do not fit, small sets, shared samples, leaks, what is left out."""
    settings, found = results.settings, []
    sizes, right = settings["samples"], settings["accuracy"]
    if not labels_fit(results):
        guess, shifted = percent(1 / settings["classes"]), settings.get("shifted_accuracy", 0.0)
        from_one = f" With each label lower by one, {percent(shifted)} would be right." if shifted > right else ""
        lead = f"{MISFIT.capitalize()}: {percent(right)} of the predictions are right, and guessing would give {guess}."
        found.append(f"{lead} Labels may be counted from 1, or the classes may be in another order.{from_one}")
    small = [f"“{name}” has {size}" for name, size in sizes.items() if size < SMALL_SET]
    if small:
        few = f"With fewer than {SMALL_SET} samples"
        found.append(f"{few} numbers are rough and intervals too narrow: {listed(small)}.")
    for _, row in where(results.overlaps, suspicious=True).iterrows():
        names = {"test": f"“{results.known}”", "other": f"“{row['set']}”"}
        found.append(overlap_message(row["kind"], row["shared"], sizes[results.known], **names))
    found += leak_sentences(results)
    if settings.get("from_columns"):
        left = listed(settings["left_out"])
        found.append(f"The tables hold the columns of a predictor, not logits, so these parts are left out: {left}.")
    drawn = [f"{sizes[x]:,} of the {total:,} rows of “{x}”" for x, total in settings.get("sampled", {}).items()]
    if drawn:
        found.append(f"A random sample was read: {listed(drawn)}. All numbers and intervals are those of the sample.")
    return found


def finding(results: Results) -> str:
    """The most important result in a few words, without the name of the model."""
    found = repair(results)
    if not labels_fit(results):
        return MISFIT
    if found is None:
        return "confidence is not checked, because there are no targets"
    if found.plain["ece_low"] <= 0:
        return f"its confidence is honest, as far as {results.settings['samples'][results.known]:,} samples can tell"
    error, how = 100 * found.plain["ece"], direction(results)
    points = f"{number(error, int(error < 1))} {'point' if round(error) == 1 <= error else 'points'}"
    said = f"{how} by {points}" if " in " not in how else f"off by {points}, {how}"
    if found.best is None:
        return said
    half = found.best["ece_low"] <= 0 or found.best["ece"] < found.plain["ece"] / 2
    what = "one number" if math.isfinite(found.best["temperature"]) else method_text(found.best)
    return f"{said}; {what} {'repairs' if half else 'helps'} it"


def numbers(results: Results) -> list[tuple[str, str, str]]:
    """The most important numbers, each with what it is, and small print."""
    settings, found, share = results.settings, repair(results), knee(results)
    many = f"on {settings['samples'][results.known]:,} samples, {settings['classes']:,} classes"
    tiles = [(percent(results.gaps.iloc[0]["confidence"]), "mean confidence", many)]
    if found is not None:
        tiles = [(percent(settings["accuracy"]), "right", many)]
        value, small = number(100 * found.plain["ece"], 1), f"as it is {interval_text(found.plain, 'ece', 1, 100)}"
        if found.best is not None:
            value += f" → {number(100 * found.best['ece'], 1)}"
            small += f"; {found.best['method']} {interval_text(found.best, 'ece', 1, 100)}"
        tiles.append((value, "points off in its confidence", f"{small} (95 %)"))
    for _, row in results.acceptance[:1].iterrows():
        error, sure = short_percent(row["error"]), short_percent(row["confidence"])
        promise = f"may go out unseen: at most {error} wrong, {sure} sure"
        tiles.append((percent(row["accepted"]), f"accepted at {error} error", promise))
    if found is None and share == share:
        tiles.append((short_percent(share), "for a person to see", f"hold {reviewed(results, share)[1]}"))
    for name, rows in list(results.stream.groupby("ood", sort=False))[:1]:
        alarm, chance = alarm_of(rows), f"false alarm: at most 1 in {1 / rows['alpha'].iloc[0]:.0f}, however long"
        later = f"{alarm[0]:,} samples" if alarm and alarm[1] else "no alarm" if alarm is None else "a false alarm"
        tiles.append((later, f"to an alarm, if {name} comes", chance))
    return tiles


def actions(results: Results) -> list[tuple[str, str]]:
    """What to do now: sentences, each with a command or a name."""
    found, share = repair(results), knee(results)
    if not labels_fit(results):
        return [("Check the order of the classes, and from which number labels are counted; then run this again.", "")]
    steps, tested = [], "new.npz --calibration val.npz"
    if found is not None and found.best is not None:
        said = f"Calibrate by {method_text(found.best)}."
        if math.isfinite(found.best["temperature"]):
            said = f"Divide the logits by {number(found.best['temperature'], 2)} before the softmax."
        names = {method.name: method.__name__ for method in CALIBRATORS}
        steps.append((said, f"torch_boc.calibration.{names[found.best['method']]}"))
    elif found is not None and found.plain["ece_low"] > 0 and not found.fitted:
        said = "Repair the confidence with held-out samples."
        steps.append((said, "torch-boc report test.npz --calibration val.npz"))
    goes_out = results.acceptance[:1].query("accepted > 0")
    for _, row in goes_out.iterrows():
        surest, error = percent(row["accepted"]), short_percent(row["error"])
        said = f"Let the surest {surest} go out unseen: at most {error} are wrong."
        steps.append((said, f"torch-boc screen {tested} --error {row['error']:g} -o queue.csv"))
    if share == share and not len(goes_out):
        said, how = f"Let a person see the least sure {short_percent(share)}.", f"--score log_odds --alpha {share:g}"
        steps.append((said, f"torch-boc screen {tested} {how} -o queue.csv"))
    return [*steps, ("Watch the stream.", f"torch-boc monitor {tested} --state stream.pt")]


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
