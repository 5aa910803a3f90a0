"""Do two sets of logits have samples in common?

The same sample may stand in two files as other numbers: rounded to float16 or to a few decimals, as log-probabilities,
or computed twice in batches of another size. So rows are compared in several ways, and coincidences that chance makes
(few classes, coarse or saturated logits, duplicates in the data) are told from samples that were used twice.
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from ..core.precision import accumulator
from ..inference.hashing import hash_rows

# More than so many standard errors above chance: once in 4,000 pairs of sets that have nothing in common.
STANDARD_ERRORS = 3.5
# Pairs of equal rows that a set might as well have had, where it has none by luck: one, counted in both orders.
LUCK = 2.0
FORMATS = (torch.bfloat16, torch.float16)
# Of rows that are equal but for noise: projections, each cut into cells of this part of its usual size.
PROJECTIONS, CELL = 8, 0.05
LOOKED_AT = 10_000
# Rows of two or three classes fall into few cells, where many are together that are not equal: these say nothing.
LITTLE = 0.05
BLOCK_ELEMENTS = 2**21
# What the numbers are worth if the test set shares samples with another, and the remedy, by what the other is for.
MEANING = {
    "calibration": (
        "the calibration split",
        "what is fitted on it has seen these answers, and its errors here are too low. Fit on other samples.",
    ),
    "ood": (
        "the out-of-distribution set",
        "a sample cannot be both, and the AUROC is too close to 0.5. Leave them out of one of the two.",
    ),
    "train": (
        "the training set",
        "accuracy and calibration are partly those of training samples. Test on other samples.",
    ),
}
ODD = -7046029254386353131


class OverlapWarning(UserWarning):
    """Two sets that should have no sample in common have some: what was measured on them is not to be trusted."""


class Overlap(NamedTuple):
    """Rows that two sets have in common.

    Attributes:
        shared: rows of the first set that stand in the second as well.
        exact: those of them that are equal to the last digit of float32.
        suspicious: more of them than equal rows within the sets explain.
    """

    shared: int
    exact: int
    suspicious: bool


def overlap_test(logits: Tensor, others: Tensor, target: Tensor | None = None, their: Tensor | None = None) -> Overlap:
    """How many rows of `logits` stand in `others` as well, and whether that can be chance.

    Rows are equal if they are so in float32, or in the coarser of the two sets' formats (float16, bfloat16), or if they
    differ by a constant and by noise that is small beside the logits. Where both sets have targets, equal rows have
    equal targets.

    Let c and d be how often a row stands in the first and in the second set, t = c + d, w = 1 / (t - 1). Under chance,
    whatever the two distributions of rows are, Cauchy and Schwarz bound the coincidences between the sets by those
    within them:

        E sum w c d  <=  sqrt(E sum w c (c - 1)  *  E sum w d (d - 1))

    with a standard error of at most the root of the number of different rows that occur twice or more. Samples in both
    sets each add one to the left side. About 17 of them are found if no other rows are equal; fewer are found if they
    are all of both sets, in the same order.

    Args:
        logits: (N, C), -inf where a class is masked.
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
    """How many rows are shared, what that does, and what to do.

    Args:
        kind: what the other set is for: "calibration", "ood" or "train".
        shared: rows of the test set that stand in the other set as well.
        size: rows of the test set.
        test: how the message calls the test set.
        other: how it calls the other set.

    >>> overlap_message("train", 80, 100, test="'id'", other="'train'")
    "80 of the 100 rows of 'id' are also in the training set: accuracy and calibration are partly those of training
    samples. Test on other samples."
    """
    what, meaning = MEANING[kind]
    called = what if kind == "train" else f"{what} {other}"
    return f"{shared:,} of the {size:,} rows of {test} are also in {called}: {meaning}"


def _keys(logits: Tensor, others: Tensor) -> Iterator[tuple[Tensor, Tensor, float]]:
    """Numbers for the rows of both sets, equal for equal rows: to the last digit, by format, but for noise.

    Beside them, how much of the coincidences may be chance for those to count that are not.
    """
    yield _hashes(logits, torch.float32), _hashes(others, torch.float32), 1.0
    coarse, coarser = sorted((_format(logits), _format(others)), key=lambda x: torch.finfo(x).eps)
    if coarse != coarser:
        yield _hashes(logits, coarser), _hashes(others, coarser), 1.0
    ours, theirs = _projections(logits), _projections(others)
    some = torch.cat([_some(ours), _some(theirs)]).abs().median(0).values
    cell = CELL * torch.where(some > 0, some, 1.0)
    for shift in (0.0, 0.5):  # what noise moves over an edge of one grid lies inside a cell of the other
        ends = [(x / cell + shift).floor().clamp(-(2**30), 2**30).int() for x in (ours, theirs)]
        yield hash_rows(ends[0]), hash_rows(ends[1]), LITTLE


def _with_target(keys: Tensor, target: Tensor | None) -> Tensor:
    return keys if target is None else keys + (target.detach().cpu().long() + 1) * ODD


def _hashes(logits: Tensor, dtype: torch.dtype) -> Tensor:
    # Adding 0 makes -0 and 0 the same bits.
    return torch.cat([hash_rows(block.to(dtype) + 0.0) for block in _blocks(logits)])


def _format(logits: Tensor) -> torch.dtype:
    """The coarsest format that has all of the values that are looked at."""
    some = _some(logits)[:, : max(1, BLOCK_ELEMENTS // LOOKED_AT)]
    return next((x for x in FORMATS if torch.equal(some.to(x).to(some.dtype), some)), torch.float32)


def _projections(logits: Tensor) -> Tensor:
    """(N, P) in float32: each row less its mean, seen from P directions; a masked class lies at the mean."""
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
    """Which of the first set's rows stand in the second as well, and whether they are more than chance makes."""
    distinct, place = torch.cat([keys, others]).unique(return_inverse=True)
    ours, theirs = place[: len(keys)], place[len(keys) :]
    c, d = (torch.bincount(x, minlength=len(distinct)).double() for x in (ours, theirs))
    found = (d > 0)[ours]
    same = len(distinct) > 2 and torch.equal(keys, others)
    return found, same or _beyond_chance(c[c + d > 1], d[c + d > 1], most)


def _beyond_chance(c: Tensor, d: Tensor, most: float) -> bool:
    """The test of `overlap_test`, for rows that occur c and d times; chance may make that share of coincidences."""
    weight = 1 / (c + d - 1)
    between = float((weight * c * d).sum())
    within = [float((weight * x * (x - 1)).sum()) + LUCK for x in (c, d)]
    chance = math.sqrt(within[0] * within[1])
    return between - chance > STANDARD_ERRORS * math.sqrt(len(c)) and chance - LUCK <= most * between


def _blocks(logits: Tensor) -> Iterator[Tensor]:
    size = max(1, BLOCK_ELEMENTS // logits.shape[1])
    return (logits[start : start + size] for start in range(0, len(logits), size))


def _some(rows: Tensor) -> Tensor:
    """At most `LOOKED_AT` rows, evenly spread."""
    return rows[:: -(-len(rows) // LOOKED_AT)]
