"""What the kernels compute: names, dtypes and places of all numbers, in one table for torch, C++ and Triton.

The C++ library reports the same table when it is loaded, and is refused if it differs. The Triton kernels store in its
order, which the self-test on each device checks. A number that is not in the table is computed by torch's operations.
"""

from typing import NamedTuple

from torch import Tensor

# Of each sample: the target, how far its logit is below the top (0 for a target that is no class), whether it counts.
# Without targets the first two are None; the last is None if all samples count.
Labels = tuple[Tensor | None, Tensor | None, Tensor | None]
# The dtypes of logits; the library knows each by its place.
LOGITS = ("float32", "bfloat16", "float16", "float64")
# The numbers of each row that the operator `columns` computes, and their dtypes: "index" is int64, "wide" is float64,
# and "real" is the dtype in which the sums are taken, or float64 if that is asked for.
QUANTITIES = {
    "prediction": "index", "top": "real", "odds": "real", "squares": "wide", "mass": "wide", "mass_squares": "wide",
    "entropy_sum": "real", "margin": "real", "loss": "real", "gap": "wide", "concentration": "real", "free_gap": "real",
    "log_odds": "wide", "tempered_loss": "wide", "top_margin": "wide", "gen": "wide",
    "distance": "wide", "lost": "wide", "ahead": "index",
}  # fmt: skip
# The sums of `row_sums.py`, which have a gradient; the last two are computed only if they are asked for.
SUMS = ("prediction", "top", "odds", "squares", "mass", "mass_squares", "entropy_sum", "margin")
COINS = ("prediction", "odds", "loss", "concentration", "free_gap")
# Numbers about one given class of each row: they need an index.
OF_A_CLASS = frozenset({"distance", "lost", "ahead"})
# Numbers that need a search for the largest logits, or exponentials of their own: Triton leaves them to torch. It
# computes `gen`, of the default score of tests, for rows that fit on the chip.
NOT_BY_TRITON = frozenset({"tempered_loss", "top_margin"})

# What the gradient of the sums is given, what the tally is given of each sample, and the order of both.
PULLS = ("prediction", "top", "odds", "mass", *(f"on_{name}" for name in SUMS[1:]))
SAMPLES = ("target", "counted", *COINS, "distance")

# Of the scores: the temperature of `tempered_loss`; the power in `gen`, and how many probabilities it is over; and the
# rivals of `top_margin`: half of the classes up to 10, and a fifth of many classes up to 200.
TEMPERATURE, EXPONENT, LARGEST = 4.0, 0.1, 100
NEAREST = ((2, 10), (5, 200))

# The histogram of the gap: the first bin is for all gaps below 1e-12, then come 50 bins per decade up to 1.
LOWEST_DECADE = -12
BINS_PER_DECADE = 50
GAP_BINS = 1 - LOWEST_DECADE * BINS_PER_DECADE
GAP_EDGES = tuple(10 ** (LOWEST_DECADE + i / BINS_PER_DECADE) for i in range(GAP_BINS - 1))  # between the bins


class Counts(NamedTuple):
    """How many samples count, are invalid, have a small p-value, have a target, are correct, and have a bad target."""

    samples: Tensor
    invalid: Tensor
    rejected: Tensor
    labelled: Tensor
    correct: Tensor
    bad_targets: Tensor


class Sums(NamedTuple):
    """Sums over the samples that count."""

    confidence: Tensor
    dominance: Tensor
    gap: Tensor
    gap_square: Tensor
    forced_gap: Tensor
    free_gap: Tensor
    concentration: Tensor
    p_value: Tensor


class LabelledSums(NamedTuple):
    """Sums over the samples with a target. The last two are sums over the correct and over the wrong predictions."""

    nll: Tensor
    brier_confidence: Tensor
    brier_dominance: Tensor
    gap_correct: Tensor
    gap_wrong: Tensor


class BinCounts(NamedTuple):
    """How many samples are in each bin of confidence. The last two fields are for bins of dominance."""

    samples: Tensor
    labelled: Tensor
    correct: Tensor
    labelled_by_dominance: Tensor
    correct_by_dominance: Tensor


class BinSums(NamedTuple):
    """Sums over the samples in each bin of confidence. The last field is for bins of dominance."""

    confidence: Tensor
    gap: Tensor
    labelled_confidence: Tensor
    labelled_dominance: Tensor


class Tally(NamedTuple):
    """The counts in int64 and the sums in float64 (float32 on MPS); b is the number of bins.

    The first axis of a tensor holds the fields of a named tuple: `Counts(*total.counts)` gives the counts by name, and
    `named_sums` gives the sums by name.

    Attributes:
        counts: (6,), the fields of `Counts`.
        sums: (13,), the fields of `Sums`, then those of `LabelledSums`.
        gap_histogram: (601,), how many gaps are in each logarithmic bin.
        bin_counts: (5, b), the fields of `BinCounts`.
        bin_sums: (4, b), the fields of `BinSums`.
    """

    counts: Tensor
    sums: Tensor
    gap_histogram: Tensor
    bin_counts: Tensor
    bin_sums: Tensor


ALL_SUMS = (*Sums._fields, *LabelledSums._fields)


def schema_text() -> str:
    """The whole table as a text, in the form in which the C++ library reports its own."""
    parts = {
        "logits": LOGITS,
        "columns": [f"{name}:{kind}" for name, kind in QUANTITIES.items()],
        "counts": Counts._fields,
        "sums": ALL_SUMS,
        "gap_histogram": [f"{GAP_BINS}", f"{LOWEST_DECADE}", f"{BINS_PER_DECADE}"],
        "bin_counts": BinCounts._fields,
        "bin_sums": BinSums._fields,
        "pulls": PULLS,
        "samples": SAMPLES,
        "states": Tally._fields,
        "scores": [f"{x:g}" for x in (TEMPERATURE, EXPONENT, LARGEST, *NEAREST[0], *NEAREST[1])],
    }
    return "".join(f"{name} {' '.join(entries)}\n" for name, entries in parts.items())
