"""The paper's numbers, from published.json, and its tables next to ours."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.harness import markdown_table
from benchmarks.paper.flips import Flips
from torch_boc.report.format import number, percent, symbol, value_text
from torch_boc.report.results import Results

FOLDER = Path(__file__).parent
PUBLISHED: Mapping[str, Mapping[str, Any]] = json.loads((FOLDER / "published.json").read_text(encoding="utf-8"))
ERRORS, AREAS = {"ece": "ECE", "nll": "NLL", "brier": "Brier"}, {"auroc": "AUROC", "fpr95": "FPR95"}
# Scores that the paper does not report, below those that it does.
FURTHER = ("log_p_value", "gap", "dominance", "concentration", "logit_gap")
TRIALS = (20, 50, 100, 200)
# What the paper compares, beyond the defaults of `evaluate`.
AS_IN_THE_PAPER: Mapping[str, Any] = {
    "methods": ["temperature", "isotonic", "matrix scaling", "vector scaling"],
}
Rows = Mapping[str, Mapping[str, Any]]


def by_method(results: Results, *, training: bool) -> Rows:
    """The rows of the calibration table by method: those fitted on training samples or those fitted on others."""
    rows = results.calibration.to_dict("records")
    return {x["method"]: x for x in rows if not x["split"] or x["split"].startswith("training") == training}


def by_score(results: Results) -> Rows:
    """The rows of the first OOD set by score."""
    return {row["score"]: row for row in results.ood.to_dict("records")[::-1] if row["ood"] == results.ood["ood"][0]}


def experiment_tables(
    paper: Mapping[str, Any], results: Results, flips: Flips, held_out: Results | None = None
) -> list[str]:
    """Calibration, detection, gap and number of flips: the paper's and ours.

    Args:
        paper: its part of published.json.
        results: with calibrators that were fitted on training samples, as the paper does it.
        flips: the effect of the number of coin flips.
        held_out: results with calibrators that were fitted on other samples, if there are any.
    """
    columns = {"ours": by_method(results, training=True)}
    if held_out is not None:
        columns["ours, held out"] = by_method(held_out, training=False)
    calibration = []
    for method, reported in paper["calibration"].items():
        cells = [method]
        for statistic, there in zip(ERRORS, reported, strict=True):
            ours = (rows[method][statistic] if method in rows else math.nan for rows in columns.values())
            cells += [number(there), *map(number, ours)]  # a temperature at its bound is no result
        calibration.append(cells)
    heads = ["calibration", *(f"{title}, {who}" for title in ERRORS.values() for who in ("paper", *columns))]
    measured, detection = by_score(results), []
    for score in (*paper["ood"], *FURTHER):
        cells = [symbol(score).replace("*", "\\*")]
        for statistic, there in zip(AREAS, paper["ood"].get(score, (math.nan, math.nan)), strict=True):
            cells += [number(there), value_text(measured[score], statistic)]
        detection.append(cells)
    titles = ["OOD detection", *(f"{title}, {who}" for title in AREAS.values() for who in ("paper", "ours"))]
    tables = [markdown_table(heads, calibration), markdown_table(titles, detection)]
    gaps = []
    for _, row in results.gaps.iterrows():
        means = [number(row[name], 3) for name in ("confidence", "gap", "forced_gap")]
        name = "test set" if row["kind"] == "id" else row["set"]
        share = percent(row["forced_gap"] / (row["gap"] or math.nan))
        gaps.append([name, paper["gap"][row["kind"]], *means, share, number(row["r2"], 3)])
    heads = ["Δ", "the paper says", "mean p̂, ours", "mean Δ", "forced by p̂", "forced share", "R² of Δ on it"]
    lines = []
    for name, published in paper["trials"].items():
        column, variant = name.split(", ")
        title = f"{'ECE of q̄' if column == 'ece' else 'AUROC of s_BoC'}, {variant}"
        lines.append([title, published, *(number(flips[variant, k][column != "ece"]) for k in TRIALS)])
    titles = ["flips", "the paper says", *(f"ours, k = {k}" for k in TRIALS)]
    return [*tables, markdown_table(heads, gaps), markdown_table(titles, lines)]
