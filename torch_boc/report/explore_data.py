"""The numbers that the page to explore draws, rounded, as content for JSON."""

import math
from collections.abc import Iterable
from typing import Any

import torch

from ..functional.bounds import dominance_bounds, forced_gap
from ..plots import CYCLE, FEW_SAMPLES
from .choices import BASELINE, DASHED
from .detection import main_scores
from .parts import UPSIDE_DOWN
from .reliability import reliability_curves
from .results import Results
from .tables import SampleRow
from .words import axis_name, distinct_names, number, symbol

DIGITS = 5
BAND_POINTS = 120


def explore_data(results: Results) -> dict[str, Any]:
    """All that the script of the page needs. A panel that has nothing to show has an empty part."""
    sets = distinct_names([results.known, *results.samples["set"], *results.alarms["set"], *results.ood["ood"]])
    return {
        "known": results.known,
        "sets": sets,
        "sizes": {name: int(results.settings["samples"].get(name, 0)) for name in sets},
        "colours": list(CYCLE),
        "baseline": BASELINE,
        "alarms": {name: _alarms(results, name) for name in distinct_names(results.alarms["score"])},
        "roc": {name: curves for name in distinct_names(results.roc["ood"]) if (curves := _curves(results, name))},
        "reliability": _reliability(results),
        "band": _band(results),
        "samples": _samples(results),
    }


def _alarms(results: Results, score: str) -> dict[str, Any]:
    table = results.alarms[results.alarms["score"] == score]
    groups = {name: table[table["set"] == name] for name in distinct_names(table["set"])}
    thresholds = next(iter(groups.values()))["threshold"]
    shares = {name: _rounded(rows["flagged"], 6) for name, rows in groups.items()}
    return {
        "title": axis_name(score),
        "thresholds": _rounded(thresholds),
        "flagged": shares,
        "bins": _histogram(results, score),
    }


def _histogram(results: Results, score: str) -> dict[str, Any]:
    """The bins of a score. Those of the table are of the gap itself, where the score is minus the gap."""
    table, turned = results.histograms[results.histograms["score"] == score], score == "gap"
    found: dict[str, Any] = {"edges": [], "shares": {}}
    for name in distinct_names(table["set"]):
        rows = table[table["set"] == name].sort_values("bin_low", ascending=not turned)
        low, high = (-rows["bin_high"], -rows["bin_low"]) if turned else (rows["bin_low"], rows["bin_high"])
        found["edges"] = _rounded([*low, high.iloc[-1]])
        found["shares"][name] = _rounded(rows["share"])
    return found


def _curves(results: Results, ood: str) -> list[dict[str, Any]]:
    table, points = results.ood[results.ood["ood"] == ood], results.roc[results.roc["ood"] == ood]
    found = []
    for score in main_scores(results, ood):
        row, rows = table[table["score"] == score].iloc[0], points[points["score"] == score]
        mark = f", {UPSIDE_DOWN}" if row["upside_down"] else ""
        found.append(
            {
                "name": f"{symbol(score)} ({number(row['auroc'], 3)}{mark})",
                "wide": score == BASELINE,
                "dashed": score in DASHED,
                "fpr": _rounded(rows["fpr"], 4),
                "tpr": _rounded(rows["tpr"], 4),
            }
        )
    return found


def _reliability(results: Results) -> list[dict[str, Any]]:
    table = results.reliability[results.reliability["samples"] >= FEW_SAMPLES]
    found = []
    for method, split, label in reliability_curves(results):
        rows = table[(table["method"] == method) & (table["split"] == split)].sort_values("bin_low")
        columns = {"low": "accuracy_low", "high": "accuracy_high"} | {
            name: name for name in ("confidence", "accuracy", "samples")
        }
        if len(rows):
            found.append({"name": label, **{key: _rounded(rows[column]) for key, column in columns.items()}})
    return found


def _band(results: Results) -> dict[str, Any]:
    """The least and the largest gap that each confidence allows."""
    classes = int(results.settings["classes"])
    confidence = torch.linspace(1 / classes, 1, BAND_POINTS, dtype=torch.float64)
    odds = (1 - confidence) / confidence
    least = forced_gap(odds, classes)
    most = least  # for two classes, where a difference of equal numbers would leave the errors of rounding
    if classes > 2:
        most = (dominance_bounds(odds, classes)[1] - confidence).maximum(least)
    return {name: _rounded(x.tolist()) for name, x in (("confidence", confidence), ("least", least), ("most", most))}


def _samples(results: Results) -> dict[str, Any]:
    table = results.samples
    sets = distinct_names([results.known, *table["set"]])
    found = {name: _rounded(table[name]) for name in SampleRow._fields if name not in ("set", "kind")}
    return {"set": [sets.index(name) for name in table["set"]], "names": sets, **found} if len(table) else {}


def _rounded(values: Iterable[Any], digits: int = DIGITS) -> list[Any]:
    """Numbers with few significant digits; None for a number that is not finite."""
    return [_short(value, digits) for value in values]


def _short(value: Any, digits: int) -> Any:
    if isinstance(value, bool) or (hasattr(value, "dtype") and value.dtype.kind == "b"):
        return int(value)
    if not math.isfinite(value):
        return None
    whole = float(f"{float(value):.{digits}g}")
    return int(value) if isinstance(value, int) or whole == int(value) == value else whole
