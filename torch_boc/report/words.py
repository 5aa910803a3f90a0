"""Numbers and names as the report prints them."""

import math
from typing import Any

from ..functional.registry import scores

# The names of detectors in tables and figures. A score has its name there in the registry.
DETECTORS = {"mahalanobis": "Mahalanobis", "odin": "ODIN"}
# If there are more sets than this, one sentence is about all of them.
FEW = 2


def number(value: float, digits: int = 4, *, sign: bool = False) -> str:
    """A number with a fixed number of decimals and a real minus sign; a dash for NaN.

    >>> number(0.05321), number(-0.00002), number(0.25, 3, sign=True), number(float("nan"))
    ('0.0532', '0.0000', '+0.250', '–')
    """
    if not math.isfinite(value):
        return "–" if math.isnan(value) else "∞" if value > 0 else "−∞"
    value = round(value, digits) or 0.0
    return f"{value:{'+' if sign and value else ''}.{digits}f}".replace("-", "−")


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
    return "–" if math.isnan(share) else f"{100 * share:.1f} %"


def short_percent(share: float) -> str:
    """A level in percent.

    >>> short_percent(0.05), short_percent(0.001)
    ('5 %', '0.1 %')
    """
    return f"{100 * share:g} %"


def interval_text(row: Any, column: str, *, sign: bool = False) -> str:
    """The 95 % interval of a column, or "" if there is none."""
    low, high = (float(row.get(f"{column}_{end}", math.nan)) for end in ("low", "high"))
    if math.isnan(low) or math.isnan(high):
        return ""
    return f"{number(low, sign=sign)} to {number(high, sign=sign)}"


def symbol(score: str) -> str:
    """The name of a score in tables and figures.

    >>> symbol("gap"), symbol("energy")
    ('−Δ', 'energy')
    """
    return scores[score].symbol if score in scores else DETECTORS.get(score, score)


def axis_name(score: str) -> str:
    """The name of the values of a score on an axis.

    >>> axis_name("log_p_value"), axis_name("gap")
    ('log p*', '−Δ')
    """
    return scores[score].axis if score in scores else symbol(score)


def distinct_names(column: Any) -> list[str]:
    """The different names in a column, in their order, without ""."""
    return [str(name) for name in dict.fromkeys(column) if name]


def p_text(value: float) -> str:
    """A p-value as it stands after the letter p."""
    text = small_number(value)
    return text if text.startswith("<") else f"= {text}"


def quoted(name: Any) -> str:
    """A name that a user gave, in quotation marks."""
    return f"“{name}”"


def listed(parts: list[str]) -> str:
    """The parts joined by commas, and the last one by "and".

    >>> listed(["a"]), listed(["a", "b", "c"])
    ('a', 'a, b and c')
    """
    return " and ".join([", ".join(parts[:-1]), parts[-1]]) if len(parts) > 1 else parts[0]


def value_text(row: Any, column: str, *, sign: bool = False) -> str:
    """A value with its interval."""
    value, around = number(row[column], sign=sign), interval_text(row, column, sign=sign)
    return f"{value} ({around})" if around else value
