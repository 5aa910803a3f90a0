"""Draw pictures of the guide from logits that come with the package: `python -m benchmarks.recipes.pictures`.

Writes results/metric.png (the plots of `BoCMetric`), results/roc.svg (a figure of the report) and
results/decisions.png (flags and alarms), which are also in results/review.png and results/alarm.png beside
results/accept.png; their legends have the numbers of results/headline.json. Writes results/band.png as well: what
confidence alone decides about the gap.
"""

import json
import math
from typing import Any

import torch
from matplotlib.figure import Figure

from benchmarks.decisions import draw, paper_flags, parts
from benchmarks.harness import RESULTS
from benchmarks.headline import PAGE
from torch_boc import Acceptance, BoCMetric, ConformalTest, DriftMonitor, zoo
from torch_boc.evaluation import evaluate
from torch_boc.functional import bag_of_coins, dominance_bounds, forced_gap, scores
from torch_boc.plots import BLUE, CYCLE, GREY, ORANGE, new_axes
from torch_boc.report.format import counted, percent
from torch_boc.report.report import ON_WHITE

LEVEL, ALPHA, ERROR, BEFORE, AFTER = 0.05, 0.01, 0.01, 300, 120
NAMES = {
    "minilm-clinc150": "MiniLM, CLINC150",
    "resnet20-cifar10": "ResNet-20, CIFAR-10",
    "roberta-agnews": "RoBERTa, AG News",
    "vit-cifar10": "ViT, CIFAR-10",
}


def draw_acceptance(axis: Any) -> None:
    """The error among the test samples that score highest, and where acceptance draws the line, for each network."""
    headline = json.loads(PAGE.read_text(encoding="utf-8"))
    for (name, title), colour in zip(NAMES.items(), CYCLE, strict=False):
        known, splits = zoo.load(name).test_and_splits()
        held_out = next(iter(splits.values()))
        accept = Acceptance().calibrate(held_out.logits, held_out.target)
        order = scores["log_odds"](known.logits).argsort(descending=True)
        number = torch.arange(1, len(order) + 1)
        error = (known.logits.argmax(-1) != known.target)[order].cumsum(0) / number
        accepted = int(accept.accept(known.logits, ERROR).sum())
        share = accepted / len(order)
        label = f"{title}: {percent(headline[name]['coverage'])} accepted"
        axis.plot(number[50:] / len(order), error[50:], color=colour, lw=1.4, label=label)
        axis.plot([share], [error[accepted - 1]], "o", color=colour, ms=8)
    axis.axhline(ERROR, color=GREY, ls="--", lw=1, label=f"guaranteed error, {ERROR:.0%}")
    axis.set(xlabel="share that is accepted", ylabel="error among these", xlim=(0, 1), ylim=(0, 0.05))
    for side in (axis.xaxis, axis.yaxis):
        side.set_major_formatter(lambda share, _: f"{share:.0%}")


def draw_flags(axis: Any) -> None:
    """The shares that are flagged at one level, for each network."""
    for row, name in enumerate(NAMES):
        held_out, known, unknown = parts(zoo.load(name))
        test = ConformalTest().calibrate(held_out)
        found = [test.flag(x, LEVEL).double().mean() for x in (known, unknown)]
        rejected = paper_flags(known, LEVEL).double().mean()
        label = row == 0
        axis.plot([rejected], [row], "X", color=ORANGE, ms=9, label="test set, the paper's test" if label else None)
        axis.plot([found[0]], [row], "o", color=BLUE, ms=8, label="test set, ConformalTest" if label else None)
        axis.plot(
            [found[1]], [row], "s", color=BLUE, ms=8, mfc="white", label="OOD set, ConformalTest" if label else None
        )
    axis.axvline(LEVEL, color=GREY, ls="--", lw=1, label=f"nominal FPR, {LEVEL:.0%}")
    axis.set(xlim=(0, 1), ylim=(len(NAMES) - 0.5, -0.5), xlabel="share that is flagged", yticks=range(len(NAMES)))
    axis.set_yticklabels(NAMES.values())
    axis.xaxis.set_major_formatter(lambda share, _: f"{share:.0%}")


