"""The strip of a quantity along the text: paths of an SVG whose width is the number of tokens."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from .scales import Scale, written

WINDOW, HEIGHT = 16, 100


class Strip(NamedTuple):
    """Paths for a view box of one unit for each token and a height of 100.

    Attributes:
        area: the outline of the quantity, filled below.
        mean: the line of its running mean.
        marks: heights of the axis from the top, in per cent, and the values there.
        alt: what a screen reader says instead.
        width: the number of tokens, at least 1.
    """

    area: str
    mean: str
    marks: list[tuple[float, str]]
    alt: str
    width: int = 1


def strip_of(values: Sequence[float], scale: Scale) -> Strip:
    """The strip of the values; tokens without one have no height."""
    heights = [0 if math.isnan(x) else _height(x, scale) for x in values]
    area = f"M0,{HEIGHT}" + "".join(f"V{HEIGHT - height}h1" for height in heights) + f"V{HEIGHT}Z"
    marks = [(100 * (1 - i / 8), written(scale.edges[i - 1])) for i in (2, 4, 6)]
    return Strip(area, _line(running_mean(values), scale), marks, _alt(values, scale), max(1, len(values)))


def running_mean(values: Sequence[float]) -> list[float]:
    """The mean of the last 16 values at each place, those without a number left out.

    >>> running_mean([1.0, 3.0, math.nan])
    [1.0, 2.0, 2.0]
    """
    means = []
    for end in range(1, len(values) + 1):
        known = [x for x in values[max(0, end - WINDOW) : end] if not math.isnan(x)]
        means.append(sum(known) / len(known) if known else math.nan)
    return means


def _height(value: float, scale: Scale) -> int:
    return math.floor(HEIGHT * scale.height(value) + 0.5)  # as in the script of the page


def _line(means: Sequence[float], scale: Scale) -> str:
    """A line through the middle of each token, which begins anew after a gap."""
    path, open_ = [], False
    for place, mean in enumerate(means):
        if math.isnan(mean):
            open_ = False
            continue
        path.append(f"{'L' if open_ else 'M'}{place}.5,{HEIGHT - _height(mean, scale)}")
        open_ = True
    return "".join(path)


def _alt(values: Sequence[float], scale: Scale) -> str:
    known = sorted(x for x in values if not math.isnan(x))
    if not known:
        return f"No token has a number of {scale.title}."
    low, middle, high = (written(x) for x in (known[0], known[len(known) // 2], known[-1]))
    return f"{scale.title} along the text: from {low} to {high}, median {middle}."
