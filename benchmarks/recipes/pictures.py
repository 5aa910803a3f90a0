"""Draw pictures of the guide from logits that come with the package: `python -m benchmarks.recipes.pictures`.

Writes results/metric.png (the plots of `BoCMetric`), results/roc.svg (a figure of the report), results/accept.png,
review.png and alarm.png with the numbers of results/headline.json, and results/band.png: the part of the gap that
confidence forces.
"""

import json
import math
from collections.abc import Sequence
from typing import Any

import torch
from matplotlib.figure import Figure

from benchmarks.axes import INK, finish, panels, write_on
from benchmarks.decisions import draw, paper_flags, parts
from benchmarks.harness import RESULTS
from benchmarks.headline import PAGE
from torch_boc import Acceptance, BoCMetric, ConformalTest, DriftMonitor, zoo
from torch_boc.data.atomic import write
from torch_boc.evaluation import evaluate
from torch_boc.functional import bag_of_coins, dominance_bounds, forced_gap, scores
from torch_boc.plots import BLUE, CYCLE, ORANGE, SKY, image
from torch_boc.report.format import counted, percent
from torch_boc.report.report import ON_WHITE

LEVEL, ALPHA, ERROR = 0.05, 0.01, 0.01
STREAMS, BEFORE, AFTER = 100, 300, 60
# The error at which the curve of each model has its name.
HEIGHTS = {"resnet20-cifar10": 0.02, "roberta-agnews": 0.03, "vit-cifar10": 0.025}
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
        test_set, splits = zoo.load(name).test_and_splits()
        held_out = next(iter(splits.values()))
        accept = Acceptance().calibrate(held_out.logits, held_out.target)
        order = scores["log_odds"](test_set.logits).argsort(descending=True)
        number = torch.arange(1, len(order) + 1)
        error = (test_set.logits.argmax(-1) != test_set.target)[order].cumsum(0) / number
        accepted = int(accept.accept(test_set.logits, ERROR).sum())
        share = accepted / len(order)
        axis.plot(number[50:] / len(order), error[50:], color=colour, lw=1.6)
        axis.plot([share], [error[accepted - 1]], "o", color=colour, ms=8)
        label = f"{title.split(',')[0]}: {percent(headline[name]['coverage'])}"
        x = float(number[error < HEIGHTS[name]].max()) / len(order) if name in HEIGHTS else 1.0
        write_on(axis, x, HEIGHTS.get(name, 0.001), label, colour, xytext=(-6, -3), ha="right")
    axis.axhspan(ERROR, 0.04, facecolor="none", edgecolor=INK, alpha=0.18, hatch="//", lw=0)
    axis.axhline(ERROR, color=INK, ls="--", lw=1)
    write_on(axis, 0, ERROR, f"guaranteed error ≤ {ERROR:.0%}", ha="left")
    axis.set(xlabel="coverage: share of accepted predictions", ylabel="error of these", xlim=(0, 1), ylim=(0, 0.04))
    axis.set_yticks([0, 0.01, 0.02, 0.03, 0.04])
    for side in (axis.xaxis, axis.yaxis):
        side.set_major_formatter(lambda share, _: f"{share:.0%}")


def draw_flags(axis: Any) -> None:
    """The shares that are flagged at one level, for each network."""
    for row, name in enumerate(NAMES):
        held_out, test_set, ood = parts(zoo.load(name))
        test = ConformalTest().calibrate(held_out)
        shares = [test.flag(x, LEVEL).double().mean() for x in (test_set, ood)]
        rejected = paper_flags(test_set, LEVEL).double().mean()
        axis.plot([rejected], [row], "X", color=ORANGE, ms=9)
        axis.plot([shares[0]], [row], "o", color=BLUE, ms=8)
        axis.plot([shares[1]], [row], "s", color=BLUE, ms=8, mfc="none", mew=1.6)
        marks = rejected, shares[0], shares[1]
    axis.axvline(LEVEL, color=INK, ls="--", lw=1)
    write_on(axis, LEVEL, -0.5, f"nominal FPR {LEVEL:.0%}", va="top", xytext=(4, 2))
    names = ("FPR of the paper's test", ORANGE, "left", -15), ("FPR", BLUE, "right", -15)
    names += (("detection rate of OOD samples", BLUE, "left", 10),)
    for x, (text, colour, side, above) in zip(marks, names, strict=True):
        write_on(axis, float(x), row, text, colour, xytext=(0, above), ha=side)
    axis.set(xlim=(0, 1), ylim=(len(NAMES) - 0.5, -0.5), xlabel="share of samples flagged", yticks=range(len(NAMES)))
    axis.set_yticklabels(NAMES.values())
    axis.xaxis.set_major_formatter(lambda share, _: f"{share:.0%}")


