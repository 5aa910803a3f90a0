"""The figures of a report on texts."""

from typing import Any

from ..plots import BLUE, GREY, ORANGE, SKY
from ..report.axes import PANEL, finish, panels

# Bins of the histogram of lost coins that make a bar.
TO_A_BAR = 32


def reliability(bins: Any) -> Any:
    """Accuracy against confidence in bins, and how many tokens each bin has."""
    figure, (axis,) = panels(1, PANEL)
    some = bins[bins["tokens"] > 0]
    share = some["tokens"] / some["tokens"].sum()
    width = float(bins["bin_high"].iloc[0]) * 0.9
    middle = (some["bin_low"] + some["bin_high"]) / 2
    axis.bar(middle, share, width, color=SKY, alpha=0.4, label="share of tokens")
    axis.plot([0, 1], [0, 1], color=GREY, linewidth=1, linestyle=":", label="calibrated")
    axis.plot(some["confidence"], some["accuracy"], "o-", color=BLUE, markersize=4, label="accuracy")
    axis.set(xlim=(0, 1), ylim=(0, 1.02), xlabel="confidence in the next token", ylabel="accuracy, or share of tokens")
    return finish(figure, [axis], "upper left")


def lost_coins(edges: list[float], counts: list[int]) -> Any:
    """The histogram of lost coins on a logarithmic scale."""
    figure, (axis,) = panels(1, PANEL)
    bars = [sum(counts[i : i + TO_A_BAR]) / max(1, sum(counts)) for i in range(0, len(counts), TO_A_BAR)]
    ends = edges[::TO_A_BAR]
    axis.stairs(bars, ends, fill=True, color=BLUE, alpha=0.6)
    present = [i for i, share in enumerate(bars) if share > 0] or [0, len(bars) - 1]
    axis.set(xscale="log", xlabel="expected lost coins of the likeliest token", ylabel="share of tokens")
    axis.set_xlim(ends[present[0]], ends[present[-1] + 1])
    axis.set_ylim(bottom=0)
    return finish(figure, [axis], None)


def gap(bins: Any) -> Any:
    """The gap and its free part by confidence; the free part is small, so that the scale is logarithmic."""
    figure, (axis,) = panels(1, PANEL)
    some = bins[bins["tokens"] > 0]
    axis.plot(some["confidence"], some["gap"], "o-", color=BLUE, markersize=4, label="gap Δ")
    axis.plot(some["confidence"], some["free_gap"], "s--", color=ORANGE, markersize=4, label="its free part")
    axis.set(yscale="log", xlim=(0, 1), xlabel="confidence in the next token", ylabel="mean of the bin")
    return finish(figure, [axis], "best")
