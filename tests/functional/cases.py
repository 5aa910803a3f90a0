"""Rows of logits that the tests share, and how far a result may be from the reference."""

import math

import pytest
import torch
from hypothesis import strategies as st
from mpmath import mp
from torch import Tensor

from tests.kernels.cases import needs_native
from torch_boc.functional import (
    Coins,
    bag_of_coins,
    bag_of_dice,
    binomial_log_tail,
    compute_scores,
    dominance_bounds,
    expected_wins,
    forced_gap,
    log_p_value,
    p_value,
    sample_columns,
    sample_stats,
    structural_score,
    tempered_dominance,
    token_numbers,
)

NAN, INF = math.nan, math.inf
over_paths = pytest.mark.parametrize("path", ["torch", pytest.param("native", marks=needs_native)])
FLOAT_FIELDS = ("odds", "loss", "concentration", "free_gap", "confidence", "dominance", "gap", "forced_gap")


def random_logits(*shape: int, scale: float = 3.0, dtype: torch.dtype = torch.float64, seed: int = 0) -> Tensor:
    """Normal logits, the same on every run."""
    return (torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)) * scale).to(dtype)


def confident_logits(classes: int, odds: float, *, seed: int = 0) -> Tensor:
    """One row with about the given odds against its top class, which is neither the first nor the last."""
    row = random_logits(classes, scale=1.0, seed=seed) + math.log(odds / (classes - 1))
    row[classes // 2] = 0.0
    return row


def as_dict(coins: Coins) -> dict[str, Tensor]:
    """Fields and properties by name."""
    return {name: getattr(coins, name) for name in ("prediction", *FLOAT_FIELDS)}


def everything(z: Tensor, *, dim: int = -1) -> dict[str, Tensor]:
    """Every public function of logits, by name, without the class axis. The given class is the first."""
    classes, coins = z.shape[dim], bag_of_coins(z, dim=dim)
    first = torch.zeros_like(coins.prediction)
    given, stats = bag_of_coins(z, dim=dim, index=first), sample_stats(z, first, dim=dim, extras=True)
    lower, upper = dominance_bounds(coins.odds, classes)
    return {
        **as_dict(coins),
        **{f"class {name}": getattr(given, name) for name in ("odds", "loss", "rank")},
        **{name: getattr(stats, name) for name in ("top", "entropy_sum", "margin", "distance", "gen")},
        **{f"column {name}": column for name, column in sample_columns(z, dim=dim, trials=20).items()},
        **compute_scores(z, dim=dim, trials=20),
        "lower": lower,
        "upper": upper,
        "forced": forced_gap(coins.odds, classes),
        "tempered": tempered_dominance(z, 2.0, dim=dim),
        "dice": bag_of_dice(z, 3, dim=dim),
        "wins": expected_wins(coins, 20),
        "p": p_value(coins, 20),
        "log p": log_p_value(coins, 20),
        "structural": structural_score(coins, 20),
        "tail": binomial_log_tail(torch.full_like(coins.odds, 3), 9, coins.odds),
        "log_probability": token_numbers(z.movedim(dim, -1), first, rivals=2).log_probability,
    }


def as_tensor(numbers: list) -> Tensor:
    """Reference numbers in float64, in which mpmath rounds them correctly."""
    return torch.tensor([float(x) for x in numbers], dtype=torch.float64)


def relative_error(actual: Tensor, expected: list) -> Tensor:
    """|actual - expected| / |expected| of each element, from reference numbers with more digits than float64."""
    pairs = zip(actual.detach().double().tolist(), expected, strict=True)
    with mp.workdps(40):
        errors = [abs(mp.mpf(a) - e) / abs(e) if e else abs(mp.mpf(a)) for a, e in pairs]
        return as_tensor(errors)


@st.composite
def logits(draw: st.DrawFn, *, elements: st.SearchStrategy[float], min_classes: int = 2, dtype=torch.float64) -> Tensor:
    """One to four rows of up to twelve logits."""
    classes, rows = draw(st.integers(min_classes, 12)), draw(st.integers(1, 4))
    row = st.lists(elements, min_size=classes, max_size=classes)
    return torch.tensor(draw(st.lists(row, min_size=rows, max_size=rows)), dtype=dtype)


any_float = st.floats(-60, 60, width=32)
# Multiples of 1/8: shifts are exact, ties are common, and no row is so nearly flat that its geometry is rounding.
on_grid = st.integers(-160, 160).map(lambda i: i / 8)
