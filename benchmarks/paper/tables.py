"""The tables of the page: the paper's numbers beside ours, row by row."""

import math
from collections.abc import Iterable, Mapping

import torch

from benchmarks.paper.experiments import CALIBRATION, DETECTION, METHODS, Ours, Published, calibration_of
from torch_boc.functional import dominance_bounds
from torch_boc.report.coherence import forced_share
from torch_boc.report.parts import Cell, Table
from torch_boc.report.words import interval_text, number, percent, symbol

NOT_RUN = "not run"
TITLES = {"ece": "ECE", "nll": "NLL", "brier": "Brier", "auroc": "AUROC", "fpr95": "FPR95"}
TRAINING, HELD_OUT = "training split", "held out"
# Scores that the paper does not report, below those that it does.
FURTHER = ("log_p_value", "gap", "dominance", "concentration", "logit_gap")
TRIALS = ("ece, deterministic", "ece, Monte Carlo", "auroc, deterministic", "auroc, Monte Carlo")


def setup_table(paper: Published, ours: Ours | None) -> Table:
    """What was run: there and here."""
    here = dict.fromkeys(paper.content["setup"], NOT_RUN) if ours is None else _setup(ours)
    rows = [[Cell(key), Cell(there), Cell(here[key])] for key, there in paper.content["setup"].items()]
    return Table(f"{paper.name}: what was run", ["", "paper", "ours"], rows)


def _setup(ours: Ours) -> dict[str, str]:
    card = ours.entry.card
    samples = {name: f"{name}, {count:,} samples" for name, count in _samples(ours).items()}
    half = ", and half of the test set as held out" if ours.halved else ""
    return {
        "model": str(card["model"]),
        "checkpoint": str(card.get("checkpoint", "–")),
        "test set": samples[ours.entry.id.name],
        "OOD set": samples[ours.ood],
        "calibration split": "; ".join(samples[name] for name in ours.entry.calibration) + half,
    }


def _samples(ours: Ours) -> dict[str, int]:
    sets = [ours.entry.id, *ours.entry.ood.values(), *ours.entry.calibration.values()]
    return {data.name: len(data) for data in sets}


def calibration_table(paper: Published, ours: Ours | None) -> Table:
    """ECE, NLL and Brier score of each method: the paper's, ours on a split as in the paper, ours held out."""
    reported = paper.numbers.calibration
    found: list[Mapping[str, Mapping[str, float]]] = [{}, {}]
    if ours is not None:
        held_out = calibration_of(ours.held_out, ours.held_out_split)
        found = [ours.numbers.calibration, {name: row for name, row in held_out.items() if _differs(ours, name)}]
    rows = []
    for method in reported:
        cells = [Cell(method)]
        for statistic in CALIBRATION:
            cells.append(Cell(number(reported[method][statistic])))
            cells += [Cell(_value(table, method, statistic, ours)) for table in found]
        rows.append(cells)
    heads = [f"{TITLES[x]}, {who}" for x in CALIBRATION for who in ("paper", TRAINING, HELD_OUT)]
    return Table(
        f"{paper.name}: calibration, the paper’s and ours with calibrators fitted on either split; lower is better",
        ["method", *heads],
        rows,
    )


def _differs(ours: Ours, method: str) -> bool:
    """Methods that are not fitted are the same in both columns, unless they are judged on half of the test set."""
    return ours.halved or method in METHODS


def ood_table(paper: Published, ours: Ours | None) -> Table:
    """AUROC and FPR95 of each score: the paper's, then what else ranks."""
    reported, found = paper.numbers.ood, {} if ours is None else ours.detection
    rows = []
    for score in (*reported, *(FURTHER if ours else ())):
        cells = [Cell(symbol(score), score if symbol(score).casefold() != score else "")]
        for statistic in DETECTION:
            there = reported[score][statistic] if score in reported else math.nan
            small = interval_text(found[score], statistic) if score in found else ""
            cells += [Cell(number(there)), Cell(_value(found, score, statistic, ours), small)]
        rows.append(cells)
    heads = [f"{TITLES[x]}, {who}" for x in DETECTION for who in ("paper", "ours")]
    return Table(f"{paper.name}: out-of-distribution detection, with 95 % intervals", ["score", *heads], rows)


