"""Results made by hand, with the numbers of a ResNet-20 on CIFAR-10 against SVHN."""

import math
from html.parser import HTMLParser
from typing import Any

import pandas as pd

from torch_boc.report.tables import Results

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
FITTED = ("temperature", "isotonic", "vector scaling", "structured scaling")
BINS = [(i / 15, (i + 1) / 15) for i in range(15)]
VOID = {"meta", "img", "br", "link", "input", "hr"}
OOD_COLUMNS = ("ood", "score", "auroc", "fpr95", "aupr", "versus_msp", "kind", "upside_down")


def make_results(splits: tuple[str, ...] = (LEAK,), ood: tuple[str, ...] = ("svhn",), targets: bool = True) -> Results:
    """Realistic results; with `targets=False` nothing is known of accuracy."""
    sets = ("test", *ood)
    return Results(
        settings=settings(sets, splits, targets),
        calibration=calibration(splits) if targets else calibration(()).iloc[:0],
        ood=detection(ood),
        leaks=leaks(splits if targets else ()),
        overlaps=overlaps(splits, ood),
        gaps=gaps(ood),
        trials=trials(ood, targets),
        coherence=coherence(sets),
        reliability=reliability(splits) if targets else reliability(()).iloc[:0],
        roc=roc(ood),
        histograms=histograms(sets),
        screening=screening(splits, ood),
        thresholds=thresholds(),
        stream=stream(ood),
        acceptance=acceptance(splits).iloc[: 3 * targets],
        review=review(ood, targets),
        classes=classes() if targets else classes().iloc[:0],
        confusions=pd.DataFrame({"target": [3, 5], "prediction": [5, 3], "samples": [43, 38]}).iloc[: 2 * targets],
        samples=samples(sets),
    )


def settings(sets: tuple[str, ...], splits: tuple[str, ...], targets: bool) -> dict[str, Any]:
    samples = {name: 10_000 if name == "test" else 26_032 for name in sets} | dict.fromkeys(splits, 5_000)
    return {
        "trials": 100,
        "bins": 15,
        "replicates": 1000,
        "seed": 42,
        "classes": 10,
        "class_names": [*CLASSES],
        "samples": samples,
        "accuracy": 0.9173 if targets else NAN,
        "date": "2026-01-02",
        "versions": {"torch_boc": "0.5.0", "torch": "2.9.0"},
    }


def with_interval(table: pd.DataFrame, *columns: str, half: float = 0.004) -> pd.DataFrame:
    for column in columns:
        table[f"{column}_low"], table[f"{column}_high"] = table[column] - half, table[column] + half
    return table


def calibration(splits: tuple[str, ...]) -> pd.DataFrame:
    rows = [("", "MSP", 0.0532, 0.3727, 0.0627, 0.9173, NAN, NAN)]
    for split in splits:
        if split == LEAK:
            fits = [(0.0644, 0.5551, 0.0683, 0.631), (0.0658, 0.3727, 0.0695, NAN), (0.0636, 0.5450, 0.0701, NAN)]
            fits.append((0.0640, 0.5502, 0.0690, NAN))
        else:
            fits = [(0.0112, 0.2921, 0.0591, 1.52), (0.0093, 0.3727, 0.0589, NAN), (0.0135, 0.2987, 0.0600, NAN)]
            fits.append((0.0110, 0.2920, 0.0590, NAN))
        for method, (ece, nll, brier, temperature) in zip(FITTED, fits, strict=True):
            loss = {"temperature": 0.2931, "structured scaling": 0.2940}.get(method, NAN)
            rows.append((split, method, ece, nll, brier, 0.9173, temperature, loss))
    rows.append(("", "BoC", 0.0790, 0.3727, 0.0791, 0.9173, NAN, NAN))
    columns = ["split", "method", "ece", "nll", "brier", "accuracy", "temperature", "fold_nll"]
    table = with_interval(pd.DataFrame(rows, columns=columns), "ece", "nll", "brier")
    return compared(table.assign(ece_chance=0.0052, ece_chance_most=0.0081))


def compared(table: pd.DataFrame) -> pd.DataFrame:
    """With the differences of the ECE from that of MSP and from the lowest."""
    for name, base in (("msp", table["ece"].iloc[:1].sum()), ("best", table["ece"].min())):
        table = with_interval(table.assign(**{f"ece_versus_{name}": table["ece"] - base}), f"ece_versus_{name}")
        itself = table["ece"] == base
        table.loc[itself, [f"ece_versus_{name}_low", f"ece_versus_{name}_high"]] = 0.0
    return table


