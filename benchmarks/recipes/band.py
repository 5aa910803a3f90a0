"""Draw what confidence alone decides about the gap: `python -m benchmarks.recipes.band` writes results/band.png."""

import torch
from matplotlib.figure import Figure

from benchmarks.harness import RESULTS
from torch_boc.functional import bag_of_coins, dominance_bounds, forced_gap


def figure(rows: int = 400) -> Figure:
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


if __name__ == "__main__":
    RESULTS.mkdir(exist_ok=True)
    figure().savefig(RESULTS / "band.png", dpi=130)