def _value(table: Mapping[str, Mapping[str, float]], row: str, column: str, ours: Ours | None) -> str:
    if ours is None:
        return NOT_RUN
    return number(table[row][column]) if row in table else "–"


def trial_table(paper: Published, ours: Ours | None) -> Table:
    """ECE of BoC and AUROC of the paper's score by the number of flips; of the paper what its text says."""
    counts = (20, 50, 100, 200)
    rows = []
    for row in TRIALS:
        column, variant = row.split(", ")
        cells = [NOT_RUN] * len(counts)
        if ours is not None:
            table = ours.results.trials
            table = table[(table["variant"] == variant) & table["ood"].isin(("", ours.ood))].set_index("trials")
            cells = [number(table[column][k]) for k in counts]
        title = f"{'ECE of q̄' if column == 'ece' else 'AUROC of s_BoC'}, {variant}"
        rows.append([Cell(title), Cell(paper.content["trials"][row]), *map(Cell, cells)])
    heads = ["", "the paper says", *(f"ours, k = {k}" for k in counts)]
    return Table(f"{paper.name}: the number of flips k", heads, rows)


def gap_table(experiments: Iterable[tuple[Published, Ours | None]]) -> Table:
    """The gap of both sets in every experiment: the paper's words, our means."""
    rows = []
    for paper, ours in experiments:
        for kind in ("id", "ood"):
            cells = [Cell(f"{paper.name}, {kind.upper()}"), Cell(paper.content["gap"][kind])]
            if ours is None:
                rows.append([*cells, *[Cell(NOT_RUN)] * 5])
                continue
            table = ours.results.gaps
            row = table[(table["kind"] == kind) & ((kind == "id") | (table["set"] == ours.ood))].iloc[0]
            values = [number(row[x], 3) for x in ("confidence", "gap", "forced_gap")]
            rows.append([*cells, *map(Cell, [*values, percent(forced_share(row)), number(row["r2"], 3)])])
    heads = ["", "Δ, the paper says", "p̂, ours", "Δ, ours", "forced by p̂", "share", "R² of Δ on it"]
    return Table("The coherence gap: means over each set", heads, rows)


def band_points(experiments: Iterable[Published]) -> list[tuple[str, str, float, float, float]]:
    """The points of the paper's curves of gap against confidence, and the least and the largest gap possible there."""
    points = []
    for paper in experiments:
        classes = paper.content["classes"]
        for low, high, gap in paper.content["curve"]:
            confidence = torch.tensor([high, low], dtype=torch.float64)
            lower, upper = dominance_bounds((1 - confidence) / confidence, classes)
            about = number(low, 2) if low == high else f"{number(low, 2)} to {number(high, 2)}"
            band = float((lower - confidence)[0]), float((upper - confidence)[1])
            points.append((f"{paper.name}, C = {classes}", about, gap, *band))
    return points


def inside(gap: float, least: float, most: float) -> bool:
    """Whether a gap that the paper gives to two decimals is possible."""
    return round(least, 2) <= gap <= round(most, 2)


def band_table(experiments: Iterable[Published]) -> Table:
    """The same as a table."""
    rows = [
        [
            *map(
                Cell,
                (name, about, number(gap, 2), *(number(x, 3) for x in band), "yes" if inside(gap, *band) else "no"),
            )
        ]
        for name, about, gap, *band in band_points(experiments)
    ]
    heads = ["", "p̂", "mean Δ, the paper says", "least Δ possible", "largest Δ possible", "inside"]
    return Table("The paper’s mean gap at a given confidence, and the band that confidence allows", heads, rows)