def draw_streams(axis: Any) -> None:
    """The evidence of a monitor over streams that turn from the test set to the OOD set, and the median delays."""
    headline = json.loads(PAGE.read_text(encoding="utf-8"))
    for (name, title), colour in zip(NAMES.items(), CYCLE, strict=False):
        held_out, known, unknown = parts(zoo.load(name))
        generator = torch.Generator().manual_seed(0)
        stream = torch.cat([draw(known, BEFORE, generator), draw(unknown, AFTER, generator)])
        monitor = DriftMonitor(ConformalTest().calibrate(held_out), ALPHA)
        evidence = monitor.update(stream) / math.log(10)
        at = int(monitor.alarm_at)
        label = f"{title}: median delay {counted(int(headline[name]['delay']), 'sample')}"
        axis.plot(range(1, len(stream) + 1), evidence, color=colour, lw=1.4, label=label)
        axis.plot([at], [evidence[at - 1]], "o", color=colour, ms=6)
    axis.axhline(-math.log10(ALPHA), color=GREY, ls="--", lw=1, label=f"alarm threshold, 1/α = {1 / ALPHA:g}")
    axis.axvline(BEFORE + 0.5, color=GREY, ls=":", lw=1, label="shift to the OOD set")
    axis.set(xlabel="sample of the stream", ylabel="evidence", xlim=(0, BEFORE + AFTER), ylim=(-2, 12))
    axis.yaxis.set_major_formatter(lambda power, _: f"$10^{{{power:.0f}}}$")


def band(rows: int = 400) -> Figure:
    """The band of possible gaps for 4, 10 and 100 classes, with random logits inside it."""
    drawing = Figure(figsize=(10, 3.6), layout="constrained")
    for axis, classes in zip(drawing.subplots(1, 3, sharey=True), (4, 10, 100), strict=True):
        confidence = torch.linspace(1 / classes, 1, 400, dtype=torch.float64)
        odds = (1 - confidence) / confidence
        lowest, highest = forced_gap(odds, classes), dominance_bounds(odds, classes)[1] - confidence
        axis.fill_between(confidence, lowest, highest, color="#56B4E9", alpha=0.5, label="possible")
        axis.plot(confidence, lowest, color="#0072B2", label="forced by confidence")
        generator = torch.Generator().manual_seed(0)
        scale = 6 * torch.rand(rows, 1, generator=generator)
        coins = bag_of_coins(scale * torch.randn(rows, classes, generator=generator))
        axis.scatter(coins.confidence, coins.gap, s=6, color="#D55E00", label="random logits", zorder=3)
        axis.set(title=f"{classes} classes", xlabel="confidence", xlim=(0, 1), ylim=(0, 1))
        axis.grid(alpha=0.3)
    drawing.axes[0].set_ylabel("coherence gap Δ")
    drawing.axes[0].legend(loc="upper right", fontsize=9)
    return drawing


def decisions(*paints: Any) -> Any:
    """Acceptance, flags or alarms on the zoo, side by side."""
    figure, axes = new_axes(len(paints), None)
    figure.set_size_inches(6.25 * len(paints) + (1.5 if len(paints) == 1 else 0), 4.6)
    for axis, paint in zip(axes, paints, strict=True):
        paint(axis)
        axis.grid(alpha=0.3)
        axis.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=2, fontsize=9, frameon=False)
    return figure


def main() -> None:
    """Feed the logits to a metric, to an evaluation and to tests, and draw."""
    entry = zoo.load("resnet20-cifar10")
    metric = BoCMetric()
    metric.update(entry.id.logits, entry.id.target)
    figure, _ = metric.plot()
    figure.savefig(RESULTS / "metric.png", dpi=100)
    drawn = evaluate(entry.id, entry.ood, replicates=100).figures()["roc"].replace("<svg ", ON_WHITE, 1)
    (RESULTS / "roc.svg").write_text(drawn, encoding="utf-8")
    band().savefig(RESULTS / "band.png", dpi=130)
    decisions(draw_flags, draw_streams).savefig(RESULTS / "decisions.png", dpi=90)
    for name, paint in (("accept", draw_acceptance), ("review", draw_flags), ("alarm", draw_streams)):
        decisions(paint).savefig(RESULTS / f"{name}.png", dpi=90)


if __name__ == "__main__":
    main()
