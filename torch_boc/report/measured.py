"""What was measured and how: the line under the title of a report, and the settings at its end."""

import math

from ..data.probabilities import SMALLEST
from .results import Results
from .words import number

TITLE = "Bag-of-Coins report"
COMPARISONS = (
    "what a sentence says is shown holds at 5 % over all comparisons of its kind together, by Holm’s method; the "
    "intervals in the tables are each for itself"
)
FROM_PROBABILITIES = (
    f"logarithms of the given probabilities, a probability of 0 taken for {SMALLEST}; the energy is left out, because "
    "a softmax leaves nothing of it"
)


def headline(results: Results) -> str:
    """The sets, their sizes and the settings in a line."""
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
        ("date", str(settings.get("date", ""))),
        ("versions", versions),
    ]
    return [(name, value) for name, value in pairs if value]


def _intervals(results: Results) -> str:
    settings = results.settings
    text = f"95 %, bootstrap with {settings['replicates']:,} replicates, seed {settings['seed']}"
    if len(results.calibration):
        text += "; the lower end of the ECE without what chance adds"
    if len(results.ood):
        text += "; of AUROC vs MSP by DeLong’s method; wider, as for binomial counts, where few samples are on one side"
    return text
