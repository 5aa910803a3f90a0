"""Figures of the probe: Figure objects of matplotlib, made without pyplot, in colours for colour-blind readers."""

import warnings
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from html import escape
from io import BytesIO
from itertools import cycle
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ._optional import require
from .core.schema import BINS_PER_DECADE, GAP_EDGES, LOWEST_DECADE, BinCounts, BinSums, Tally
from .functional.bounds import dominance_bounds, forced_gap
from .functional.registry import scores
from .functional.score_bins import EVERY_EXPONENT, bin_edges, num_bins
from .functional.separation import survival

# The palette of all figures and pages, for colour-blind readers.
BLUE, ORANGE, GREEN, SKY, GREY = "#0072B2", "#D55E00", "#009E73", "#56B4E9", "#666666"
CYCLE = (BLUE, ORANGE, GREEN, "#CC79A7", "#E69F00", "#8C6BB1", GREY)
KINDS = ("gap", "coherence", "reliability")
FEW_SAMPLES = 10  # with fewer samples in a bin, the standard error of its accuracy can be 0.16 and more

# A notebook has styles of its own: these hold inside of the output only.
NOTEBOOK_STYLE = f"<style>\n{Path(__file__).with_name('notebook.css').read_text()}</style>"


def new_axes(count: int, ax: Any) -> tuple[Any, list[Any]]:
    """A figure and its axes: the given axes, or those of a new figure."""
    if ax is not None:
        axes = list(getattr(ax, "flat", ax if isinstance(ax, Sequence) else [ax]))
        if len(axes) != count:
            raise ValueError(f"expected {count} axes for this plot, got {len(axes)}; `kind` chooses a single one")
        return axes[0].figure, axes
    library = require("matplotlib", "figure", purpose="plots need")
    figure = library.figure.Figure(figsize=(4.6 * count, 3.8), layout="constrained")
    axes = list(figure.subplots(1, count, squeeze=False).flat)
    for axis in axes:
        axis.spines[["top", "right"]].set_visible(False)
    return figure, axes


def image(figure: Any, kind: str) -> bytes:
    """A figure as "svg" or "png". The bytes are the same each time."""
    buffer = BytesIO()
    with (
        require("matplotlib", purpose="figures need").rc_context({"svg.hashsalt": "torch_boc"}),
        warnings.catch_warnings(),
    ):
        # A name with characters that the font does not have is drawn as boxes; the tables show it correctly.
        warnings.filterwarnings("ignore", "Glyph .* missing from", UserWarning)
        figure.savefig(buffer, format=kind, dpi=160, metadata={"Date": None} if kind == "svg" else {"Software": None})
    figure.set_layout_engine("none")  # the layout is done: saving the figure again need not repeat it
    return buffer.getvalue()


def notebook(body: str, draw: Callable[[], tuple[Any, str] | None] | None = None) -> str:
    """HTML for a notebook: `body`, and below it a figure, if matplotlib is installed.

    Args:
        body: HTML.
        draw: returns a figure and its description; or None if there is nothing to draw.
    """
    with suppress(ImportError):
        if draw is not None and (drawn := draw()) is not None:
            source, width = b64encode(image(drawn[0], "png")).decode(), 86 * drawn[0].get_size_inches()[0]
            alt = escape(drawn[1])
            body += f"\n<figure><img src='data:image/png;base64,{source}' alt='{alt}' width='{width:.0f}'></figure>"
    return f"{NOTEBOOK_STYLE}\n<div class='boc-note'>\n{body}\n</div>"


def draw_tally(total: Tally, num_classes: int | None, ax: Any = None, kind: str = "all") -> tuple[Any, Any]:
    """The plots of a tally: one of `KINDS`, or all of them side by side."""
    if kind not in (*KINDS, "all"):
        raise ValueError(f"expected kind among {', '.join(KINDS)}, all, got {kind!r}")
    kinds = KINDS if kind == "all" else (kind,)
    figure, axes = new_axes(len(kinds), ax)
    total = Tally(*(x.cpu() for x in total))
    for axis, name in zip(axes, kinds, strict=True):
        if name == "gap":
            draw_gaps(axis, total.gap_histogram)
        elif name == "coherence":
            draw_coherence(axis, total, num_classes)
        else:
            draw_reliability(axis, total)
        axis.grid(alpha=0.3)
    return figure, axes[0] if len(axes) == 1 else axes


