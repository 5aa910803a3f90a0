"""What each figure shows, in words: a caption to stand under it, and the numbers for those who cannot see it."""

from typing import NamedTuple

from .figures import histogram_scores, main_scores, reliability_curves, roc_sets
from .layout import UPSIDE_DOWN, forced_share, known_set
from .results import Results
from .words import listed, names, number, percent, symbol


class Caption(NamedTuple):
    """A caption for all, and what a screen reader says in place of the image."""

    caption: str
    alt: str


def caption(name: str, results: Results) -> Caption:
    """The caption of the figure called `name`."""
    text, describe = _CAPTIONS[name]
    return Caption(text, f"{describe(results)}.")


def _reliability(results: Results) -> str:
    parts = []
    for method, split, label in reliability_curves(results):
        rows = results.calibration[(results.calibration["method"] == method) & (results.calibration["split"] == split)]
        parts.append(f"{label}: ECE {number(rows.iloc[0]['ece'])}" if len(rows) else label)
    return f"Reliability diagram, accuracy against confidence in each bin, with 95 % bands. {'; '.join(parts)}"


def _roc(results: Results) -> str:
    parts = []
    for name in roc_sets(results):
        table = results.ood[results.ood["ood"] == name].set_index("score")
        areas = [
            f"{symbol(score)} {number(table.loc[score, 'auroc'], 3)}"
            + (f" ({UPSIDE_DOWN})" if table.loc[score, "upside_down"] else "")
            for score in main_scores(results, name)
        ]
        parts.append(f"{known_set(results)} against {name}: AUROC {', '.join(areas)}")
    return f"ROC curves. {'; '.join(parts)}"


def _gaps(results: Results) -> str:
    means = [f"{row['set']} {number(row['gap'])}" for _, row in results.gaps.iterrows()]
    return f"Histograms of the coherence gap. Mean gap: {', '.join(means)}"


def _coherence(results: Results) -> str:
    parts = [
        f"{row['set']}, mean gap {number(row['gap'])} of which {number(row['forced_gap'])} is forced"
        + (f" ({percent(forced_share(row))})" if row["gap"] > 0 else "")
        for _, row in results.gaps.iterrows()
    ]
    return f"Mean coherence gap by confidence, over the band that the confidence allows. {'; '.join(parts)}"


def _trials(results: Results) -> str:
    parts = []
    for column, title in (("ece", "ECE of BoC"), ("auroc", "AUROC of the paper’s score")):
        for variant in dict.fromkeys(results.trials["variant"]):
            rows = results.trials[(results.trials["variant"] == variant) & results.trials[column].notna()]
            if len(rows):
                low, high = number(rows[column].min()), number(rows[column].max())
                parts.append(f"{title}, {variant}: {low} to {high}")
    counts = listed([str(int(k)) for k in dict.fromkeys(results.trials["trials"])])
    return f"Lines over the number of flips, k = {counts}. {'; '.join(parts)}"


def _scores(results: Results) -> str:
    parts = []
    for name in names(results.ood["ood"]):
        table = results.ood[results.ood["ood"] == name].set_index("score")["auroc"]
        areas = [
            f"{symbol(score)} {number(table[score], 3)}" for score in histogram_scores(results) if score in table.index
        ]
        parts.append(f"AUROC against {name}: {', '.join(areas)}")
    sets = ", ".join(names(results.histograms["set"]))
    return ". ".join([f"Small histograms of the main scores for {sets}", *parts])


_BINS = (
    "How often predictions of a given confidence are right, where there are 10 of them or more. Dotted: perfect. "
    "Shaded: 95 % bootstrap bands."
)
_BAND = (
    "Mean Δ by confidence. Confidence p̂ and the number of classes leave room only inside the band: points on its lower "
    "edge say nothing beyond confidence."
)
_CAPTIONS = {
    "reliability": (_BINS, _reliability),
    "roc": (
        "ROC curves, in-distribution samples positive, with AUROC. MSP is drawn wide, for p* often lies on it.",
        _roc,
    ),
    "gaps": ("How the coherence gap Δ is distributed in each set.", _gaps),
    "coherence": (_BAND, _coherence),
    "trials": ("The number of flips k matters only where the lines are not flat.", _trials),
    "scores": (
        "The scores themselves, with the same bins for every set; what lies outside counts in the end bins.",
        _scores,
    ),
}
