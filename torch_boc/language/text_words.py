"""The words and tables of a report on texts."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ..report.parts import Cell, Table
from ..report.words import number, percent

Numbers = Mapping[str, float]
NAMES = {
    "confidence": "confidence",
    "lost_coins": "lost coins",
    "entropy": "entropy",
    "logit_gap": "logit gap",
    "energy": "energy",
    "concentration": "ρ",
}
# Scores that are lower where the model is more sure. They count with a minus sign.
NEGATIVE = ("lost_coins", "entropy", "concentration")
GLOSSARY = (
    ("perplexity", "the exponential of the mean negative log-likelihood of a token: 1 if every token is foreseen."),
    ("bits per byte", "the bits that the model needs for the text, divided by its size; it compares tokenizers."),
    ("confidence", "the probability of the likeliest next token, p̂."),
    ("accuracy", "the share of tokens that were the likeliest."),
    ("ECE", "expected calibration error: the mean difference of confidence and accuracy, in 15 bins of confidence."),
    ("Brier, prediction", "the mean of (p̂ − r)², where r is 1 if the likeliest token came and 0 if another did."),
    ("Brier, all tokens", "the mean of the sum of (p − y)² over the whole vocabulary; from 0 to 2."),
    ("entropy", "of the distribution of the next token, in nats."),
    ("lost coins", "how many of its coin flips against all other tokens the likeliest token is expected to lose."),
    ("Δ", "the coherence gap of the likeliest token. Its forced part follows from p̂; the free part is the rest."),
    ("ρ", "where Δ lies between the bounds that p̂ forces: 0 if the others share evenly, 1 if few have it all."),
    ("logit gap", "how far the other tokens are below the likeliest one on average."),
    ("energy", "the logarithm of the sum of the exponentials of all logits."),
    ("AUROC", "the chance that a right prediction scores higher than a wrong one; 0.5 tells nothing."),
)


def signed(score: str) -> str:
    """The name of a score with the sign for which higher is more sure.

    >>> signed("entropy"), signed("confidence")
    ('−entropy', 'confidence')
    """
    return f"−{NAMES[score]}" if score in NEGATIVE else NAMES[score]


Column = tuple[str, Callable[[Numbers], str]]
MAIN: tuple[Column, ...] = (
    ("tokens", lambda x: f"{x['tokens']:,}"),
    ("perplexity", lambda x: number(x["perplexity"], 1)),
    ("bits per byte", lambda x: number(x["bits_per_byte"], 3)),
    ("accuracy", lambda x: number(x["accuracy"], 3)),
    ("confidence", lambda x: number(x["confidence"], 3)),
    ("ECE", lambda x: number(x["ece"], 3)),
    ("entropy", lambda x: number(x["entropy"], 2)),
    ("lost coins", lambda x: number(x["lost_coins_q50"], 2)),
)
MORE: tuple[Column, ...] = (
    ("Brier, prediction", lambda x: number(x["brier_confidence"], 3)),
    ("Brier, all tokens", lambda x: number(x["brier_all"], 3)),
    ("top 5", lambda x: percent(x["top_5"])),
    ("top 10", lambda x: percent(x["top_10"])),
    ("top 100", lambda x: percent(x["top_100"])),
    ("top 1,000", lambda x: percent(x["top_1000"])),
)


def main_table(numbers: Mapping[str, Numbers]) -> Table:
    """The main numbers, a row for each text."""
    caption = "Next-token prediction; lost coins are the median, other numbers are means over tokens"
    return _by_text(caption, MAIN, numbers, "Next-token prediction")


def more_table(numbers: Mapping[str, Numbers]) -> Table:
    """Brier scores, and how many tokens were among the likeliest."""
    return _by_text("Brier scores, and the share of tokens that were among the likeliest", MORE, numbers)


def _by_text(caption: str, columns: Iterable[Column], numbers: Mapping[str, Numbers], heading: str = "") -> Table:
    rows = [[Cell(name), *(Cell(show(values)) for _, show in columns)] for name, values in numbers.items()]
    return Table(caption, ["text", *(title for title, _ in columns)], rows, heading, ("entropy",))


def separation_table_of(numbers: Numbers) -> Table:
    """How well each score tells right from wrong next tokens."""
    rows = [
        [
            Cell(signed(name)),
            Cell(number(numbers[f"auroc_{name}"], 3), f"± {number(numbers[f'auroc_{name}_error'], 4)}"),
            Cell(number(numbers[f"auroc_{name}_at_equal_confidence"], 3)),
        ]
        for name in NAMES
    ]
    caption = "AUROC of right against wrong next tokens; ± is what counting in bins can change, and no interval"
    return Table(caption, ["score", "AUROC", "at equal confidence"], rows, heading="Right against wrong next tokens")


def reliability_table(bins: Any) -> Table:
    """Confidence and accuracy of the bins that have tokens."""
    rows = [
        [_bin(row), Cell(f"{row.tokens:,}"), Cell(number(row.confidence, 3)), Cell(number(row.accuracy, 3))]
        for row in bins[bins["tokens"] > 0].itertuples()
    ]
    return Table("Accuracy by bin of confidence", ["confidence", "tokens", "mean", "accuracy"], rows)


def gap_table(bins: Any) -> Table:
    """The gap and its parts in the bins that have tokens."""
    rows = [
        [_bin(row), *(Cell(small(x)) for x in (row.gap, row.forced_gap, row.free_gap))]
        for row in bins[bins["tokens"] > 0].itertuples()
    ]
    return Table("The gap by bin of confidence", ["confidence", "Δ", "forced", "free"], rows)


def _bin(row: Any) -> Cell:
    return Cell(f"{row.bin_low:.2f} to {row.bin_high:.2f}")


def small(value: float) -> str:
    """A number that may be very small.

    >>> small(0.25), small(0.0000123)
    ('0.250', '1.2e−05')
    """
    return number(value, 3) if value >= 0.001 or value == 0 else f"{value:.1e}".replace("-", "−")
