"""What `torch-boc screen` prints: JSON, or a short table."""

import json as json_format
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from ..functional.conformal import Threshold
from ..report.words import percent, short_percent
from .console import put, screen
from .held_out import Ready
from .output import list_files
from .spelling import spell_json

# The range of the false-alarm rate leaves out this share at each end.
TAIL = 0.05


class Screened(NamedTuple):
    """A set that was tested.

    Attributes:
        name: the name of the set.
        columns: prediction, confidence, p_in_distribution, review, and discovery if it was asked for.
        paper: which samples the paper's test rejects.
    """

    name: str
    columns: dict[str, Tensor]
    paper: Tensor

    def counts(self) -> dict[str, Any]:
        """How many samples there are, and how many of them are flagged."""
        found = {"name": self.name, "samples": len(self.paper), "review": int(self.columns["review"].sum())}
        if "discovery" in self.columns:
            found["discoveries"] = int(self.columns["discovery"].sum())
        return {**found, "paper": int(self.paper.sum())}


def content_of(
    ready: Ready, threshold: Threshold, found: list[Screened], *, out: Path | None, **asked: float | None
) -> dict[str, Any]:
    """Everything that is printed, as JSON."""
    chances = {"rate_low": TAIL, "rate_high": 1 - TAIL}
    grouped = ready.test.scoring.groups is not None  # a range for each of many groups would take long
    return {
        "held_out": ready.name,
        "held_out_samples": int(ready.test.samples.sum()),
        **ready.test.scoring._asdict(),
        **asked,
        "threshold": threshold.score.tolist(),
        "group_samples": threshold.samples.tolist() if grouped else None,
        "expected_rate": threshold.expected_rate.tolist(),
        **{name: None if grouped else threshold.rate_quantile(x).tolist() for name, x in chances.items()},
        "sets": [x.counts() for x in found],
        "output": None if out is None else str(out),
    }


def print_screened(content: dict[str, Any], paths: list[Path], *, json: bool) -> None:
    """Print the content: as JSON, or as a short table and a list of the files."""
    console = screen()
    if json:
        from ..report.report import strict

        text = json_format.dumps(strict(content), allow_nan=False, ensure_ascii=False) + "\n"
        console.file.write(spell_json(text, console.encoding))
        return
    for title, text in _lines(content):
        put(console, f"{title:<30} {text}" if text else title, "" if text else "bold", soft_wrap=True)
    list_files(paths, console)


def _lines(content: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """The lines of the table: titles and values."""
    yield f"Tested against {content['held_out_samples']:,} held-out samples of {content['held_out']}", ""
    tempered = f" at temperature {content['temperature']:g}" if content["temperature"] != 1 else ""
    yield "score", f"{content['score']}{tempered}"
    sure = f", kept with a chance of {percent(content['confidence'])}" if content["confidence"] else ""
    yield "level", f"{short_percent(content['alpha'])}{sure}"
    yield from _group_lines(content) if content["groups"] else _threshold_lines(content)
    for part in content["sets"]:
        yield f"\n{part['name']}: {part['samples']:,} samples", ""
        yield "flagged for review", _share(part["review"], part["samples"])
        if content["fdr"] is not None:
            yield f"discoveries at FDR {percent(content['fdr'])}", _discoveries(content, part)
        yield "the paper's test would flag", _share(part["paper"], part["samples"])


def _threshold_lines(content: dict[str, Any]) -> Iterator[tuple[str, str]]:
    low, high = percent(content["rate_low"]), percent(content["rate_high"])
    yield "flagged if the score is below", f"{content['threshold']:.4g}"
    yield (
        "expected false alarms",
        f"at most {percent(content['expected_rate'])} (with a chance of 90 %: {low} to {high})",
    )
    yield "smallest p-value possible", f"{1 / (content['held_out_samples'] + 1):.2g}"


def _group_lines(content: dict[str, Any]) -> Iterator[tuple[str, str]]:
    sizes = [size for size in content["group_samples"] if size]
    yield (
        f"groups by {content['groups']}",
        f"{len(sizes)} with held-out samples, {min(sizes):,} to {max(sizes):,} in each",
    )
    yield "expected false alarms", f"at most {percent(max(content['expected_rate']))} in each group"


def _share(some: int, total: int) -> str:
    return f"{some:,} ({percent(some / total)})"


def _discoveries(content: dict[str, Any], part: dict[str, Any]) -> str:
    """How many were found. If none were, how many it takes, because no p-value is below 1 / (n + 1)."""
    found, total = part["discoveries"], part["samples"]
    largest = max(content["group_samples"] or [content["held_out_samples"]])
    needed = math.ceil(total / (content["fdr"] * (largest + 1)))
    few = f"; it takes {needed:,} or more at once, with so few held-out samples" if needed > 1 and not found else ""
    return f"{_share(found, total)}{few}"
