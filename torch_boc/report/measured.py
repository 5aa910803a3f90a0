"""What was measured, and how: the line below the title of a report, and the settings at its end."""

import math

from ..data.probabilities import SMALLEST
from .results import Results
from .words import number

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


def _sampled(results: Results) -> str:
    """Of which sets a random sample of the rows was read."""
    settings = results.settings
    parts = [
        f"{name} {settings['samples'][name]:,} of {total:,}" for name, total in settings.get("sampled", {}).items()
    ]
    how = f"drawn uniformly, seed {settings['seed']}; all numbers and intervals are those of these rows"
    return f"{', '.join(parts)} rows, {how}" if parts else ""
