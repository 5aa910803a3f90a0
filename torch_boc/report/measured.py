"""What was measured, and how: the line below the title of a report, and the settings at its end."""

import math

from ..data.probabilities import SMALLEST
from .results import Results
from .words import number, small_number, symbol

TITLE = "Bag-of-Coins report"
COMPARISONS = (
    "what a sentence calls “shown” is corrected for all comparisons of the same kind, by Holm’s method, at the level "
    "of 5 %; the intervals in the tables are not corrected"
)
FROM_PROBABILITIES = (
    f"logarithms of the given probabilities, with {SMALLEST} in place of a probability of 0; the energy is left out, "
    "because it is always 0 after a softmax"
)


def headline(results: Results) -> str:
    """The sets, their sizes and the most important settings, in one line."""
    settings = results.settings
    parts = [", ".join(f"{name} {count:,}" for name, count in settings["samples"].items())]
    accuracy = float(settings.get("accuracy", math.nan))
    if not math.isnan(accuracy):
        parts.append(f"accuracy {number(accuracy)}")
    return " · ".join([*parts, f"{settings['classes']} classes", f"k = {settings['trials']}"])


def measured_how(results: Results) -> list[tuple[str, str]]:
    """The settings, as pairs of a name and a value."""
    settings = results.settings
    versions = ", ".join(f"{name} {version}" for name, version in settings.get("versions", {}).items())
    pairs = [
        ("samples", ", ".join(f"{name} {count:,}" for name, count in settings["samples"].items())),
        ("classes", str(settings["classes"])),
        ("logits", FROM_PROBABILITIES if settings.get("from_probabilities") else ""),
        ("calibration error", f"{settings['bins']} bins of equal width, closed on the right"),
        ("coin flips", f"k = {settings['trials']}"),
        ("intervals", _intervals(results)),
        ("several comparisons", COMPARISONS),
        ("scores", _binning(results)),
        ("random rows", _sampled(results)),
        ("left out", "; ".join(settings.get("left_out", ()))),
        ("date", str(settings.get("date", ""))),
        ("versions", versions),
    ]
    return [(name, value) for name, value in pairs if value]


def _intervals(results: Results) -> str:
    settings = results.settings
    text = f"95 %, bootstrap with {settings['replicates']:,} replicates, seed {settings['seed']}"
    if len(results.calibration):
        text += "; for the lower end of the ECE, what chance adds is subtracted"
    if len(results.ood):
        text += "; for AUROC vs MSP by DeLong’s method; wider, as for binomial counts, if few samples are on one side"
    if len(results.screening):
        text += "; for shares of flagged samples by Clopper and Pearson’s method"
    return text


def _binning(results: Results) -> str:
    """How scores of tables were counted; "" for an evaluation of all samples at once."""
    binning = results.settings.get("binning")
    if not binning or not len(results.ood):
        return ""
    names = {"auroc": "AUROC", "fpr95": "FPR at 95 % TPR", "aupr": "AUPR"}
    errors = ", ".join(f"{small_number(binning[key])} ({name})" for key, name in names.items())
    return (
        f"counted in places that separate numbers which differ by more than 1/{binning['resolution']} of their value; "
        f"this changes a number of any score and set by at most {errors}, and most for {symbol(binning['score'])}"
    )


def _sampled(results: Results) -> str:
    sampled = results.settings.get("sampled", {})
    smaller = [f"{name} {n:,}" for name, n in sampled.items() if n < results.settings["samples"][name]]
    what = "the numbers of trials, the stream and the intervals of AUROC vs MSP are computed from random rows"
    return f"{what}: {', '.join(smaller)}" if smaller else ""
