"""Operators that add a batch to the states of a metric, in place: to a tally, to a mean gap, to histograms of scores.

`cpu/calls.py` and `triton/launch_numbers.py` have functions of the same names, which may be called directly if no
dispatch mode and no compiler has to see the call. These operators are for dispatch modes and for a compiler.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .cpu import calls
from .triton import launch_numbers
from .triton.launch import on_triton

_STATES = "Tensor(a!) counts, Tensor(b!) sums, Tensor(c!) gap_histogram, Tensor(d!) bin_counts, Tensor(e!) bin_sums"
_TALLY = ("counts", "sums", "gap_histogram", "bin_counts", "bin_sums")


def kernels_for(x: Tensor) -> Any:
    """The module whose functions compute with tensors on the device of `x`."""
    return launch_numbers if on_triton(x) else calls


@torch.library.custom_op(
    "torch_boc::tally",
    mutates_args=_TALLY,
    schema=f"(Tensor logits, Tensor? target, int? ignore_index, int trials, float alpha, {_STATES}) -> ()",
)
def tally(
    logits: Tensor, target: Tensor | None, ignore_index: int | None, trials: int, alpha: float, *states: Tensor
) -> None:
    """Add the tally of a batch of logits (..., C) to the tensors of a `functional.tallies.Tally`."""
    kernels_for(logits).tally(logits, target, ignore_index, trials, alpha, states)


@torch.library.custom_op(
    "torch_boc::tally_evidence",
    mutates_args=_TALLY,
    schema="(Tensor[] coins, Tensor? target, Tensor? distance, Tensor? counted, int num_classes, int trials, "
    f"float alpha, {_STATES}) -> ()",
)
def tally_evidence(
    coins: Sequence[Tensor],
    target: Tensor | None,
    distance: Tensor | None,
    counted: Tensor | None,
    num_classes: int,
    trials: int,
    alpha: float,
    *states: Tensor,
) -> None:
    """The same as `tally`, from the fields of Coins in place of the logits."""
    kernels_for(states[0]).tally_evidence(coins, target, distance, counted, num_classes, trials, alpha, states)


@torch.library.custom_op(
    "torch_boc::gap_tally",
    mutates_args=("gap", "samples", "invalid"),
    schema="(Tensor logits, Tensor? target, int? ignore_index, str part, Tensor(a!) gap, Tensor(b!) samples, "
    "Tensor(c!) invalid) -> ()",
)
def gap_tally(logits: Tensor, target: Tensor | None, ignore_index: int | None, part: str, *states: Tensor) -> None:
    """Add what `functional.tally.gap_tally` gives for a batch of logits (..., C) to gap, samples and invalid."""
    kernels_for(logits).gap_tally(logits, target, ignore_index, part, states)


@torch.library.custom_op(
    "torch_boc::count_scores",
    mutates_args=("histogram", "invalid"),
    schema="(Tensor logits, Tensor flags, str[] names, int[] signs, int trials, Tensor(a!) histogram, "
    "Tensor(b!) invalid) -> ()",
)
def count_scores(
    logits: Tensor,
    flags: Tensor,
    names: Sequence[str],
    signs: Sequence[int],
    trials: int,
    histogram: Tensor,
    invalid: Tensor,
) -> None:
    """Count samples in the bins of scores, as `score_histograms` does. Each score is a quantity times its sign."""
    kernels_for(logits).count_scores(logits, flags, names, signs, trials, histogram, invalid)


for _operator in (tally, tally_evidence, gap_tally, count_scores):
    _operator.register_fake(lambda *_: None)
