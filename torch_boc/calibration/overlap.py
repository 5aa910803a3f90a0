"""Do two sets of logits have samples in common?

The same sample may have different numbers in two files: rounded to float16 or to a few decimals, as log-probabilities,
or computed in batches of different sizes. So rows are compared in several ways. Some rows are equal by chance (with few
classes, coarse or saturated logits, or duplicates in the data); a test tells these from samples that were used twice.
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from ..core.precision import accumulator
from ..inference.hashing import hash_rows

# Equal rows are suspicious if they are this many standard errors above chance. Of 4,000 pairs of sets that have nothing
# in common, about one is suspected by mistake.
STANDARD_ERRORS = 3.5
# A set without equal rows might as well have had one such pair. It is added, and counted in both orders.
LUCK = 2.0
FORMATS = (torch.bfloat16, torch.float16)
# Rows that differ by noise are compared by this many projections, cut into cells of this part of the median projection.
PROJECTIONS, CELL = 8, 0.05
# Some facts about a set are found from this many rows.
LOOKED_AT = 10_000
# Rows of two or three classes fall into few cells, and many rows of a cell are not equal. The comparison by cells
# counts only if chance explains at most this part of the rows that share a cell.
LITTLE = 0.05
BLOCK_ELEMENTS = 2**21
# By the kind of the other set: its name, and what is wrong if the test set shares samples with it, with the remedy.
MEANING = {
    "calibration": (
        "the calibration split",
        "what is fitted on it has seen these targets, so its errors here are too low. Fit on other samples.",
    ),
    "held-out": (
        "the held-out samples of",
        "they are compared with themselves, so their p-values are not valid. Calibrate on other samples.",
    ),
    "ood": (
        "the out-of-distribution set",
        "a sample cannot be in both, and the AUROC is too close to 0.5. Leave them out of one of the two sets.",
    ),
    "train": (
        "the training set",
        "accuracy and calibration are partly those of training samples. Test on other samples.",
    ),
}
ODD = -7046029254386353131


class OverlapWarning(UserWarning):
    """Two sets that should have no sample in common have some. Do not trust what was measured on them."""


class Overlap(NamedTuple):
    """Rows that two sets have in common.

    Attributes:
        shared: the number of rows of the first set that are also in the second.
        exact: the number of shared rows that are equal in every digit of float32.
        suspicious: whether there are more shared rows than chance explains, given the equal rows within each set.
    """

    shared: int
    exact: int
    suspicious: bool


def overlap_test(logits: Tensor, others: Tensor, target: Tensor | None = None, their: Tensor | None = None) -> Overlap:
    """How many rows of `logits` are also in `others`, and whether this can be chance.

    Two rows are equal if they are equal in float32, or in the coarser of the two sets' formats (float16, bfloat16), or
    if they differ by a constant and by noise that is small compared with the logits. If both sets have targets, equal
    rows must also have equal targets.

    Let c and d be the numbers of times that a row is in the first and in the second set, t = c + d, and
    w = 1 / (t - 1). By chance, for any two distributions of rows, the inequality of Cauchy and Schwarz bounds the
    equal pairs between the sets by those within the sets:

        E sum w c d  <=  sqrt(E sum w c (c - 1)  *  E sum w d (d - 1))

    The standard error is at most the root of the number of different rows that occur twice or more. Each sample that is
    in both sets adds one to the left side. If no other rows are equal, about 17 such samples are enough to be found. If
    both sets are the same, in the same order, fewer are enough.

    Args:
        logits: (N, C), with -inf for masked classes.
        others: (M, C).
        target: (N,) class indices, or None.
        their: (M,), the targets of `others`, or None.

    >>> logits = torch.randn(100, 10, generator=torch.Generator().manual_seed(0))
    >>> overlap_test(logits, torch.cat([logits[:30].half(), logits[50:] + 1]))
    Overlap(shared=80, exact=0, suspicious=True)
    >>> overlap_test(logits[:50], logits[50:])
    Overlap(shared=0, exact=0, suspicious=False)
    """
    labels = (target, their) if target is not None and their is not None else (None, None)
    exact = shared = torch.zeros(len(logits), dtype=torch.bool)
    suspicious = False
    for place, (ours, theirs, most) in enumerate(_keys(logits.detach().cpu(), others.detach().cpu())):
        found, beyond_chance = _compare(_with_target(ours, labels[0]), _with_target(theirs, labels[1]), most)
        if place == 0:
            exact = shared = found
        if beyond_chance:
            shared, suspicious = shared | found, True
    return Overlap(int(shared.sum()), int(exact.sum()), suspicious)


def overlap_message(kind: str, shared: int, size: int, *, test: str, other: str) -> str:
    """The message that rows are shared: how many, what is wrong then, and what to do.

    Args:
        kind: the kind of the other set: "calibration", "held-out", "ood" or "train".
        shared: the number of rows of the test set that are also in the other set.
        size: the number of rows of the test set.
        test: the name of the test set in the message.
        other: the name of the other set in the message.

    >>> overlap_message("train", 80, 100, test="'id'", other="'train'")
    "80 of the 100 rows of 'id' are also in the training set: accuracy and calibration are partly those of training
    samples. Test on other samples."
    """
    what, meaning = MEANING[kind]
    called = what if kind == "train" else f"{what} {other}"
    return f"{shared:,} of the {size:,} rows of {test} are also in {called}: {meaning}"


def _keys(logits: Tensor, others: Tensor) -> Iterator[tuple[Tensor, Tensor, float]]:
    """Keys for the rows of both sets, several times: equal rows have equal keys.

    The rows are compared in float32, then in the coarser format, then up to noise. The third value says which part of
    the equal keys chance may explain at most, so that the comparison counts.
    """
    yield _hashes(logits, torch.float32), _hashes(others, torch.float32), 1.0
    coarse, coarser = sorted((_format(logits), _format(others)), key=lambda x: torch.finfo(x).eps)
    if coarse != coarser:
        yield _hashes(logits, coarser), _hashes(others, coarser), 1.0
    ours, theirs = _projections(logits), _projections(others)
    some = torch.cat([_some(ours), _some(theirs)]).abs().median(0).values
    cell = CELL * torch.where(some > 0, some, 1.0)
    for shift in (0.0, 0.5):  # a value close to the edge of a cell in one grid is inside of a cell in the other
        ends = [(x / cell + shift).floor().clamp(-(2**30), 2**30).int() for x in (ours, theirs)]
        yield hash_rows(ends[0]), hash_rows(ends[1]), LITTLE


def _with_target(keys: Tensor, target: Tensor | None) -> Tensor:
    return keys if target is None else keys + (target.detach().cpu().long() + 1) * ODD


def _hashes(logits: Tensor, dtype: torch.dtype) -> Tensor:
    # Adding 0 gives -0 and 0 the same bits.
    return torch.cat([hash_rows(block.to(dtype) + 0.0) for block in _blocks(logits)])


def _format(logits: Tensor) -> torch.dtype:
    """The coarsest format that holds the values of some rows and columns without a loss."""
    some = _some(logits)[:, : max(1, BLOCK_ELEMENTS // LOOKED_AT)]
    return next((x for x in FORMATS if torch.equal(some.to(x).to(some.dtype), some)), torch.float32)


def _projections(logits: Tensor) -> Tensor:
    """Each row minus its mean, projected on P directions: (N, P) in float32. A masked class counts as the mean."""
    classes, dtype = logits.shape[1], accumulator(logits.dtype)
    generator = torch.Generator().manual_seed(0)
    directions = torch.randn(classes, min(PROJECTIONS, classes - 1), generator=generator, dtype=torch.float64)
    parts = []
    for block in _blocks(logits):
        present = block.isfinite()
        rows = block.to(dtype).where(present, 0.0)
        rows = (rows - rows.sum(1, keepdim=True) / present.sum(1, keepdim=True)).where(present, 0.0)
        parts.append((rows @ directions.to(dtype)).float())
    return torch.cat(parts)


def _compare(keys: Tensor, others: Tensor, most: float) -> tuple[Tensor, bool]:
    """Which rows of the first set are also in the second, and whether there are more of them than chance explains."""
    distinct, place = torch.cat([keys, others]).unique(return_inverse=True)
    ours, theirs = place[: len(keys)], place[len(keys) :]
    c, d = (torch.bincount(x, minlength=len(distinct)).double() for x in (ours, theirs))
    found = (d > 0)[ours]
    same = len(distinct) > 2 and torch.equal(keys, others)
    return found, same or _beyond_chance(c[c + d > 1], d[c + d > 1], most)


def _beyond_chance(c: Tensor, d: Tensor, most: float) -> bool:
    """The test of `overlap_test` for rows that occur c and d times; chance may explain the part `most` of the pairs."""
    weight = 1 / (c + d - 1)
    between = float((weight * c * d).sum())
    within = [float((weight * x * (x - 1)).sum()) + LUCK for x in (c, d)]
    chance = math.sqrt(within[0] * within[1])
    return between - chance > STANDARD_ERRORS * math.sqrt(len(c)) and chance - LUCK <= most * between


def _blocks(logits: Tensor) -> Iterator[Tensor]:
    size = max(1, BLOCK_ELEMENTS // logits.shape[1])
    return (logits[start : start + size] for start in range(0, len(logits), size))


def _some(rows: Tensor) -> Tensor:
    """At most `LOOKED_AT` rows, at equal distances."""
    return rows[:: -(-len(rows) // LOOKED_AT)]
