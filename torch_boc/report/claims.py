"""Which differences in a table are more than chance, if a sentence is based on many comparisons.

If there is no difference at all, one in twenty intervals of 95 % is still beyond 0. A sentence that picks from many
comparisons must not pick that one. Holm's method keeps the chance of any false claim at 5 %.
"""

import math
from statistics import NormalDist
from typing import Any

LEVEL = 0.05
# How many standard errors an interval of 95 % reaches to each side.
NORMAL_QUANTILE = NormalDist().inv_cdf(1 - LEVEL / 2)
DIGITS = 4


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