def draw_streams(axes: Sequence[Any]) -> None:
    """The wealth of a monitor over streams that shift from the test set to the OOD set: median and band, by model."""
    headline = json.loads(PAGE.read_text(encoding="utf-8"))
    for (name, title), colour, axis in zip(NAMES.items(), CYCLE, axes, strict=False):
        held_out, test_set, ood = parts(zoo.load(name))
        test = ConformalTest().calibrate(held_out)
        paths = []
        for seed in range(STREAMS):
            generator = torch.Generator().manual_seed(seed)
            stream = torch.cat([draw(test_set, BEFORE, generator), draw(ood, AFTER, generator)])
            paths.append(DriftMonitor(test, ALPHA).update(stream) / math.log(10))
        low, median, high = torch.stack(paths).quantile(torch.tensor([0.1, 0.5, 0.9], dtype=paths[0].dtype), dim=0)
        x = torch.arange(1 - BEFORE, AFTER + 1)
        axis.fill_between(x, low, high, color=colour, alpha=0.25, lw=0)
        axis.plot(x, median, color=colour, lw=1.6)
        axis.axhline(-math.log10(ALPHA), color=INK, ls="--", lw=1)
        axis.axvline(0.5, color=INK, ls=":", lw=1)
        delay = counted(int(headline[name]["delay"]), "sample")
        axis.set(title=f"{title}: median delay {delay}", xlim=(-60, 60), ylim=(-2, 10))
        axis.yaxis.set_major_formatter(lambda power, _: f"$10^{{{power:.0f}}}$")
    write_on(axes[0], -60, -math.log10(ALPHA), f"alarm threshold 1/α = {1 / ALPHA:g}")
    write_on(axes[0], 0, -2, "shift to OOD")
    write_on(axes[0], -60, 8, "median and 10–90 %\nof 100 streams")
    for axis in axes[2:]:
        axis.set_xlabel("samples after the shift")
    for axis in axes[::2]:
        axis.set_ylabel("wealth")


def band(rows: int = 400) -> Figure:
    """The band of possible gaps for 4, 10 and 100 classes, with random logits inside it."""
    drawing, axes = panels(3, (2.7, 2.9))
    for axis, classes in zip(axes, (4, 10, 100), strict=True):
        confidence = torch.linspace(1 / classes, 1, 400, dtype=torch.float64)
        odds = (1 - confidence) / confidence
        lowest, highest = forced_gap(odds, classes), dominance_bounds(odds, classes)[1] - confidence
        axis.fill_between(confidence, lowest, highest, color=SKY, alpha=0.4)
        axis.plot(confidence, lowest, color=BLUE)
        generator = torch.Generator().manual_seed(0)
        scale = 6 * torch.rand(rows, 1, generator=generator)
        coins = bag_of_coins(scale * torch.randn(rows, classes, generator=generator))
        axis.scatter(coins.confidence, coins.gap, s=5, color=ORANGE, zorder=3)
        axis.set(title=f"{classes} classes", xlabel="confidence", xlim=(0, 1), ylim=(0, 1))
    axes[0].set_ylabel("coherence gap Δ")
    write_on(axes[0], 0.55, 0.5, "possible gaps", SKY)
    write_on(axes[0], 0.15, 0.02, "forced by\nconfidence", BLUE)
    write_on(axes[0], 0.55, 0.42, "random logits", ORANGE)
    return finish(drawing, axes, None)


def main() -> None:
    """Feed the logits to a metric, to an evaluation and to tests, and draw."""
    entry = zoo.load("resnet20-cifar10")
    metric = BoCMetric()
    metric.update(entry.id.logits, entry.id.target)
    figure, axes = metric.plot()
    figure.set_size_inches(9.6, 3.4)
    write(RESULTS / "metric.png", image(finish(figure, list(axes)), "png"))
    drawn = evaluate(entry.id, entry.ood, replicates=100).figures()["roc"].replace("<svg ", ON_WHITE, 1)
    (RESULTS / "roc.svg").write_text(drawn, encoding="utf-8")
    write(RESULTS / "band.png", image(band(), "png"))
    for name, paint in (("accept", draw_acceptance), ("review", draw_flags)):
        figure, axes = panels(1, (7.2, 4))
        paint(axes[0])
        write(RESULTS / f"{name}.png", image(finish(figure, axes, None), "png"))
    figure, axes = panels(4, (4.2, 2.7))
    draw_streams(axes)
    write(RESULTS / "alarm.png", image(finish(figure, axes, None), "png"))


if __name__ == "__main__":
    main()
