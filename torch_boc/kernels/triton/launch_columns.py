"""Launches of the Triton kernels that write columns and count scores; see `launch_numbers.py`."""

from collections.abc import Sequence

import torch
from torch import Tensor

from .cards import fraction_steps
from .launch import launch, load
from .launch_sums import BLOCK, OPTIONS, Sums, check_states, flat, row_sums
from .views import readable

# Quantities that need the sums of `core/spread.py`, those that come with `extras`, the log of the odds, the p-value.
NEED_SPREAD = {"concentration", "free_gap", "forced_gap"}
NEED_EXTRAS = {"logit_gap", "entropy"}
NEED_REST = {"log_odds"}
NEED_TRIALS = {"log_p_value", "p_value"}
# Quantities that the native library computes and these kernels do not.
ONLY_NATIVE = {"tempered_loss", "logit_gap_top", "gen"}


def columns(logits: Tensor, names: Sequence[str], trials: int) -> list[Tensor]:
    """Numbers of each sample by name, of shape (...) in float64; "prediction" in int64.

    The names are "prediction" and those of QUANTITIES in `columns.py`.
    """
    shape, rivals, logits = logits.shape[:-1], logits.shape[-1] - 1, readable(logits)
    out = {x: logits.new_empty(shape, dtype=torch.float64) for x in names if x != "prediction"}
    found = _sums_for(logits, {*names})
    if out and logits.numel():
        kernels = load("columns")
        flips = _flips(logits, trials, needed=bool(NEED_TRIALS & {*names}))
        wanted = [out.get(name) for name in kernels.QUANTITIES]
        size = shape.numel()
        launch(kernels.columns, (-(-size // BLOCK),), logits, *found[1:], *wanted, size, rivals, *flips, **OPTIONS)
    return [found.prediction if name == "prediction" else out[name] for name in names]


def count_scores(
    logits: Tensor,
    flags: Tensor,
    names: Sequence[str],
    signs: Sequence[int],
    trials: int,
    histogram: Tensor,
    invalid: Tensor,
) -> None:
    """Count samples in the bins of several scores, as `functional.separation.score_histograms`, in place.

    Args:
        logits: (..., C).
        flags: (...), true for out-of-distribution; or one for all samples.
        names: K of the QUANTITIES in `columns.py`, from which the scores are made.
        signs: 1 or -1 for each quantity, by which it is multiplied.
        trials: the number of coin flips of the p-value.
        histogram: (2, K, bins) in int64, to which the counts are added.
        invalid: int64, to which the number of samples with a score of NaN is added; they count nowhere else.
    """
    if not logits.numel():
        return
    check_states((histogram, invalid))
    kernels, logits, bins, known = load("columns"), readable(logits), histogram.shape[-1], {*names}
    found = _sums_for(logits, known)
    codes = sum(kernels.QUANTITIES.index(name) * kernels.DIGIT.value**i for i, name in enumerate(names))
    negative = sum(1 << i for i, sign in enumerate(signs) if sign < 0)
    size, rivals = logits.shape[:-1].numel(), logits.shape[-1] - 1
    numbers = (size, rivals, *_flips(logits, trials, needed=bool(NEED_TRIALS & known)))
    arguments = (*found[1:], flat(flags), histogram, invalid, *numbers, int(flags.numel() > 1), bins)
    options = {"scores": len(names), "codes": codes, "negative": negative, **OPTIONS}
    grid = (-(-size // BLOCK),)
    launch(kernels.count_scores, grid, logits, *arguments, 33 - bins.bit_length(), **options)


def _sums_for(logits: Tensor, names: set[str]) -> Sums:
    """The sums that the quantities with these names need."""
    extras, spread, log_rest = (bool(needed & names) for needed in (NEED_EXTRAS, NEED_SPREAD, NEED_REST))
    return row_sums(logits, extras=extras, spread=spread, log_rest=log_rest)


def _flips(logits: Tensor, trials: int, *, needed: bool) -> tuple[int | None, int | None]:
    return (trials, fraction_steps(logits, trials)) if needed else (None, None)
