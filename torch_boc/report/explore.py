"""A page to explore a report: curves with values under the pointer, a slider for the threshold, and single samples."""

import math
from collections.abc import Iterable
from typing import Any

import torch
from markupsafe import Markup

from .._optional import require
from ..functional.bounds import dominance_bounds, forced_gap
from ..plots import CYCLE
from .calibration import curve_points, reliability_curves
from .detection import main_scores
from .document import template
from .parts import UPSIDE_DOWN
from .tables import Results, SampleRow
from .topics import TITLE, Introductions, captions, headline
from .words import BASELINE, DASHED, axis_name, distinct_names, number, short_percent, symbol

DIGITS = 5
BAND_POINTS = 120
# The shares of false alarms that a button leads to.
JUMPS = (0.01, 0.05, 0.1)
THRESHOLD, ROC, RELIABILITY = "Where to draw the line", "ROC curves", "Reliability"
COHERENCE, LIST = "Δ against confidence, sample by sample", "The most suspicious samples"
NEEDS = {
    THRESHOLD: "the shares below thresholds",
    ROC: "an OOD set",
    RELIABILITY: "targets",
    COHERENCE: "single samples",
    LIST: "single samples",
}


def explore_page(results: Results) -> str:
    """The whole page, with plotly's script in it: it asks for nothing else.

    Raises:
        ImportError: if plotly is not installed.
    """
    script = require("plotly", "offline", purpose="the page to explore needs").offline.get_plotlyjs()
    data = explore_data(results)
    parts = {THRESHOLD: "alarms", ROC: "roc", RELIABILITY: "reliability", COHERENCE: "samples", LIST: "samples"}
    shown = [name for name, part in parts.items() if data[part]]
    described = [name for name, panel in (("roc", ROC), ("reliability", RELIABILITY)) if panel in shown]
    table, sizes = results.samples, results.settings["samples"]
    sets = {name: table[table["set"] == name] for name in distinct_names(table["set"])}
    texts = [headline(results), *shown, *(x["title"] for x in data["alarms"].values())]
    return template("explore.html.jinja").render(
        title=f"{TITLE}: explore",
        subtitle=str(results.settings.get("title", "")),
        headline=headline(results),
        shown=shown,
        missing=[(name, NEEDS[name]) for name in NEEDS if name not in shown],
        names={"threshold": THRESHOLD, "roc": ROC, "reliability": RELIABILITY, "coherence": COHERENCE, "list": LIST},
        scores=[(name, axis_name(name)) for name in distinct_names(results.alarms["score"])],
        sets=[(name, name) for name in data["roc"]],
        alts={x.name: x.alt for x in captions(results, described)},
        jumps=[(level, short_percent(level)) for level in JUMPS],
        # For each set: how many samples the page has, how many of these are the most suspicious, and its size.
        counts={
            name: (len(rows), int(rows["suspicious"].sum()), int(sizes.get(name, len(rows))))
            for name, rows in sets.items()
        },
        data=data,
        plotly=Markup(script),
        glossary=Introductions().of([*texts, "p̂ q̄ Δ ρ AUROC"]),
    )


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
    columns = {"low": "accuracy_low", "high": "accuracy_high"}
    columns |= {name: name for name in ("confidence", "accuracy", "samples")}
    found = []
    for method, split, label in reliability_curves(results):
        rows = curve_points(results, method, split)
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
