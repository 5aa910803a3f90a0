"""The quantities of a token: what they are called, how they are written, and from which values on they are tinted."""

import math
from bisect import bisect_right
from collections.abc import Iterable
from typing import NamedTuple

LEVELS = 8


class Scale(NamedTuple):
    """How a quantity is shown.

    Attributes:
        name: its column.
        title: what people call it.
        meaning: a sentence about it, in which {rivals} stands for the number of classes less one.
        edges: the 7 values at which the 8 levels of tint meet. They rise if a high value is tinted, and fall if a low
            one is.
    """

    name: str
    title: str
    meaning: str
    edges: tuple[float, ...]

    @property
    def rising(self) -> bool:
        """Whether high values are tinted."""
        return self.edges[0] < self.edges[-1]

    def level(self, value: float) -> int:
        """The level of tint of a value, from 0 to 7; -1 if there is none.

        >>> SCALES["rank"].level(1), SCALES["rank"].level(4), SCALES["confidence"].level(0.01)
        (0, 2, 7)
        """
        if math.isnan(value):
            return -1
        sign = 1 if self.rising else -1
        return bisect_right([sign * edge for edge in self.edges], sign * value)


_SCALES = (
    Scale(
        "lost_coins",
        "lost coins",
        "how many of its coin flips, one against each other token, the likeliest token is expected to lose. A token "
        "that is as likely adds 0.5, and one that is hardly likely adds next to nothing.",
        (0.125, 0.25, 0.5, 1, 2, 4, 8),
    ),
    Scale(
        "confidence", "confidence", "the probability of the likeliest token.", (0.98, 0.9, 0.75, 0.6, 0.45, 0.3, 0.15)
    ),
    Scale("entropy", "entropy", "of all probabilities, in nats.", (0.1, 0.5, 1, 2, 3, 4, 5)),
    Scale("rank", "rank", "the place of the emitted token, 1 for the likeliest.", (2, 3, 5, 10, 30, 100, 1000)),
    Scale(
        "log_probability",
        "log-probability",
        "the logarithm of the probability of the emitted token.",
        (-0.1, -0.5, -1, -2, -4, -6, -9),
    ),
    Scale(
        "p_in_distribution",
        "p-value",
        "how many trusted tokens have a score as low; low is unfamiliar.",
        (0.5, 0.2, 0.1, 0.05, 0.02, 0.01, 0.001),
    ),
    Scale(
        "masked",
        "masked",
        "how many tokens a filter had removed before; then confidence and gap are of those that were left.",
        (1, 3, 10, 100, 1000, 10_000, 100_000),
    ),
    Scale("odds", "odds", "the odds against the likeliest token.", (0.02, 0.1, 0.3, 0.7, 1.2, 2.3, 5.7)),
    Scale(
        "concentration",
        "concentration ρ",
        "whether the rest is on few tokens (1) or on all evenly (0).",
        (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9),
    ),
    Scale(
        "gap",
        "coherence gap Δ",
        "1 − confidence − lost coins / {rivals}. Where the last part is small, it is 1 − confidence, and says nothing "
        "of its own.",
        (0.02, 0.1, 0.25, 0.4, 0.55, 0.7, 0.85),
    ),
)
SCALES = {scale.name: scale for scale in _SCALES}
# What a page shows: the first ones always, and those on request if they are asked for.
SHOWN, REQUESTED = tuple(SCALES)[:5], tuple(SCALES)[7:]


def scale_of(name: str, values: Iterable[float]) -> Scale:
    """The scale of a quantity; one that is not known gets levels of equal width over its values."""
    if name in SCALES:
        return SCALES[name]
    known = [value for value in values if math.isfinite(value)] or [0.0, 1.0]
    low, high = min(known), max(known)
    width = (high - low or 1.0) / LEVELS
    return Scale(name, name.replace("_", " "), "a number of the record.", tuple(low + width * i for i in range(1, 8)))


def written(value: float) -> str:
    """A number in at most four digits.

    >>> written(0.98765), written(12345.0), written(3e-7), written(2.0)
    ('0.9877', '12345', '3e-07', '2')
    """
    return f"{value:.0f}" if abs(value) >= 10_000 else f"{value:.4g}"
