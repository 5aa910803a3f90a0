"""What a notebook shows of a conformal test."""

import math
import warnings
from typing import Any

from torch import Tensor

from ..core.display import decimals, note, sentence, shown_or_none, table
from ..functional.conformal import place_starts
from ..functional.score import find_score
from ..functional.thresholds import threshold_rank
from ..plots import draw_held_out, notebook_picture

LEVELS = (0.1, 0.05, 0.01)
ENDS = (0.025, 0.975)


def show_test(test: Any) -> str:
    """The held-out samples of a test, its thresholds with the expected rates, and a figure."""
    scoring = test.scoring
    warmed = "" if scoring.temperature == 1 else f" at T = {scoring.temperature:g}"
    called = f"ConformalTest of {scoring.score}{warmed}"
    if not test.calibrated:
        return note(sentence(f"{called}: not calibrated. Call calibrate(logits) with held-out samples first."))
    samples = test.samples.cpu()
    told = f", in {int((samples > 0).sum()):,} groups by {scoring.groups}" if scoring.groups else ""
    said = f"{called}: {int(samples.sum()):,} held-out samples{told}."
    if scoring.groups:
        own = sentence("Each group has thresholds of its own: see threshold(alpha).")
        return note(sentence(said), own, _figure(test, {}))
    rows, lines = [], {}
    for alpha in LEVELS:
        value, row = _threshold(test, alpha)
        rows.append(row)
        if math.isfinite(value):
            lines[f"{100 * alpha:g} %: {decimals(value, 3)}"] = value
    caption = (
        "Samples that score below a threshold are flagged; the rate is that of false alarms, with its 95 % interval"
    )
    return note(sentence(said), table(caption, ["alpha", "threshold", "expected rate"], rows), _figure(test, lines))


def _threshold(test: Any, alpha: float) -> tuple[float, list[str | tuple[str, str]]]:
    name = f"{100 * alpha:g} %"
    if threshold_rank(int(test.samples), alpha) == 0:
        return math.nan, [name, ("–", "too few samples"), "–"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = test.clone().threshold(alpha)  # the test itself would not warn again when it is used
    low, high = (float(found.rate_quantile(end)) for end in ENDS)
    rate = f"{100 * float(found.expected_rate):.2f} %", f"{100 * low:.2f} to {100 * high:.2f} %"
    return float(found.score), [name, decimals(float(found.score)), rate]


@shown_or_none
def _figure(test: Any, lines: dict[str, float]) -> str | None:
    """The scores of the held-out samples; None without matplotlib."""
    values, counts = held_out_scores(test)
    score = find_score(test.scoring.name)
    sign = "" if test.scoring.sign > 0 else "−"
    drawn = draw_held_out(values, counts, lines, f"{sign}{score.axis}")
    return notebook_picture(drawn, f"Histogram of {sign}{score.name} of the held-out samples, with the thresholds.")


def held_out_scores(test: Any) -> tuple[Tensor, Tensor]:
    """The scores at the places where there are held-out samples, and how many there are, on the CPU."""
    counts, sign = test.counts.sum(0).cpu(), test.scoring.sign
    some = counts > 0
    numbers = place_starts(test.scoring.resolution)[some]
    return sign * find_score(test.scoring.name).value(sign * numbers), counts[some].double()
