"""The order of a report and its standing texts, for the HTML page and for Markdown alike."""

from collections.abc import Collection
from typing import NamedTuple

from .captions import caption
from .flips import flat_sentence
from .layout import Table, calibration_table, gap_table, leak_table, ood_tables, trial_table
from .probabilities import SMALLEST
from .results import Results

TITLE = "Bag-of-Coins report"
CALIBRATION = (
    "Does a confidence of 80 % mean that 80 % are right? Each method’s confidence is compared with how often it is "
    "right; “by chance” is the error that perfectly calibrated confidences would show with as many samples. Chance "
    "adds to every ECE: its interval is that of the true error, reaches further down than up, and begins at 0 where "
    "the method may be perfect. “ECE vs MSP” is the difference on the same samples. Isotonic and BoC give a confidence "
    "only: their NLL is that of MSP."
)
DETECTION = (
    "How well does a score tell samples of the test set from others? An AUROC of 0.5 is chance; below, it ranks "
    "backwards. A lower FPR95 is better."
)
GAP = (
    "Given a confidence, the gap can only lie in a narrow band. What confidence forces tells nothing new; what is free "
    "is what the geometry of the logits adds."
)
COMPARISONS = (
    "what a sentence says is shown holds at 5 % over all comparisons of its kind together, by Holm’s method; the "
    "intervals in the tables are each for itself"
)
FLIPS = "The deterministic variant uses the expected number of wins, the Monte Carlo variant draws it."

PROBABILITIES = (
    f"logarithms of the given probabilities, a probability of 0 taken for {SMALLEST}; the energy is left out, because "
    "a softmax leaves nothing of it"
)


class Section(NamedTuple):
    """A heading, a paragraph, tables, and the names of the figures that belong to it."""

    title: str
    text: str
    tables: list[Table]
    figures: tuple[str, ...]


def sections(results: Results) -> list[Section]:
    """The parts of the report between the verdict and the notes, without those that have nothing to show."""
    flips = f"{FLIPS} {flat_sentence(results)}".strip()
    calibrated = _present(calibration_table(results), leak_table(results))
    parts = [
        Section("Calibration", CALIBRATION, calibrated, ("reliability",)),
        Section("Out-of-distribution detection", DETECTION, ood_tables(results), ("roc", "scores")),
        Section("What the gap is made of", GAP, _present(gap_table(results)), ("coherence", "gaps")),
        Section("Number of flips", flips, _present(trial_table(results)), ("trials",)),
    ]
    return [part for part in parts if part.tables]


def words_of(section: Section, results: Results, figures: Collection[str] = ()) -> list[str]:
    """All that a reader sees of a section, with the figures that there are: where symbols may first appear."""
    cells = [cell for table in section.tables for row in table.rows for cell in row]
    texts = [section.text, *(x for table in section.tables for x in (table.caption, *table.columns))]
    texts += [x for cell in cells for x in (cell.text, cell.mark)]
    return texts + [caption(name, results).caption for name in section.figures if name in figures]


def measured_how(results: Results) -> list[tuple[str, str]]:
    """The settings, as pairs of a name and a value."""
    settings = results.settings
    versions = ", ".join(f"{name} {version}" for name, version in settings.get("versions", {}).items())
    pairs = [
        ("samples", ", ".join(f"{name} {count:,}" for name, count in settings["samples"].items())),
        ("classes", str(settings["classes"])),
        ("logits", PROBABILITIES if settings.get("from_probabilities") else ""),
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


def _present(*tables: Table | None) -> list[Table]:
    return [table for table in tables if table is not None]
