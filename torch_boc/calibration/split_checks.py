"""Are two sets really different samples? Calibration splits of training data, and rows that two sets have in common."""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from ..functional.conformal import excess_chance

LEAK_LEVEL = 1e-3
# With a million samples every difference is significant. Below a percentage point it hardly changes a calibrator.
RELEVANT_DIFFERENCE = 0.01
# Equal rows are suspicious if they are this many standard errors above chance. Of 4,000 pairs of sets that have nothing
# in common, about one is suspected by mistake.
STANDARD_ERRORS = 3.5
# A set without equal rows might as well have had one such pair. It is added, and counted in both orders.
LUCK = 2.0
# From so large a share of repeated rows on, intervals and guarantees are too optimistic by more than a few percent.
REPEATED = 0.1
BLOCK_ELEMENTS = 2**20
MIXER = -0x61C8864680B583EB  # 2^64 over the golden ratio, as a signed number
# By the kind of the other set: its name, and what is wrong if the test set shares samples with it, with the remedy.
MEANING = {
    "calibration": "the calibration split {}: errors of what is fitted on it are too low here. Fit on other samples.",
    "held-out": "the held-out samples of {}, so their p-values are not valid. Calibrate on other samples.",
    "ood": "the out-of-distribution set {}: the AUROC is too close to 0.5. Leave them out of one of the two sets.",
    "train": "the training set: accuracy and calibration are partly those of training samples. Test on other samples.",
}


class LeakWarning(UserWarning):
    """The calibration split is easier or harder than the test set. What is fitted on it does not transfer."""


class OverlapWarning(UserWarning):
    """Two sets that should have no sample in common have some. Do not trust what was measured on them."""


class LeakTest(NamedTuple):
    """Whether a calibration split is easier or harder than the test set.

    Attributes:
        accuracy: the accuracy on the calibration split.
        test_accuracy: the accuracy on the test set.
        p_value: two-sided, of the hypothesis that the accuracy is the same.
        suspicious: whether p_value is below 0.001 and the accuracies differ by more than a percentage point.
    """

    accuracy: float
    test_accuracy: float
    p_value: float
    suspicious: bool


def leak_test(calibration_correct: int, calibration_samples: int, test_correct: int, test_samples: int) -> LeakTest:
    """Fisher's exact test for two proportions, two-sided: twice the smaller tail.

    If both sets are alike, each choice of the correct predictions among all samples is equally likely, so the number of
    those in the calibration split is hypergeometric. An easier split may be training data or have another class mix; a
    harder one may have other labels or another class mix.

    Args:
        calibration_correct: the number of correct predictions in the calibration split.
        calibration_samples: the size of the calibration split. If one of the sets is empty, the numbers are NaN, and
            nothing is suspicious.
        test_correct: the number of correct predictions in the test set. No sample of it is in the calibration split.
        test_samples: the size of the test set.

    >>> leak_test(4990, 5000, 9170, 10000).suspicious  # 0.998 against 0.917
    True
    >>> leak_test(4590, 5000, 9170, 10000).suspicious
    False
    """
    ours, theirs, p_value = (calibration_correct, calibration_samples), (test_correct, test_samples), math.nan
    a, b = (correct / samples if samples else math.nan for correct, samples in (ours, theirs))
    if calibration_samples and test_samples:
        tails = [excess_chance(*more, less[0] + 1, less[1]) for more, less in ((ours, theirs), (theirs, ours))]
        p_value = min(1.0, 2 * min(tails))
    return LeakTest(a, b, p_value, p_value < LEAK_LEVEL and abs(a - b) > RELEVANT_DIFFERENCE)


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

    Two rows are equal if they are equal in float32, or in float16 if chance does not explain that. If both sets have
    targets, equal rows must also have equal targets. The same samples in another form, such as log-probabilities, are
    not found.

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
    >>> overlap_test(logits, torch.cat([logits[:30].half(), logits[50:]]))
    Overlap(shared=80, exact=50, suspicious=True)
    >>> overlap_test(logits[:50], logits[50:])
    Overlap(shared=0, exact=0, suspicious=False)
    """
    labelled = target is not None and their is not None
    exact, shared, suspicious = 0, 0, False
    for dtype in (torch.float32, torch.float16):
        ours, theirs = (_row_keys(x, y if labelled else None, dtype) for x, y in ((logits, target), (others, their)))
        distinct, index = torch.cat([ours, theirs]).unique(return_inverse=True)
        c, d = (x.bincount(minlength=len(distinct)).double() for x in index.split([len(ours), len(theirs)]))
        equal = int((d > 0)[index[: len(ours)]].sum())
        same = len(distinct) > 2 and torch.equal(ours, theirs)
        beyond_chance = same or _beyond_chance(c[c + d > 1], d[c + d > 1])
        if dtype == torch.float32:
            exact = shared = equal
        if beyond_chance:
            shared, suspicious = equal, True
    return Overlap(shared, exact, suspicious)


def many_repeated(logits: Tensor, target: Tensor | None = None) -> int:
    """How many rows are equal to an earlier one, in float32 and with the same target; 0 if at most a tenth are.

    >>> many_repeated(torch.eye(3).repeat(4, 1)), many_repeated(torch.eye(3))
    (9, 0)
    """
    repeated = len(logits) - len(_row_keys(logits, target, torch.float32).unique())
    return repeated if repeated > REPEATED * len(logits) else 0


def repeated_message(repeated: int, size: int, name: str) -> str:
    """The message that rows of a set are repeated."""
    lead = f"{repeated:,} of the {size:,} rows of {name} repeat an earlier row"
    return f"{lead}: if they are the same samples, intervals are too narrow and no guarantee holds. Leave them out."


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
    return f"{shared:,} of the {size:,} rows of {test} are also in {MEANING[kind].format(other)}"


def _row_keys(logits: Tensor, target: Tensor | None, dtype: torch.dtype) -> Tensor:
    """A number of 64 bits for each row and its target; equal rows have equal numbers."""
    bits = torch.int32 if dtype == torch.float32 else torch.int16
    weights = torch.randint(2**62, (logits.shape[1] + 1,), generator=torch.Generator().manual_seed(0))
    targets = torch.zeros(len(logits), dtype=torch.int64) if target is None else target.cpu().long()
    size, keys = max(1, BLOCK_ELEMENTS // logits.shape[1]), [weights[:0]]
    for block, labels in zip(logits.detach().cpu().split(size), targets.split(size), strict=True):
        rows = (block.to(dtype) + 0.0).contiguous().view(bits)  # adding 0 gives -0 and 0 the same bits
        mixed = torch.cat([rows, labels.unsqueeze(1)], 1) * (2 * weights + 1)
        keys.append(((mixed ^ (mixed >> 32)) * MIXER).sum(1))
    return torch.cat(keys)


def _beyond_chance(c: Tensor, d: Tensor) -> bool:
    """The test of `overlap_test` for rows that occur c and d times."""
    weight = 1 / (c + d - 1)
    between = float((weight * c * d).sum())
    within = [float((weight * x * (x - 1)).sum()) + LUCK for x in (c, d)]
    return between - math.sqrt(within[0] * within[1]) > STANDARD_ERRORS * math.sqrt(len(c))
