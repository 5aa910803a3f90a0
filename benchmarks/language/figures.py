"""The figures of the page, from the table of numbers."""

from typing import Any

import pandas as pd

from benchmarks.axes import INK, finish, panels, write_on
from benchmarks.language.analysis import BINS, CONTRASTS, NATURAL, SCORES
from torch_boc.plots import CYCLE

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
# With the sign for which higher is more confident.
SIGNED = {name: f"−{text}" if name in NEGATIVE else text for name, text in NAMES.items()}
FEW = 20  # bins with fewer tokens are not drawn
MARKS = "os^Dv<>P"


def of(table: pd.DataFrame, model: str, name: str) -> dict[str, Any]:
    """The rows of a set, by what they are."""
    rows = table[(table["model"] == model) & (table["set"] == name)]
    return {row.what: row for row in rows.itertuples()}


def reliability(table: pd.DataFrame, model: str, sets: list[str]) -> Any:
    """Accuracy against confidence, one line per set; natural English text on the left, other text on the right."""
    figure, axes = panels(2, (4.3, 3.9))
    others = [other for _, other in CONTRASTS]
    for axis, shown in zip(axes, ([x for x in sets if x not in others], others), strict=True):
        for i, name in enumerate(x for x in shown if x in sets):
            rows = of(table, model, name)
            shares = {i: rows[f"bin_{i}_share"].value for i in range(BINS) if f"bin_{i}_share" in rows}
            bins = [i for i, share in shares.items() if round(share * rows["tokens"].value) >= FEW]
            x, y = ([rows[f"bin_{i}_{what}"].value for i in bins] for what in ("confidence", "accuracy"))
            axis.plot(x, y, f"{MARKS[i]}-", color=CYCLE[i], markersize=4, linewidth=1.2, label=name)
        axis.plot([0, 1], [0, 1], color=INK, linewidth=1, linestyle=":")
        axis.set(xlim=(0, 1), ylim=(0, 1), xlabel="confidence in the next token", ylabel="accuracy")
    return finish(figure, axes, "upper left")


def separation(table: pd.DataFrame, model: str, sets: list[str]) -> Any:
    """AUROC of correct against wrong next tokens, over all pairs and at equal confidence; one panel per set."""
    figure, axes = panels(len(sets), (4.2, 2.2))
    for axis, name in zip(axes, sets, strict=True):
        rows = of(table, model, name)
        for i, (way, label) in enumerate((("auroc", "all pairs"), ("within", "at equal confidence"))):
            _intervals(axis, [rows[f"{way}_{score}"] for score in SCORES], i, label if axis is axes[0] else None)
        _score_axis(axis, [SIGNED[score] for score in SCORES], name, (0.4, 0.9), left=axis in axes[::2])
    return finish(figure, axes, None)


def contrasts(table: pd.DataFrame, model: str) -> Any:
    """AUROC of natural against other text, by token and by document; one panel per pair."""
    shown = [pair for pair in CONTRASTS if of(table, model, " / ".join(pair))]
    figure, axes = panels(len(shown), (3.2, 2.4))
    for axis, (one, other) in zip(axes, shown, strict=True):
        rows = of(table, model, f"{one} / {other}")
        for i, (way, label) in enumerate((("token", "single tokens"), ("document", "means of documents"))):
            _intervals(axis, [rows[f"{way}_{x}"] for x in NATURAL], i, label if axis is axes[0] else None)
        names = [SIGNED.get(x, NAMES.get(x, x)) for x in NATURAL]
        _score_axis(axis, names, f"{one} against\n{other}", (0, 1.03), left=axis is axes[0])
    return finish(figure, axes, None)


def _intervals(axis: Any, rows: list[Any], i: int, label: str | None) -> None:
    """A dot with its interval per row; the series has its name at the first dot."""
    heights = [row + (0.12 if i else -0.12) for row in range(len(rows))]
    reach = [[row.value - row.low for row in rows], [row.high - row.value for row in rows]]
    style = {"color": CYCLE[i], "markersize": 4, "capsize": 2}
    axis.errorbar([row.value for row in rows], heights, xerr=reach, fmt=MARKS[i], **style)
    if label and i == 0:
        write_on(axis, rows[0].value, heights[0], label, CYCLE[i], xytext=(0, 7), ha="center")
    elif label:
        write_on(axis, rows[-1].value, heights[-1], label, CYCLE[i], xytext=(-4, -14))


def _score_axis(axis: Any, names: list[str], title: str, ends: tuple[float, float], *, left: bool) -> None:
    """The names of the scores on the left, chance in the middle."""
    axis.set_yticks(range(len(names)), names if left else [""] * len(names))
    axis.set(xlim=ends, ylim=(len(names) + 0.3, -1.2), title=title, xlabel="AUROC; 0.5 is chance")
    axis.axvline(0.5, color=INK, linewidth=1, linestyle=":")