def detection(ood: tuple[str, ...]) -> pd.DataFrame:
    rows: list[tuple[Any, ...]] = []
    for name in ood:
        for score, (auroc, fpr) in SCORES.items():
            rows.append((name, score, auroc, fpr, auroc - 0.1, auroc - 0.8907, "score", score == "structural_score"))
        for score, (kind, auroc, fpr) in OWN.items():
            rows.append((name, score, auroc, fpr, auroc - 0.1, auroc - 0.8907, kind, False))
    table = with_interval(pd.DataFrame(rows, columns=list(OOD_COLUMNS)), "auroc", "fpr95", "aupr")
    return with_interval(table, "versus_msp", half=0.0003)


def leaks(splits: tuple[str, ...]) -> pd.DataFrame:
    rows = [(name, 5000, 0.9976 if name == LEAK else 0.9188, 0.9173, 1e-90, name == LEAK) for name in splits]
    columns = ["split", "samples", "accuracy", "test_accuracy", "p_value", "suspicious"]
    return pd.DataFrame(rows, columns=columns).astype({"suspicious": bool})


def overlaps(splits: tuple[str, ...], ood: tuple[str, ...]) -> pd.DataFrame:
    rows = [(name, "calibration", 5000, 0, 0, 0.0, False) for name in splits]
    rows += [(name, "ood", 26_032, 0, 0, 0.0, False) for name in ood]
    columns = ["set", "kind", "samples", "shared", "exact", "share", "suspicious"]
    return pd.DataFrame(rows, columns=columns).astype({"suspicious": bool})


def gaps(ood: tuple[str, ...]) -> pd.DataFrame:
    rows = [("test", "id", 10_000, 0.9705, 0.9966, 0.0261, 0.0249, 0.0012, 0.71, 0.996, 0.0, 0.55)]
    rows += [(x, "ood", 26_032, 0.8405, 0.9802, 0.1397, 0.1333, 0.0064, 0.72, 0.994, 0.02, 0.31) for x in ood]
    columns = "set kind samples confidence dominance gap forced_gap free_gap concentration r2 rejection_rate p_value"
    return pd.DataFrame(rows, columns=columns.split())


def trials(ood: tuple[str, ...], targets: bool) -> pd.DataFrame:
    rows = [
        (variant, k, 0.079 + shift if targets else NAN, name, 0.1094 + 8 * shift if name else NAN)
        for variant, scale in (("deterministic", 0.0), ("Monte Carlo", 0.02))
        for k in (20, 50, 100, 200)
        for shift in (scale / k**0.5,)
        for name in ood or ("",)
    ]
    return pd.DataFrame(rows, columns=["variant", "trials", "ece", "ood", "auroc"])


def coherence(sets: tuple[str, ...]) -> pd.DataFrame:
    rows = []
    for name in sets:
        for i, (low, high) in enumerate(BINS):
            confidence = (low + high) / 2
            odds = (1 - confidence) / confidence
            forced = odds * 8 / ((1 + odds) * (9 + odds))
            samples, excess = 40 * i if i > 2 else 0, 1.02 if name == "test" else 1.07
            rows.append((name, low, high, samples, confidence, forced * excess, forced))
    return pd.DataFrame(rows, columns=["set", "bin_low", "bin_high", "samples", "confidence", "gap", "forced_gap"])


def reliability(splits: tuple[str, ...]) -> pd.DataFrame:
    fitted = [(split, method, 0.2 if split == LEAK else 0.05) for split in splits for method in FITTED]
    methods = [("", "MSP", 0.12), *fitted, ("", "BoC", 0.25)]
    rows = []
    for split, method, excess in methods:
        for i, (low, high) in enumerate(BINS):
            some = i > (6 if method == "BoC" else 3)
            confidence = (low + high) / 2 if some else NAN
            accuracy = confidence - excess * (1 - confidence) * 2
            rows.append((split, method, low, high, 50 * i * some, confidence, accuracy))
    table = pd.DataFrame(rows, columns=["split", "method", "bin_low", "bin_high", "samples", "confidence", "accuracy"])
    return with_interval(table, "accuracy", half=0.06)


def roc(ood: tuple[str, ...]) -> pd.DataFrame:
    areas = {score: area for score, (area, _) in SCORES.items()} | {score: own[1] for score, own in OWN.items()}
    rows = [
        (name, score, fpr, fpr ** ((1 - area) / area))
        for name in ood
        for score, area in areas.items()
        for fpr in [i / 100 for i in range(101)]
    ]
    return pd.DataFrame(rows, columns=["ood", "score", "fpr", "tpr"])