def draw_gaps(axis: Any, counts: Tensor) -> None:
    """A histogram of the gap on a logarithmic scale, as shares of the samples. Decades without samples are not shown.

    A bar has the fewest bins with which it has 5 samples on average, and at most a decade.
    """
    edges, shares = torch.tensor([*GAP_EDGES, 1.0], dtype=torch.float64), counts.double() / counts.sum().clamp_min(1)
    for merged in (5, 10, 25, BINS_PER_DECADE):
        bars = counts[1:].reshape(-1, merged).sum(-1)
        if int(bars.sum()) >= 5 * int((bars > 0).sum()):
            break
    axis.stairs(shares[1:].reshape(-1, merged).sum(-1), edges[::merged], fill=True, alpha=0.5, color=BLUE)
    axis.plot([], [], color=BLUE, alpha=0.5, linewidth=6, label="samples")
    if shares[0] > 0:
        axis.plot([], [], " ", label=f"below 1e-12: {shares[0]:.1%}")
    decades = counts[1:].reshape(-1, BINS_PER_DECADE).sum(-1).nonzero()
    lowest, highest = (int(decades.min()), int(decades.max()) + 1) if len(decades) else (0, -LOWEST_DECADE)
    axis.set(xscale="log", xlabel="coherence gap Δ", ylabel="share of samples", title="Coherence gap")
    axis.set_xlim(10 ** (LOWEST_DECADE + lowest - 0.05), 10 ** (LOWEST_DECADE + highest + 0.05))
    axis.set_ylim(bottom=0, top=None if len(decades) else 1)
    axis.legend(fontsize=9)


def draw_coherence(axis: Any, total: Tally, num_classes: int | None) -> None:
    """The mean gap in each bin of confidence that has samples, and the band that the confidence allows."""
    counts, sums = BinCounts(*total.bin_counts), BinSums(*total.bin_sums)
    some = counts.samples > 0
    means, gaps = (x[some] / counts.samples[some] for x in (sums.confidence, sums.gap))
    lowest = max(0.0, min(0.95, float(means.min())) - 0.03) if len(means) else 1 / (num_classes or 2)
    if num_classes is not None:
        confidence = torch.linspace(max(lowest, 1 / num_classes), 1, 300)
        odds = (1 - confidence) / confidence
        least, most = forced_gap(odds, num_classes), dominance_bounds(odds, num_classes)[1] - confidence
        axis.fill_between(confidence, least, most.maximum(least), color=SKY, alpha=0.4, label="possible")
        axis.plot(confidence, least, color=BLUE, linewidth=1, label="forced by confidence")
    axis.plot(means, gaps, "o", color=ORANGE, markersize=5, label="mean of a bin")
    highest = max(0.01, axis.dataLim.y1)  # the gap of two classes is 0
    axis.set(xlabel="confidence", ylabel="coherence gap Δ", title="Gap against confidence")
    axis.set(xlim=(lowest - 0.03 * (1 - lowest), 1 + 0.03 * (1 - lowest)), ylim=(-0.03 * highest, 1.05 * highest))
    axis.legend(fontsize=9)


def draw_reliability(axis: Any, total: Tally) -> None:
    """Accuracy against mean confidence, and against mean dominance, in the bins with at least `FEW_SAMPLES`."""
    counts, sums = BinCounts(*total.bin_counts), BinSums(*total.bin_sums)
    by_confidence = (counts.labelled, counts.correct, sums.labelled_confidence)
    by_dominance = (counts.labelled_by_dominance, counts.correct_by_dominance, sums.labelled_dominance)
    curves = (("confidence", *by_confidence, BLUE, "o-"), ("dominance", *by_dominance, ORANGE, "s--"))
    lowest = 0.9
    for label, labelled, correct, scores_of_bin, colour, style in curves:
        some = labelled >= FEW_SAMPLES
        score, accuracy = scores_of_bin[some] / labelled[some], correct[some] / labelled[some]
        axis.plot(score, accuracy, style, color=colour, markersize=4, label=label)
        lowest = min([lowest, *score.tolist(), *accuracy.tolist()])
    around = (lowest - 0.03 * (1 - lowest), 1 + 0.03 * (1 - lowest))
    axis.set(xlabel="score", ylabel="accuracy", xlim=around, ylim=around, title="Reliability")
    if any(len(line.get_xdata()) for line in axis.lines):
        axis.plot([lowest, 1], [lowest, 1], color=GREY, linewidth=1, linestyle=":")
        axis.legend(fontsize=9, title=f"bins of {FEW_SAMPLES} samples or more", title_fontsize=9)
    else:
        message = f"no bin has {FEW_SAMPLES} samples" if int(counts.labelled.sum()) else "no targets"
        axis.text(0.5, 0.5, message, ha="center", va="center", transform=axis.transAxes)


