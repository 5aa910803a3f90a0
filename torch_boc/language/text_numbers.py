"""The numbers of a report on texts, as plain dicts and as tables of pandas."""

import math
from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

import torch

from .._optional import require
from ..functional.next_tokens import BINS, SCALES, TextTally, add_tallies, empty_text_tally
from ..functional.tallies import BinCounts, BinSums
from ..functional.text_summary import text_summary

# The row of all texts together, if there are several.
ALL = "all"


class TextPart(NamedTuple):
    """What a text, or several, add up to.

    Attributes:
        tally: the counts and sums.
        bytes: the size of what was scored, in UTF-8.
        documents: how many texts there are.
    """

    tally: TextTally
    bytes: int
    documents: int


def check_names(names: Collection[str]) -> None:
    """Raise if a text has the name of the row of all texts together."""
    if len(names) > 1 and ALL in names:
        raise ValueError(
            f"{ALL}: expected another name for a text among several, because the row of all texts together has this "
            "one; rename the text"
        )


def gathered(parts: Iterable[tuple[str, TextPart]]) -> tuple[dict[str, dict[str, float]], TextPart]:
    """The numbers of each part by its name, and all parts as one, on the CPU. No part is kept: each has 25 MB."""
    numbers, total, sizes, documents = {}, empty_text_tally(), 0, 0
    for name, part in parts:
        numbers[name] = part_numbers(part)
        add_tallies(total, part.tally)
        sizes, documents = sizes + part.bytes, documents + part.documents
        del part
    if not numbers:
        raise ValueError("expected at least one text, got none")
    return numbers, TextPart(total, sizes, documents)


def part_numbers(part: TextPart) -> dict[str, float]:
    """The numbers of `text_summary`, and `documents`, `bytes`, `bits_per_token` and `bits_per_byte`.

    Bits per byte are NaN if predictions are invalid, because the bytes of their tokens are not known apart.
    """
    found = text_summary(part.tally)
    bits = found["nll"] / math.log(2)
    sizes = {"documents": part.documents, "bytes": part.bytes}
    known = part.bytes and not found["invalid"]
    per = {"bits_per_token": bits, "bits_per_byte": bits * found["tokens"] / part.bytes if known else math.nan}
    return {"tokens": found.pop("tokens"), **sizes, "perplexity": found.pop("perplexity"), **per, **found}


def text_table(numbers: Mapping[str, Mapping[str, float]]) -> Any:
    """A row for each text, under its name."""
    pandas = require("pandas", purpose="tables need")
    return pandas.DataFrame(list(numbers.values()), index=pandas.Index(list(numbers), name="text"))


def bin_table(part: TextPart) -> Any:
    """A row for each bin of confidence: tokens, and the means of confidence, accuracy, gap, forced and free gap."""
    counts = BinCounts(*part.tally.predictions.bin_counts.cpu())
    sums = BinSums(*part.tally.predictions.bin_sums.cpu())
    forced, free = part.tally.bin_sums.cpu()
    edges = torch.arange(BINS + 1, dtype=torch.float64) / BINS
    columns = {
        "bin_low": edges[:-1],
        "bin_high": edges[1:],
        "tokens": counts.samples,
        "confidence": sums.confidence / counts.samples,
        "accuracy": counts.correct / counts.samples,
        "gap": sums.gap / counts.samples,
        "forced_gap": forced / counts.samples,
        "free_gap": free / counts.samples,
    }
    return require("pandas", purpose="tables need").DataFrame({name: x.tolist() for name, x in columns.items()})


def separation_table(numbers: Mapping[str, float]) -> Any:
    """A row for each score: how well it tells right from wrong next tokens, overall and at equal confidence."""
    rows = [
        {
            "score": name,
            "auroc": numbers[f"auroc_{name}"],
            "at_equal_confidence": numbers[f"auroc_{name}_at_equal_confidence"],
            "error": numbers[f"auroc_{name}_error"],
        }
        for name in SCALES
    ]
    return require("pandas", purpose="tables need").DataFrame(rows)
