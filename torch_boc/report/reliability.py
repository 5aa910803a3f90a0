"""The reliability diagram: accuracy against confidence for some calibration methods."""

from typing import Any, NamedTuple

from ..calibration import calibrators
from ..plots import BLUE, CYCLE, FEW_SAMPLES, GREEN, GREY, ORANGE
from .axes import finish, panels
from .parts import Figure
from .results import Results
from .words import number

# The methods of the diagram take these colours and marks in the order of `calibrators()`.
STYLES = ((BLUE, "o-"), (GREEN, "^-"), (ORANGE, "s--"), (CYCLE[4], "D-"), (CYCLE[5], "v--"))
SECOND_SPLIT = CYCLE[3]


class Curve(NamedTuple):
    """One line of the diagram: a method, the split that it was fitted on ("" for none), and its name in the legend."""

    method: str
    split: str
    label: str


def reliability_figure(results: Results) -> Any:
    """Accuracy against confidence, with bootstrap bands; None if there is nothing to show."""
    table = results.reliability[results.reliability["samples"] >= FEW_SAMPLES]
    curves = reliability_curves(results)
    if not curves or not len(table):
        return None
    styles = dict(zip(_methods(), STYLES, strict=False))
    figure, (axis,) = panels(1)
    axis.plot([0, 1], [0, 1], color=GREY, linewidth=1, linestyle=":")
    for i, (method, split, label) in enumerate(curves):
        rows = table[(table["method"] == method) & (table["split"] == split)].sort_values("bin_low")
        colour, style = styles[method]
        colour = SECOND_SPLIT if any(method == other.method for other in curves[:i]) else colour
        low, high = rows["accuracy_low"], rows["accuracy_high"]
        axis.fill_between(rows["confidence"], low, high, color=colour, alpha=0.18, linewidth=0)
        # With many classes BoC has one point, at the right edge: it is drawn whole.
        options = {"markersize": 4, "linewidth": 1.4, "clip_on": False}
        axis.plot(rows["confidence"], rows["accuracy"], style, color=colour, label=label, **options)
    axis.set(xlabel="confidence", ylabel="accuracy", xlim=(0, 1), ylim=(0, 1))
    return finish(figure, [axis], "upper left")


def reliability_curves(results: Results) -> list[Curve]:
    """The curves of the diagram: the methods that have one, each for the first two splits that it was fitted on."""
    table = results.reliability
    pairs = list(dict.fromkeys(zip(table["method"], table["split"], strict=True)))
    splits = {method: [pair for pair in pairs if pair[0] == method][:2] for method in _methods()}
    chosen = [pair for pair in pairs if pair in splits.get(pair[0], ())]
    return [Curve(*pair, f"{pair[0]}, {pair[1]}" if len(splits[pair[0]]) > 1 else pair[0]) for pair in chosen]


def _methods() -> list[str]:
    return [method.name for method in calibrators() if method.in_diagram][: len(STYLES)]


def _describe(results: Results) -> str:
    parts = []
    for method, split, label in reliability_curves(results):
        rows = results.calibration[(results.calibration["method"] == method) & (results.calibration["split"] == split)]
        parts.append(f"{label}: ECE {number(rows.iloc[0]['ece'])}" if len(rows) else label)
    return f"Reliability diagram, accuracy against confidence in each bin, with 95 % bands. {'; '.join(parts)}"


RELIABILITY = Figure(
    "reliability",
    reliability_figure,
    f"How often predictions of a given confidence are right, for bins with {FEW_SAMPLES} samples or more. Dotted: "
    "perfect calibration. Shaded: 95 % bootstrap bands.",
    _describe,
)
