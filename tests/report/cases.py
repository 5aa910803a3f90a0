"""Results made by hand, with the numbers of a ResNet-20 on CIFAR-10 against SVHN."""

import math
import re
from collections.abc import Mapping
from html.parser import HTMLParser
from typing import Any

import pandas as pd

from torch_boc.evaluation.significance import LEVEL, conclude
from torch_boc.report.results import TABLES, Results, frame

NAN = math.nan
SCORES = {  # AUROC and FPR95
    "msp": (0.8907, 0.7207),
    "energy": (0.8800, 0.6927),
    "max_logit": (0.8813, 0.6858),
    "entropy": (0.8905, 0.7201),
    "logit_gap": (0.8812, 0.6858),
    "dominance": (0.8908, 0.7185),
    "gap": (0.8907, 0.7217),
    "log_p_value": (0.8906, 0.7210),
    "concentration": (0.4712, 0.9631),
    "structural_score": (0.1094, 1.0),
}
OWN = {"mahalanobis": ("detector", 0.8621, 0.7402), "odin": ("column", 0.8410, 0.6712)}
LEAK = "training samples"
CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
FITTED = ("temperature", "isotonic", "vector scaling")
BINS = [(i / 15, (i + 1) / 15) for i in range(15)]
HALF_WIDTHS = {
    ("ood", "versus_msp"): 0.0003,
    ("reliability", "accuracy"): 0.06,
    ("acceptance", "wrong"): 0.002,
    ("classes", "excess"): 0.011,
    ("screening", "flagged"): 0.006,
}
VOID = {"meta", "img", "br", "link", "input", "hr"}


def make_results(splits: tuple[str, ...] = (LEAK,), ood: tuple[str, ...] = ("svhn",), targets: bool = True) -> Results:
    """Realistic results; with `targets=False` nothing is known of accuracy."""
    sets, held_out = ("test", *ood), next((name for name in splits if name != LEAK), "")
    tables = {
        "calibration": calibration(splits),
        "ood": detection(ood),
        "leaks": [(x, 5000, 0.9976 if x == LEAK else 0.9188, 0.9173, 1e-90, x == LEAK) for x in splits],
        "overlaps": [
            *((name, "calibration", 5000, 0, 0, False) for name in splits),
            *((name, "ood", 26_032, 0, 0, False) for name in ood),
        ],
        "gaps": [
            ("test", "id", 10_000, 0.9705, 0.9966, 0.0261, 0.0249, 0.0012, 0.71, 0.996, 0.0, 0.55),
            *((x, "ood", 26_032, 0.8405, 0.9802, 0.1397, 0.1333, 0.0064, 0.72, 0.994, 0.02, 0.31) for x in ood),
        ],
        "coherence": coherence(sets),
        "reliability": reliability(splits),
        "roc": roc(ood),
        "screening": screening(held_out, ood),
        "stream": [
            (name, "gen", 0.01, i, "id" if i <= 300 else "ood", -2.0 if i <= 300 else -2.0 + 0.22 * (i - 300))
            for name in ood
            for i in range(1, 501)
        ],
        "acceptance": [
            (error, 0.95, held_out, 5000, needed, start, 5000, share, 0.6 * error)
            for error, needed, start, share in (
                (0.01, 299, 5.2, 0.698),
                (0.02, 149, 4.1, 0.783),
                (0.05, 59, 1.4, 0.909),
            )
        ],
        "delays": [(name, "gen", 0.01, 25, 0, 0, 14.0, 19.0) for name in ood],
        "review": review(ood, targets),
        "classes": [(i, 1000, 0.99 - 0.01 * i, 0.97, NAN, 0.02 - 0.01 * i) for i in range(10)],
        "confusions": [(3, 5, 43), (5, 3, 38)],
        "samples": samples(sets),
    }
    if not targets:
        for name in ("calibration", "leaks", "reliability", "acceptance", "classes", "confusions"):
            tables[name] = []
    made = {name: make_table(name, rows) for name, rows in tables.items()}
    return concluded(settings(sets, splits, targets), made | {"calibration": compared(made["calibration"])})


def concluded(settings: Mapping[str, Any], tables: Mapping[str, Any]) -> Results:
    """The results with the signs and choices that follow from the tables, as `evaluate` adds them."""
    leaks, overlaps = (tables[name][tables[name]["suspicious"].astype(bool)] for name in ("leaks", "overlaps"))
    distrusted = {*leaks["split"], *overlaps["set"][overlaps["kind"] == "calibration"]}
    return Results({**settings, **conclude(tables, distrusted)}, tables)


def make_table(name: str, rows: list[tuple[Any, ...]]) -> pd.DataFrame:
    """A table of a report from the values in its rows; each interval has a fixed width."""
    columns = [x.removesuffix("±") for x in TABLES[name].split() if not x.endswith("sign")]
    table = pd.DataFrame(rows, columns=columns)
    for column in re.findall(r"(\w+)±", TABLES[name]):
        half = HALF_WIDTHS.get((name, column), 0.004)
        table[f"{column}_low"], table[f"{column}_high"] = table[column] - half, table[column] + half
    return table.reindex(columns=list(frame(name)))


def settings(sets: tuple[str, ...], splits: tuple[str, ...], targets: bool) -> dict[str, Any]:
    samples = {name: 10_000 if name == "test" else 26_032 for name in sets} | dict.fromkeys(splits, 5_000)
    return {
        "trials": 100,
        "bins": 15,
        "replicates": 1000,
        "seed": 42,
        "level": LEVEL,
        "classes": 10,
        "class_names": [*CLASSES],
        "samples": samples,
        "violations": [],
        "accuracy": 0.9173 if targets else NAN,
        "date": "2026-01-02",
        "versions": {"torch_boc": "0.5.0", "torch": "2.9.0"},
    }


