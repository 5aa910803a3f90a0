"""How the figures of a report look: sizes, grids, legends and names."""

from typing import Any

from ..plots import new_axes

PANEL = (4.8, 3.7)
TEXT = 9


def panels(count: int, size: tuple[float, float] = PANEL) -> tuple[Any, list[Any]]:
    """A new figure with `count` axes, at most three in a row, and none alone in the last if it can be helped."""
    columns = 2 if count in (2, 4) else min(count, 3)
    figure, (first,) = new_axes(1, None)
    first.remove()
    figure.get_layout_engine().set(w_pad=0.08, h_pad=0.08)
    rows = -(-count // columns)
    figure.set_size_inches(size[0] * columns, size[1] * rows)
    axes = list(figure.subplots(rows, columns, squeeze=False).flat)
    for spare in axes[count:]:
        spare.remove()
    return figure, axes[:count]


def finish(figure: Any, axes: list[Any], legend: str | None = "best", **options: Any) -> Any:
    """Grid, type sizes and legends."""
    for axis in axes:
        axis.grid(alpha=0.25)
        axis.set_axisbelow(True)
        axis.spines[["top", "right"]].set_visible(False)
        axis.tick_params(labelsize=TEXT)
        axis.xaxis.label.set_size(TEXT + 1)
        axis.yaxis.label.set_size(TEXT + 1)
        if legend:
            axis.legend(fontsize=TEXT, title_fontsize=TEXT, loc=legend, framealpha=0.85, edgecolor="none", **options)
    return figure


def plain(name: str) -> str:
    """A user's name as matplotlib should print it: no mathematics, shown despite a leading underscore, not too long."""
    short = name if len(name) <= 32 else f"{name[:31]}…"
    return (" " if name.startswith("_") else "") + short.replace("$", r"\$")