def histograms(sets: tuple[str, ...]) -> pd.DataFrame:
    rows = []
    for name in sets:
        weights = [math.exp(-(0.3 if name == "test" else 0.08) * i) for i in range(40)]
        rows += [(name, i / 40, (i + 1) / 40, w / sum(weights)) for i, w in enumerate(weights)]
    return pd.DataFrame(rows, columns=["set", "bin_low", "bin_high", "share"])


def acceptance(splits: tuple[str, ...]) -> pd.DataFrame:
    held_out = next((name for name in splits if name != LEAK), "")
    rows = [
        (error, 0.95, held_out, 5000, start, 5000, share, 0.6 * error)
        for error, start, share in ((0.01, 5.2, 0.698), (0.02, 4.1, 0.783), (0.05, 1.4, 0.909))
    ]
    columns = "error confidence held_out held_out_samples threshold samples accepted wrong"
    return with_interval(with_interval(pd.DataFrame(rows, columns=columns.split()), "accepted"), "wrong", half=0.002)


def review(ood: tuple[str, ...], targets: bool) -> pd.DataFrame:
    rows = []
    for name in ("test", *ood):
        for share in (0.0, 0.05, 0.15, 0.3, 0.5):
            caught = (1 - math.exp(-10 * share)) if targets or name != "test" else NAN
            right = 0.92 + 0.08 * caught if name == "test" else NAN
            rows.append((name, "id" if name == "test" else "ood", share, 0.5 + share, caught, right))
    return pd.DataFrame(rows, columns=["set", "kind", "share", "threshold", "caught", "right"])


def classes() -> pd.DataFrame:
    rows = [(i, 1000, 0.99 - 0.01 * i, 0.97, NAN) for i in range(10)]
    return pd.DataFrame(rows, columns=["prediction", "samples", "right", "confidence", "calibrated"])


def samples(sets: tuple[str, ...]) -> pd.DataFrame:
    rows = []
    for name in sets:
        for i in range(12):
            target, file = (3, f"{i}.png") if name == "test" else (-1, "")
            rows.append((name, "ood", 10 * i, file, i % 10, target, 0.27 + 0.01 * i, 0.2, i / 10 - 1, NAN))
    columns = "set kind row name prediction target confidence gap log_odds p_value"
    return pd.DataFrame(rows, columns=columns.split())


def screening(splits: tuple[str, ...], ood: tuple[str, ...]) -> pd.DataFrame:
    held_out = next((name for name in splits if name != LEAK), "")
    shares = {
        ("conformal", "gen"): (0.0472, 0.2702, 0.0076, 0.0466),
        ("conformal", "energy"): (0.0496, 0.3052, 0.0072, 0.0478),
        ("paper", ""): (0.1282, 0.6701, 0.1048, 0.5598),
    }
    rows = []
    for (test, score), (known, other, rare_known, rare_other) in shares.items():
        for alpha, pair in ((0.05, (known, other)), (0.01, (rare_known, rare_other))):
            for name in ("test", *ood):
                kind, share = ("id", pair[0]) if name == "test" else ("ood", pair[1])
                chance = NAN if test == "paper" else 0.6 if kind == "id" else 0.0
                size = 5000 if kind == "id" else 26_032
                rows.append((test, score, alpha, held_out, 5000, name, kind, size, share, chance))
    columns = "test score alpha held_out held_out_samples set kind samples flagged chance"
    return with_interval(pd.DataFrame(rows, columns=columns.split()), "flagged", half=0.006)


def thresholds() -> pd.DataFrame:
    rows = [
        (score, alpha, confidence, 5000, start - shift, alpha * factor)
        for score, start in (("log_odds", 1.06), ("energy", 8.6))
        for alpha in (0.1, 0.05, 0.01, 0.001)
        for confidence, shift, factor in ((NAN, 0.0, 1.0), (0.99, 0.2, 0.86))
    ]
    table = pd.DataFrame(rows, columns=["score", "alpha", "confidence", "held_out_samples", "threshold", "rate"])
    return with_interval(table, "rate", half=0.0002)


def stream(ood: tuple[str, ...]) -> pd.DataFrame:
    rows = [
        (name, "gen", 0.01, i, "id" if i <= 300 else "ood", -2.0 if i <= 300 else -2.0 + 0.22 * (i - 300))
        for name in ood
        for i in range(1, 501)
    ]
    return pd.DataFrame(rows, columns=["ood", "score", "alpha", "sample", "kind", "evidence"])


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
