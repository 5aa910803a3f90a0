"""A conformal test over many samples: places beside the columns of the probe, and the share that is flagged."""

from collections.abc import Sequence

import torch
from torch import Tensor

from ..core.precision import widen
from .columns import column_extras, columns_of, sample_columns
from .conformal import place_p_values
from .evidence import gather
from .placing import Placing, Scoring, place_samples
from .score import need_extras


def columns_and_places(
    rows: Tensor, scoring: Scoring, names: Sequence[str], trials: int = 100
) -> tuple[dict[str, Tensor], Placing]:
    """The columns of `sample_columns` with these names, and where a test finds each sample.

    One pass over the logits gives both, unless the test has a temperature.

    Args:
        rows: logits of shape (..., C), without a gradient.
        scoring: how the test scores and groups the samples.
        names: names of columns, which were checked before; there may be none.
        trials: the number of coin flips of the p-value.

    >>> found, placing = columns_and_places(torch.tensor([[2.0, 1.0, 0.0]]), Scoring("max_logit"), ["prediction"])
    >>> found, placing.place
    ({'prediction': tensor([0])}, tensor([82944]))
    """
    if scoring.temperature != 1.0 or not names:
        columns = sample_columns(rows, trials=trials, columns=names) if names else {}
        return columns, place_samples(rows, scoring)
    extras = {*column_extras(names), *need_extras([scoring.name])}
    evidence = gather(rows, trials=trials, extras=extras)
    return columns_of(evidence, names), place_samples(evidence, scoring)


def flagged_share(held_out: Tensor, tested: Tensor, alpha: float, invalid: Tensor | int = 0) -> Tensor:
    """The share of a set of samples that a test flags at level `alpha`, from counts alone.

    It is the mean of `ConformalTest.flag` over the samples, up to rounding: all samples of a group in one place have
    the same p-value.

    Args:
        held_out: (groups, places), the counts of the held-out samples, from `count_places`.
        tested: (groups, places), the counts of the samples that are tested.
        alpha: the level.
        invalid: the number of tested samples with NaN or +inf, which are in no place. They are flagged.

    Returns:
        A scalar in float64 (float32 on MPS); NaN if no sample is tested.

    >>> held_out, tested = torch.tensor([[1, 2, 96]]), torch.tensor([[3, 1, 0]])
    >>> flagged_share(held_out, tested, 0.03)  # the p-values are 0.02, 0.04 and 1
    tensor(0.7500, dtype=torch.float64)
    """
    flagged = torch.where(place_p_values(held_out) > alpha, 0, tested).sum() + invalid
    return widen(flagged) / widen(tested.sum() + invalid)
