"""The figures of the page, from the table of numbers."""

from typing import Any

import pandas as pd

from benchmarks.axes import FONT_SIZE, finish, panels
from benchmarks.language.analysis import BINS, CONTRASTS, FAMILIAR, SCORES
from torch_boc.plots import CYCLE, GREY

# What the page calls the scores.
NAMES = {
    "log_probability": "log-probability of the token",
    "confidence": "confidence",
    "lost_coins": "lost coins",
    "entropy": "entropy",
    "logit_gap": "logit gap",
    "energy": "energy",
    "concentration": "ρ",
}
NEGATIVE = ("lost_coins", "entropy", "concentration")
# With the sign for which higher is more sure.
SIGNED = {name: f"−{text}" if name in NEGATIVE else text for name, text in NAMES.items()}
FEW = 20  # bins with fewer tokens are not drawn
MARKS = "os^Dv<>P"


def of(table: pd.DataFrame, model: str, name: str) -> dict[str, Any]:
    """The rows of a set, by what they are."""
    rows = table[(table["model"] == model) & (table["set"] == name)]
    return {row.what: row for row in rows.itertuples()}


def reliability(table: pd.DataFrame, model: str, sets: list[str]) -> Any:
    """Accuracy against confidence, a line for each set; natural English text on the left, other text on the right."""
    figure, axes = panels(2, (4.3, 3.9))
    others = [other for _, other in CONTRASTS]
    for axis, shown in zip(axes, ([x for x in sets if x not in others], others), strict=True):
        for place, name in enumerate(x for x in shown if x in sets):
            found = of(table, model, name)
            shares = {i: found[f"bin_{i}_share"].value for i in range(BINS) if f"bin_{i}_share" in found}
            bins = [i for i, share in shares.items() if round(share * found["tokens"].value) >= FEW]
            x, y = ([found[f"bin_{i}_{what}"].value for i in bins] for what in ("confidence", "accuracy"))
            axis.plot(x, y, f"{MARKS[place]}-", color=CYCLE[place], markersize=4, linewidth=1.2, label=name)
        axis.plot([0, 1], [0, 1], color=GREY, linewidth=1, linestyle=":")
        axis.set(xlim=(0, 1), ylim=(0, 1), xlabel="confidence in the next token", ylabel="accuracy")
    return finish(figure, axes, "upper left")


def separation(table: pd.DataFrame, model: str, sets: list[str]) -> Any:
    """AUROC of right against wrong next tokens, over all pairs and at equal confidence, with intervals."""
    figure, axes = panels(2, (4.9, 3.6))
    for axis, way, label in zip(axes, ("auroc", "within"), ("AUROC", "AUROC at equal confidence"), strict=True):
        for place, name in enumerate(sets):
            rows = [of(table, model, name)[f"{way}_{score}"] for score in SCORES]
            _intervals(axis, rows, place, len(sets), name)
        axis.set_yticks(range(len(SCORES)), [SIGNED[score] for score in SCORES])
        axis.set_ylim(len(SCORES) - 0.5, -0.5)
        axis.axvline(0.5, color=GREY, linewidth=1, linestyle=":")
        axis.set_xlabel(label)
    finish(figure, axes, None)
    handles = axes[0].get_legend_handles_labels()
    figure.legend(*handles, loc="outside lower center", ncols=4, fontsize=FONT_SIZE, frameon=False)
    return figure


def contrasts(table: pd.DataFrame, model: str) -> Any:
    """AUROC of natural against other text, by token and by document."""
    figure, axes = panels(2, (4.9, 3.3))
    for axis, way, label in zip(axes, ("token", "document"), ("by token", "by the mean of a document"), strict=True):
        shown = [pair for pair in CONTRASTS if of(table, model, " / ".join(pair))]
        for place, (one, other) in enumerate(shown):
            found = of(table, model, f"{one} / {other}")
            _intervals(axis, [found[f"{way}_{x}"] for x in FAMILIAR], place, len(shown), f"{one} against {other}")
        axis.set_yticks(range(len(FAMILIAR)), [SIGNED.get(x, NAMES.get(x, x)) for x in FAMILIAR])
        axis.set_ylim(len(FAMILIAR) - 0.5, -0.5)
        axis.axvline(0.5, color=GREY, linewidth=1, linestyle=":")
        axis.set_xlabel(f"AUROC {label}")
    finish(figure, axes, None)
    handles = axes[0].get_legend_handles_labels()
    figure.legend(*handles, loc="outside lower center", ncols=1, fontsize=FONT_SIZE, frameon=False)
    return figure


def _intervals(axis: Any, rows: list[Any], place: int, count: int, label: str) -> None:
    """A dot with its interval in each line."""
    heights = [i + 0.14 * (place - (count - 1) / 2) for i in range(len(rows))]
    reach = [[row.value - row.low for row in rows], [row.high - row.value for row in rows]]
    style = {"color": CYCLE[place], "markersize": 4, "capsize": 2, "label": label}
    axis.errorbar([row.value for row in rows], heights, xerr=reach, fmt=MARKS[place], **style)