def calibration(splits: tuple[str, ...]) -> list[tuple[Any, ...]]:
    def row(split, method, ece, nll, brier, temperature=NAN):
        return split, method, ece, nll, brier, 0.0052, NAN, 0.9173, temperature

    leaking = [(0.0644, 0.5551, 0.0683, 0.631), (0.0658, 0.3727, 0.0695)]
    honest = [(0.0112, 0.2921, 0.0591, 1.52), (0.0093, 0.3727, 0.0589)]
    rows = [row("", "MSP", 0.0532, 0.3727, 0.0627)]
    for split in splits:
        fits = [*leaking, (0.0640, 0.5502, 0.0690)] if split == LEAK else [*honest, (0.0110, 0.2920, 0.0590)]
        rows += [row(split, method, *values) for method, values in zip(FITTED, fits, strict=True)]
    return [*rows, row("", "BoC", 0.0790, 0.3727, 0.0791)]


def compared(table: pd.DataFrame) -> pd.DataFrame:
    """With the differences of the ECE from that of MSP."""
    base = table["ece"].iloc[:1].sum()
    difference, half = table["ece"] - base, (table["ece"] != base) * 0.004
    ends = {"ece_versus_msp_low": difference - half, "ece_versus_msp_high": difference + half}
    return table.assign(ece_versus_msp=difference, **ends)


def detection(ood: tuple[str, ...]) -> list[tuple[Any, ...]]:
    scores = {score: ("score", *values) for score, values in SCORES.items()} | OWN
    return [
        (name, score, auroc, fpr, auroc - 0.1, auroc - 0.8907, kind, score == "structural_score")
        for name in ood
        for score, (kind, auroc, fpr) in scores.items()
    ]


def coherence(sets: tuple[str, ...]) -> list[tuple[Any, ...]]:
    rows = []
    for name in sets:
        for i, (low, high) in enumerate(BINS):
            confidence = (low + high) / 2
            odds = (1 - confidence) / confidence
            forced = odds * 8 / ((1 + odds) * (9 + odds))
            samples, excess = 40 * i if i > 2 else 0, 1.02 if name == "test" else 1.07
            rows.append((name, low, high, samples, confidence, forced * excess, forced))
    return rows


def reliability(splits: tuple[str, ...]) -> list[tuple[Any, ...]]:
    fitted = [(split, method, 0.2 if split == LEAK else 0.05) for split in splits for method in FITTED]
    rows = []
    for split, method, excess in [("", "MSP", 0.12), *fitted, ("", "BoC", 0.25)]:
        for i, (low, high) in enumerate(BINS):
            some = i > (6 if method == "BoC" else 3)
            confidence = (low + high) / 2 if some else NAN
            accuracy = confidence - excess * (1 - confidence) * 2
            rows.append((split, method, low, high, 50 * i * some, confidence, accuracy))
    return rows


def roc(ood: tuple[str, ...]) -> list[tuple[Any, ...]]:
    areas = {score: area for score, (area, _) in SCORES.items()} | {score: own[1] for score, own in OWN.items()}
    return [
        (name, score, fpr, fpr ** ((1 - area) / area))
        for name in ood
        for score, area in areas.items()
        for fpr in [i / 20 for i in range(21)]
    ]


def review(ood: tuple[str, ...], targets: bool) -> list[tuple[Any, ...]]:
    rows = []
    for name in ("test", *ood):
        for share in (0.0, 0.05, 0.15, 0.3, 0.5):
            detected = (1 - math.exp(-10 * share)) if targets or name != "test" else NAN
            accuracy = 0.92 + 0.08 * detected if name == "test" else NAN
            rows.append((name, "id" if name == "test" else "ood", share, 0.5 + share, detected, accuracy))
    return rows


def samples(sets: tuple[str, ...]) -> list[tuple[Any, ...]]:
    rows = []
    for name in sets:
        for i in range(12):
            target, file = (3, f"{i}.png") if name == "test" else (-1, "")
            rows.append((name, "ood", 10 * i, file, i % 10, target, 0.27 + 0.01 * i, 0.2, i / 10 - 1, NAN))
    return rows


def screening(held_out: str, ood: tuple[str, ...]) -> list[tuple[Any, ...]]:
    shares = {  # of the test set and of others, at 5 % and at 1 %
        ("conformal", "gen"): (0.0472, 0.2702, 0.0076, 0.0466),
        ("conformal", "energy"): (0.0496, 0.3052, 0.0072, 0.0478),
        ("paper", ""): (0.1282, 0.6701, 0.1048, 0.5598),
    }
    rows = []
    for test, values in shares.items():
        for alpha, (known, other) in ((0.05, values[:2]), (0.01, values[2:])):
            chances, rates = ((NAN, NAN), (NAN, NAN)) if test[0] == "paper" else ((0.6, 0.0), (alpha / 2, 2 * alpha))
            rows.append((*test, alpha, held_out, 5000, "test", "id", 5000, known, *rates, chances[0]))
            rows += [(*test, alpha, held_out, 5000, name, "ood", 26_032, other, *rates, chances[1]) for name in ood]
    return rows


class Outline(HTMLParser):
    """Checks that tags are balanced, and keeps them with their attributes and the text of the page."""

    def __init__(self, source):
        super().__init__()
        self.tags, self.open, self.text, self.within = [], [], "", []
        self.feed(source)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        self.within.append((tag, tuple(self.open)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if not {"style", "script"} & {*self.open}:
            self.text += data

    def all(self, tag):
        return [attributes for name, attributes in self.tags if name == tag]
