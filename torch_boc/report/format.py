"""Numbers and names as sentences and tables print them."""

import math
from typing import Any

from ..functional.registry import scores

# All other scores are compared with the first score of the registry: `versus_msp` is the difference from it.
BASELINE = next(iter(scores))
DETECTORS = {"mahalanobis": "Mahalanobis", "odin": "ODIN"}
# If there are more sets than this, one sentence is about all of them.
FEW = 2
UPSIDE_DOWN = "upside down"
# A share as a percentage: value_text(row, column, **PERCENT).
PERCENT: dict[str, Any] = {"digits": 1, "scale": 100.0, "unit": " %"}
# Every guarantee is printed with it.
CONDITION = "if samples are exchangeable with the held-out set"


def condition_text(*, repeated: bool) -> str:
    """The condition of a guarantee; repeated held-out rows make it one more."""
    return f"{CONDITION} and its repeated rows are different samples" if repeated else CONDITION


def number(value: float, digits: int = 4, scale: float = 1.0, *, sign: bool = False, unit: str = "") -> str:
    """A number with a fixed number of decimals and a real minus sign; a dash for NaN.

    Args:
        value: the number.
        digits: the number of decimals.
        scale: what the value is multiplied by, 100 for percentages.
        sign: whether a positive number has a plus sign.
        unit: stands after the number, " %" for percentages.

    >>> number(0.05321), number(-0.00002), number(0.25, 3, sign=True), number(float("nan"))
    ('0.0532', '0.0000', '+0.250', '–')
    """
    value = float(value) * scale  # NumPy's numbers would be rounded by another rule
    if not math.isfinite(value):
        return "–" if math.isnan(value) else "∞" if value > 0 else "−∞"
    value = round(value, digits) or 0.0
    return f"{value:{'+' if sign and value else ''}.{digits}f}{unit}".replace("-", "−")


def small_number(value: float) -> str:
    """A number that may be very small, such as a p-value.

    >>> small_number(0.03), small_number(2.5e-7), small_number(0.0)
    ('0.0300', '2.5e−07', '< 1e−300')
    """
    if math.isnan(value) or value >= 1e-4:
        return number(value)
    return "< 1e−300" if value < 1e-300 else f"{value:.1e}".replace("-", "−")


def percent(share: float) -> str:
    """A share in percent; a dash for NaN.

    >>> percent(0.954)
    '95.4 %'
    """
    return number(share, **PERCENT)


def short_percent(share: float) -> str:
    """A level in percent.

    >>> short_percent(0.05), short_percent(0.001)
    ('5 %', '0.1 %')
    """
    return f"{100 * share:g} %"


def symbol(score: str) -> str:
    """The short name of a score.

    >>> symbol("gap"), symbol("msp")
    ('−Δ', 'MSP')
    """
    return scores[score].symbol if score in scores else DETECTORS.get(score, score)


def score_label(score: str) -> str:
    """The name of a score in a report, which calls MSP confidence."""
    return "confidence" if score == BASELINE else symbol(score)


def p_text(value: float) -> str:
    """A p-value in a sentence.

    >>> p_text(0.0312), p_text(1e-9)
    ('p = 0.031', 'p < 0.001')
    """
    return "p < 0.001" if value < 0.001 else f"p = {value:.3f}"


def join_words(parts: list[str]) -> str:
    """The parts joined by commas, and the last one by "and".

    >>> join_words(["a"]), join_words(["a", "b", "c"])
    ('a', 'a, b and c')
    """
    return " and ".join([", ".join(parts[:-1]), parts[-1]]) if len(parts) > 1 else parts[0]


def range_text(values: Any, form: Any) -> str:
    """The lowest and the highest value, or the only one."""
    return " to ".join(dict.fromkeys([form(min(values)), form(max(values))]))


def list_or_range(parts: list[str], values: Any, form: Any, most: int = FEW) -> str:
    """What holds for each set, in a list; or the range of the values, if there are more sets than `most`."""
    return join_words(parts) if len(parts) <= most else f"{range_text(values, form)} on {len(parts)} sets"


def interval_text(row: Any, column: str, digits: int = 4, scale: float = 1.0, **options: Any) -> str:
    """The 95 % interval of a column, or "" if there is none. Further arguments are those of `number`."""
    low, high = row.get(f"{column}_low", math.nan), row.get(f"{column}_high", math.nan)
    if math.isnan(low) or math.isnan(high):
        return ""
    return f"{number(low, digits, scale, **{**options, 'unit': ''})} to {number(high, digits, scale, **options)}"


def value_text(row: Any, column: str, digits: int = 4, scale: float = 1.0, **options: Any) -> str:
    """A value with its interval, "0.0532 (0.0492 to 0.0572)". Further arguments are those of `number`."""
    value, around = number(row[column], digits, scale, **options), interval_text(row, column, digits, scale, **options)
    return f"{value} ({around})" if around else value


def ece_text(row: Any) -> str:
    """A calibration error with its interval: "ECE 5.1 % (4.3 to 5.8 %)"."""
    return f"ECE {value_text(row, 'ece', **PERCENT)}"


def counted(count: int, noun: str) -> str:
    """A number of things.

    >>> counted(1, "sample"), counted(1200, "sample")
    ('1 sample', '1,200 samples')
    """
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def comparisons_note(comparisons: int) -> str:
    """The note that a statement is corrected for several comparisons.

    >>> comparisons_note(12), comparisons_note(1)
    (' (corrected for 12 comparisons)', '')
    """
    return "" if comparisons < 2 else f" (corrected for {comparisons} comparisons)"
