"""What may be claimed: the signs of differences that Holm's method shows, the calibrator to use, the share to review.

If there is no difference at all, one in twenty intervals of 95 % still excludes 0. A sentence that picks from many
comparisons must not pick that one. Holm's method keeps the probability of any false claim below 5 %.
"""

import math
from collections.abc import Collection, Mapping
from statistics import NormalDist
from typing import Any

from ..calibration import VectorScaling
from ..report.results import where

# The level of the tests, and of all claims.
LEVEL = 0.05
# How many standard errors an interval of 95 % reaches to each side.
NORMAL_QUANTILE = NormalDist().inv_cdf(1 - LEVEL / 2)
DIGITS = 4
# The largest share to review, and the least gain over a random review.
MOST_REVIEWED, LEAST_GAIN = 0.3, 0.02


def significant_sign(table: Any, column: str, null: float = 0.0) -> Any:
    """For each row of a DataFrame: 1 if the column is shown to be above `null`, -1 if below, 0 if neither is shown.

    The p-value of a row is that of its interval of 95 %, if the value is normal. All rows are corrected together:
    Holm's method takes the p-values in rising order, and stops at the first that is above 0.05 / (the number of rows
    that are left). If the end of an interval looks like `null` when it is printed, nothing is shown.
    """
    value, above = table[column], table[column] > null
    end = table[f"{column}_low"].where(above, table[f"{column}_high"])
    errors = (value - null).abs() / (value - end).abs()  # 0 / 0 is NaN: a value of exactly `null` shows nothing
    p_values = (NORMAL_QUANTILE / math.sqrt(2) * errors.fillna(0.0)).map(math.erfc).sort_values()
    passed = (p_values <= [LEVEL / rows for rows in range(len(table), 0, -1)]).cummin()
    return (passed.reindex(table.index) & (end.round(DIGITS) != null)) * (2 * above - 1)


def conclude(tables: Mapping[str, Any], distrusted: Collection[str] = ()) -> dict[str, Any]:
    """Fill the columns of signs in the tables, and choose the calibrator and the share to review.

    Args:
        tables: the DataFrames of `Results`. The comparisons of one kind are corrected together: the ECE of all
            calibrators that were fitted on trusted splits; the AUROC of all scores, and that of the scores that are
            upside down; the AUROC of a score less that of confidence on all OOD sets; the precision of all classes.
        distrusted: calibration splits that something is wrong with.

    Returns:
        The settings "calibrator", a dict with `method` and `split`: vector scaling if it is shown to be better
        calibrated than confidence, otherwise the calibrator with the lowest ECE of those that are, or None; and
        "review_share", or None.
    """
    calibration, ood, classes = tables["calibration"], tables["ood"], tables["classes"]
    trusted = (calibration["split"] != "") & ~calibration["split"].isin(distrusted)
    unfitted = [calibration[i : i + 1] for i in calibration.index[calibration["split"] == ""]]
    for rows in (calibration[trusted], *unfitted):
        calibration.loc[rows.index, "sign"] = significant_sign(rows, "ece_versus_msp")
    areas = ("auroc_sign", "auroc", "upside_down", 0.5), ("versus_sign", "versus_msp", "score", 0.0)
    for column, value, kind, null in areas:
        for _, rows in ood.dropna(subset=value).groupby(kind):
            ood.loc[rows.index, column] = significant_sign(rows, value, null)
    classes["sign"] = significant_sign(classes, "excess")
    better = calibration[trusted & (calibration["sign"] < 0)].sort_values("ece")
    advised = where(better, method=VectorScaling.name)
    best = (advised if len(advised) else better)[["method", "split"]][:1].to_dict("records")
    return {"calibrator": best[0] if best else None, "review_share": review_share(tables["review"])}


def review_share(table: Any) -> float | None:
    """The share to review beyond which more review finds fewer errors, or fewer of the first OOD set; None if none."""
    table = table[table["share"].between(0, MOST_REVIEWED, "right")].dropna(subset="detected")
    if not len(table):
        return None
    table = where(table, set=table.iloc[0]["set"])
    gained = table["detected"] - table["share"] / table["share"].max() * table["detected"].max()
    return float(table.loc[gained.idxmax(), "share"]) if gained.max() > LEAST_GAIN else None
