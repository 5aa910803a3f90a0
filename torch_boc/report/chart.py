"""Small charts as SVG, in the text colour of the page. Each dot has a tooltip; the legend is above the chart."""

import math
from collections.abc import Callable, Iterable, Sequence
from html import escape
from itertools import groupby
from pathlib import Path

from ..plots import CYCLE

Ends = tuple[float, float]
UNIT = (0.0, 1.0)
# Figures show at most as many sets as there are colours; the tables have all of them.
SETS = len(CYCLE) - 1
WIDTH, LEFT, RIGHT, BELOW, LINE = 470, 52, 18, 46, 18
CHARACTER = 6.6  # the mean width of a letter
OVERHANG = 6  # of the last number below the horizontal axis, which may be "100 %"
FAINT = 'stroke="currentColor" stroke-opacity=".14"'
# The style of every page, light and dark.
PAGE_STYLE = Path(__file__).with_name("templates").joinpath("page.css").read_text(encoding="utf-8")


class Chart:
    """Axes for lines, bands, steps and dots. Values beyond the ends of an axis are drawn at its end.

    Args:
        xlabel: the name of the values on the horizontal axis.
        ylabel: stands above the vertical axis; None leaves no room for it.
        x: the ends of the horizontal axis.
        y: the ends of the vertical axis. If the first is the larger one, it has no numbers.
        percent: the axes, among "x" and "y", that show shares as percentages.
        height: in units of which the width has `width` + 6.
        width: fewer units make larger letters.
        xtick: the text of a number on the horizontal axis, which then shows whole numbers only.
    """

    def __init__(
        self,
        xlabel: str,
        ylabel: str | None,
        x: Ends = UNIT,
        y: Ends = UNIT,
        *,
        percent: str = "xy",
        height: int = 300,
        width: int = WIDTH,
        xtick: Callable[[float], str] | None = None,
    ) -> None:
        self.labels, self.ends, self.percent, self.height = (xlabel, ylabel), (x, y), percent, height
        self.width, self.xtick = width, xtick
        self._drawn: list[str] = []
        self._legend: list[str] = []
        self._room = [float(LEFT), 0.0]  # where the next name in the legend begins

    def position(self, x: float, y: float) -> tuple[float, float]:
        """Where a point is in the drawing."""
        shares = []
        for value, (low, high) in zip((x, y), self.ends, strict=True):
            shares.append(min(1.0, max(0.0, (value - low) / (high - low))))
        return LEFT + shares[0] * (self.width - LEFT - RIGHT), (1 - shares[1]) * (self.height - BELOW)

    def line(self, xs: Iterable[float], ys: Iterable[float], colour: str, name: str = "", style: str = "") -> None:
        """A line through points, with a gap at NaN, and its name in the legend. `style` are attributes of the path."""
        self._path(xs, ys, f'fill="none" stroke="{colour}" stroke-width="2" {style}')
        if name:
            self.name(name, f'<path d="M0 -4h16" stroke="{colour}" stroke-width="2" {style}/>')

    def band(self, xs: Sequence[float], low: Sequence[float], high: Sequence[float], colour: str, name: str) -> None:
        """The area between two lines."""
        self._path([*xs, *reversed(xs)], [*low, *reversed(high)], f'fill="{colour}" fill-opacity=".3"')
        self.name(name, f'<path d="M0 -9h14v10h-14z" fill="{colour}" fill-opacity=".3"/>')

    def _path(self, xs: Iterable[float], ys: Iterable[float], style: str) -> None:
        drawn = ""
        for finite, run in groupby(zip(xs, ys, strict=False), lambda point: math.isfinite(sum(point))):
            points = " ".join(f"{x:.1f},{y:.1f}" for x, y in (self.position(*point) for point in run if finite))
            drawn += f"M{points}" if points else ""
        self._drawn.append(f'<path d="{drawn}" {style}/>')

    def dot(self, x: float, y: float, colour: str, tooltip: str, ends: Ends | None = None) -> None:
        """A dot with its tooltip and its interval."""
        across, up = self.position(x, y)
        if ends is not None and not math.isnan(ends[0]):
            self._path((x, x), ends, f'stroke="{colour}" stroke-width="3" stroke-opacity=".35"')
        title = f"<title>{escape(tooltip)}</title>"
        self._drawn.append(f'<circle cx="{across:.1f}" cy="{up:.1f}" r="4" fill="{colour}">{title}</circle>')

    def rule(self, x: Sequence[float], y: Sequence[float], name: str = "", marks: str = "") -> None:
        """A dotted line between two points, and its name above its beginning. `marks` are attributes of the line."""
        self._path(x, y, f'stroke="currentColor" stroke-opacity=".6" stroke-dasharray="3 4" {marks}')
        across, up = self.position(x[0], y[0])
        self._drawn.append(text(name, across + 4, up - 6))

    def bar(self, y: float, ends: Ends, colour: str, tooltip: str, label: str) -> None:
        """A bar from the first end to a dot at the other, and a label to the left of it."""
        self._path(ends, (y, y), f'stroke="{colour}" stroke-width="8" stroke-opacity=".45"')
        self.dot(ends[1], y, colour, tooltip)
        self._drawn.append(text(label, LEFT - 7, self.position(0, y)[1] + 4, "end"))

    def row_label(self, y: float, label: str) -> None:
        """A label at the left edge."""
        self._drawn.append(text(label, 0, self.position(0, y)[1] + 4))

    def name(self, name: str, sign: str) -> None:
        """A name in the legend, next to its sign."""
        longest = int((self.width - LEFT - 34) / CHARACTER)
        short = name if len(name) <= longest else f"{name[: longest - 1]}…"
        width = 34 + CHARACTER * len(short)
        if self._room[0] + width > self.width and self._room[0] > LEFT:
            self._room = [LEFT, self._room[1] + LINE]
        across, down = self._room
        self._legend.append(f'<g transform="translate({across:.0f} {down + 12:.0f})">{sign}{text(short, 21, 0)}</g>')
        self._room[0] += width

    def svg(self, alt: str) -> str:
        """The drawing. `alt` says what it shows to people who cannot see it."""
        (left, right), (bottom, top) = self.ends
        drawn = []
        for value in ticks(left, right):
            if self.xtick is None or value % 1 == 0:
                across, up = self.position(value, bottom)
                drawn.append(f'<path d="M{across:.1f} 0V{up:.1f}" {FAINT}/>')
                drawn.append(
                    text(self.xtick(value) if self.xtick else self._tick("x", value), across, up + 17, "middle")
                )
        for value in ticks(bottom, top) if bottom < top else ():
            across, up = self.position(left, value)
            drawn.append(f'<path d="M{across:.1f} {up:.1f}H{self.width - RIGHT}" {FAINT}/>')
            drawn.append(text(self._tick("y", value), across - 7, up + 4, "end"))
        drawn.append(text(self.labels[0], (LEFT + self.width - RIGHT) / 2, self.height - 10, "middle"))
        above = (self._room[1] + LINE + 6 if self._legend else 0) + (0 if self.labels[1] is None else LINE) + 6
        names = "".join([*self._legend, text(self.labels[1] or "", 0, above - 10)])
        box = f"0 0 {self.width + OVERHANG} {above + self.height:.0f}"
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{box}" role="img" '
            f'aria-label="{escape(alt)}" font-size="12" font-family="system-ui, sans-serif">{names}'
            f'<g transform="translate(0 {above:.0f})">{"".join(drawn + self._drawn)}</g></svg>'
        )

    def _tick(self, axis: str, value: float) -> str:
        return f"{100 * value:g} %" if axis in self.percent else f"{value:,g}"


def text(words: str, x: float, y: float, anchor: str = "start") -> str:
    """Words in the colour of the page."""
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
    return f'<text {place} fill="currentColor">{escape(words)}</text>' if words else ""


def ticks(low: float, high: float) -> list[float]:
    """About five round numbers between both ends.

    >>> ticks(0.0, 1.0), ticks(0.0, 0.3), ticks(0, 500)
    ([0.0, 0.2, 0.4, 0.6, 0.8, 1.0], [0.0, 0.1, 0.2, 0.3], [0.0, 100.0, 200.0, 300.0, 400.0, 500.0])
    """
    rough = (high - low) / 5
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * x for x in (1, 2, 2.5, 5, 10) if power * x >= rough * (1 - 1e-9))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(i * step, 10) for i in range(first, last + 1)]