def draw_course(results: Sequence[Mapping[str, Tensor]], ax: Any, keys: Sequence[str]) -> tuple[Any, Any]:
    """The values of some keys over several results, in the order of the steps."""
    figure, (axis,) = new_axes(1, ax)
    for key, colour in zip(keys, cycle(CYCLE), strict=False):
        axis.plot([float(result[key]) for result in results], "o-", color=colour, markersize=4, label=key)
    axis.set(xlabel="step")
    axis.grid(alpha=0.3)
    axis.legend(fontsize=9)
    return figure, axis


def draw_values(values: Sequence[Tensor], ax: Any = None) -> tuple[Any, Any]:
    """The mean gap over the steps, one line per class if there are several."""
    lines = torch.stack([value.detach().cpu().reshape(-1) for value in values])
    names = [f"class {i}" for i in range(lines.shape[1])] if lines.shape[1] > 1 else ["coherence gap Δ"]
    return draw_course([dict(zip(names, step, strict=True)) for step in lines], ax, names)


def draw_separation(metric: Any, score: str, ax: Any = None) -> tuple[Any, Any]:
    """Histograms of one score for both kinds of samples, and the ROC curves of all scores of a `BoCSeparation`."""
    figure, (left, right) = new_axes(2, ax)
    results = metric.compute()
    sides = _sides(metric)
    shown = [(scores[score].value(numbers), weights) for numbers, weights in sides[score]]
    present = torch.cat([values[values.isfinite()] for values, _ in shown])
    span = (float(present.min()), float(present.max())) if len(present) else (0.0, 1.0)
    for label, (values, weights), colour in zip(("ID", "OOD"), shown, (BLUE, ORANGE), strict=True):
        left.hist(values, bins=60, range=span, weights=weights, alpha=0.5, color=colour, label=label)
    left.set(xlabel=f"{score} (higher = more in-distribution)", ylabel="share of samples", title="Score")
    for (name, pair), colour in zip(sides.items(), cycle(CYCLE), strict=False):
        false, true = _roc(*pair) if all(len(numbers) for numbers, _ in pair) else ((), ())
        right.plot(false, true, color=colour, label=f"{name} {float(results[f'{name}_auroc']):.3f}")
    right.plot([0, 1], [0, 1], color=GREY, linewidth=1, linestyle=":")
    right.set(xlabel="false positive rate (OOD kept)", ylabel="true positive rate (ID kept)", title="ROC, with AUROC")
    for axis, place in ((left, "best"), (right, "lower right")):
        axis.grid(alpha=0.3)
        axis.legend(fontsize=9, loc=place)
    return figure, [left, right]


def _sides(metric: Any) -> dict[str, list[tuple[Tensor, Tensor]]]:
    """For each score, the numbers that rank the samples and their weights, in-distribution first."""
    if metric.exact:
        pairs = zip(*(side.values() for side in metric.ranked_samples()), strict=True)
        sides = [[(numbers.cpu(), torch.ones_like(numbers, device="cpu")) for numbers in pair] for pair in pairs]
    else:
        counts = metric.histograms().cpu().double()
        # The middle of a bin is the edge of two half as wide ones.
        centres = bin_edges(2 * counts.shape[-1] / num_bins(1, EVERY_EXPONENT), EVERY_EXPONENT)[1::2]
        sides = [[(centres[x > 0], x[x > 0]) for x in pair] for pair in counts.unbind(1)]
    shares = [[(numbers, counts / counts.sum()) for numbers, counts in pair] for pair in sides]
    return dict(zip(metric.scores, shares, strict=True))


def _roc(id_side: tuple[Tensor, Tensor], ood_side: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """The false and the true positive rate, from the highest threshold to the lowest. Equal scores give one point."""
    start = torch.zeros(1, dtype=torch.float64)
    thresholds = torch.cat([id_side[0].double(), ood_side[0].double()]).unique().flip(0)
    rates = []
    for values, weights in (ood_side, id_side):
        rising, order = values.double().sort()
        rates.append(torch.cat([start, survival(rising, thresholds, weights=weights[order])]))
    return rates[0], rates[1]
