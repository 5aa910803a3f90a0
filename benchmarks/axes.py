"""How the figures of the benchmarks look: open axes and grey text on no background, for light and dark pages."""

from typing import Any

from matplotlib.colors import to_rgb

from torch_boc.plots import new_axes

PANEL = (4.8, 3.7)
FONT_SIZE = 9
INK = "#737b86"  # a grey with the same contrast on white and on the dark of the site


def panels(count: int, size: tuple[float, float] = PANEL) -> tuple[Any, list[Any]]:
    """A new figure with `count` axes. A row has at most three of them, or two if there are two or four in all."""
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
    """Set the grid, the sizes of the type and the legends; returns the figure.

    Args:
        figure: the figure.
        axes: its axes.
        legend: the place of the legend in each of the axes; None for no legend.
        options: further options of the legend.
    """
    sizes = {"fontsize": FONT_SIZE, "title_fontsize": FONT_SIZE}
    figure.patch.set_alpha(0)
    for axis in axes:
        axis.patch.set_alpha(0)
        axis.grid(color=INK, alpha=0.2)
        axis.set_axisbelow(True)
        axis.spines[["top", "right"]].set_visible(False)
        axis.spines[["left", "bottom"]].set_color(INK)
        axis.tick_params(labelsize=FONT_SIZE, colors=INK)
        for text in (axis.xaxis.label, axis.yaxis.label, axis.title):
            text.set(size=FONT_SIZE + 1, color=INK)
        if legend:
            title = axis.get_legend().get_title().get_text() if axis.get_legend() else None
            written = axis.legend(loc=legend, labelcolor="linecolor", frameon=False, title=title, **sizes, **options)
            written.get_title().set_color(INK)
            for text in written.get_texts():
                text.set_color(to_rgb(text.get_color()))  # even that of a pale area
    return figure


def write_on(axis: Any, x: float, y: float, text: str, colour: str = INK, **options: Any) -> None:
    """The name of a line, in its colour, next to a point of it."""
    options = {"xytext": (4, 4), "textcoords": "offset points", "fontsize": FONT_SIZE, **options}
    axis.annotate(text, (x, y), color=colour, **options)


def figure_text(name: str) -> str:
    """A user's name for a figure: dollar signs are escaped, and a long name is cut.

    matplotlib would not show a name that begins with an underscore, so a space is put before it.
    """
    short = name if len(name) <= 32 else f"{name[:31]}…"
    return (" " if name.startswith("_") else "") + short.replace("$", r"\$")
