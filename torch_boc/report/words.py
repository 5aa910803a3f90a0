"""What sentences and tables say: which scores are shown, numbers as they are printed, and what may be claimed.

If there is no difference at all, one in twenty intervals of 95 % is still beyond 0. A sentence that picks from many
comparisons must not pick that one. Holm's method keeps the chance of any false claim at 5 %.
"""

import math
from statistics import NormalDist
from typing import Any

from ..functional.registry import scores

# All other scores are compared with the first score of the registry: `versus_msp` is the difference from it.
BASELINE = next(iter(scores))
# The paper's score is kept as published. These two rank in the same way, the right way up.
PAPER_SCORE = next(name for name, score in scores.items() if score.upside_down)
REMEDIES = ("log_p_value", "gap")
# Simple scores, in the order of preference. Another score is recommended only if it is shown to be better.
SIMPLE = (BASELINE, "energy", "max_logit", "entropy")
# What figures and the comparison of models show, so that they stay readable; the tables have every score.
ROC_SCORES = (BASELINE, "energy", "log_p_value", PAPER_SCORE)
HISTOGRAM_SCORES = (BASELINE, "energy", "log_p_value", "dominance", "logit_gap", "concentration")
COMPARED_SCORES = (
    *(BASELINE, "energy", "gen", "logit_gap", "tempered_dominance", "log_p_value", "gap", "concentration", PAPER_SCORE),
    *("odin", "mahalanobis"),
)
# The ROC curves of p-values lie close to the curve of the baseline, so they are dashed.
DASHED = ("log_p_value", PAPER_SCORE)
# What the conformal test compares, if the registry has it; sentences are about the first.
TESTED_SCORES = tuple(name for name in ("log_odds", "energy", "gen", "tempered_dominance") if name in scores)
# The levels at which shares are measured; sentences are about the first.
TESTED_LEVELS = (0.05, 0.01)
LEVEL = 0.05
# How many standard errors an interval of 95 % reaches to each side.
NORMAL_QUANTILE = NormalDist().inv_cdf(1 - LEVEL / 2)
DIGITS = 4
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


def interval_p_value(row: Any, column: str, null: float = 0.0) -> float:
    """The two-sided p-value that belongs to an interval of 95 %, if the value is normal; 1 without an interval.

    >>> round(interval_p_value({"x": 1.96, "x_low": 0.0, "x_high": 4.0}, "x"), 2)
    0.05
    """
    value = float(row[column])
    width = abs(value - float(row[f"{column}_low" if value > null else f"{column}_high"]))
    if math.isnan(width) or value == null:
        return 1.0
    return math.erfc(NORMAL_QUANTILE * abs(value - null) / width / math.sqrt(2)) if width else 0.0


def shown(table: Any, column: str, null: float = 0.0) -> Any:
    """For each row of a DataFrame: 1 if the column is shown to be above `null`, -1 if below, 0 if neither is shown.

    All rows are corrected together: Holm's method takes the p-values in rising order, and stops at the first that is
    above 0.05 / (the number of rows that are left). If the end of an interval looks like `null` when it is printed,
    nothing is shown.
    """
    rows = table.to_dict("records")
    values = [interval_p_value(row, column, null) for row in rows]
    signs = [0] * len(rows)
    for taken, place in enumerate(sorted(range(len(rows)), key=values.__getitem__)):
        if values[place] > LEVEL / (len(rows) - taken):
            break
        above = rows[place][column] > null
        end = rows[place][f"{column}_low" if above else f"{column}_high"]
        signs[place] = 0 if round(end, DIGITS) == null else 1 if above else -1
    return table[column].notna() * signs


def over(comparisons: int, *, inside: bool = False) -> str:
    """The note that a claim is based on several comparisons: in brackets, or to stand inside of brackets.

    >>> over(12), over(12, inside=True), over(1)
    (' (corrected for 12 comparisons)', '; corrected for 12 comparisons', '')
    """
    if comparisons < 2:
        return ""
    text = f"corrected for {comparisons} comparisons"
    return f"; {text}" if inside else f" ({text})"
