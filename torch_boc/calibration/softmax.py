"""Multinomial logistic regression with the penalty of scikit-learn. Large problems are computed in float32."""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .._optional import require
from .base import require_sklearn

# A step takes samples * weights products. With this many or more, they are in float32, which takes half the time; sums
# are always in float64.
MANY = 10**8
# The largest number of points that a line search tries, as in scikit-learn.
LINE_SEARCH = 50
SECONDS_BETWEEN_WORDS = 1.0


class Regression(NamedTuple):
    """Weights (K, C) and bias (K,) in float64, the number of steps of the search, and whether it converged."""

    weight: Tensor
    bias: Tensor
    steps: int
    converged: bool


def fit_softmax(
    features: Tensor,
    target: Tensor,
    *,
    strength: float,
    tolerance: float,
    max_iterations: int,
    progress: Callable[[str], object] | None = None,
) -> Regression:
    """The weights W and bias b that minimise, over N samples x with targets y among K classes,

        mean_i -log softmax(W x_i + b)[y_i]  +  |W|^2 / (2 strength N)

    This is what scikit-learn's `LogisticRegression(C=strength)` minimises, with the same method (L-BFGS) and the same
    meaning of the tolerance. For two classes, scikit-learn has one column of weights, which is the difference of the
    two columns here, and its penalty is on that column.

    Args:
        features: (N, C) in float64.
        target: (N,) in [0, K). Every class occurs.
        strength: the weight of the samples against the penalty.
        tolerance: the search ends when the largest slope is below this.
        max_iterations: the largest number of steps.
        progress: called once a second with a few words about how far the search is.
    """
    require_sklearn()  # SciPy comes with it; if it is missing, the error says how to install it
    minimize = require("scipy", "optimize", purpose="this calibrator needs").optimize.minimize

    count = int(target.max()) + 1
    objective = _Objective(features, target, count, strength / 2 if count == 2 else strength)
    options = {"maxiter": max_iterations, "maxls": LINE_SEARCH, "gtol": tolerance, "ftol": 64 * 2.0**-52}
    start = torch.zeros(count * (features.shape[1] + 1), dtype=torch.float64).numpy()
    said = _Said(objective, max_iterations, progress)
    found = minimize(objective, start, method="L-BFGS-B", jac=True, options=options, callback=said)
    weight, bias = objective.parts(torch.from_numpy(found.x))
    return Regression(weight, bias, int(found.nit), bool(found.nit < max_iterations))


def is_large(features: Tensor, count: int) -> bool:
    """Whether the products are in float32, for a fit of `count` classes."""
    return features.numel() * count >= MANY


class _Objective:
    """The function that is minimised, and its slope. Weights and bias are given in one row."""

    def __init__(self, features: Tensor, target: Tensor, count: int, strength: float) -> None:
        dtype = torch.float32 if is_large(features, count) else torch.float64
        self.features, self.target = features.to(dtype), target.unsqueeze(1)
        self.count, self.penalty = count, 1 / (strength * len(features))
        self.slope = float("inf")

    def parts(self, row: Tensor) -> tuple[Tensor, Tensor]:
        weights = row.view(self.count, -1)
        return weights[:, :-1], weights[:, -1]

    def __call__(self, row: Any) -> tuple[float, Any]:
        weight, bias = self.parts(torch.from_numpy(row))
        x, samples = self.features, len(self.features)
        scores = torch.addmm(bias.to(x), x, weight.T.to(x))
        total = scores.logsumexp(1, keepdim=True)
        loss = (total - scores.gather(1, self.target)).sum(dtype=torch.float64) / samples
        chance = scores.sub_(total).exp_().scatter_add_(1, self.target, total.new_full((samples, 1), -1.0))
        slope = torch.cat([(chance.T @ x).double(), chance.sum(0, dtype=torch.float64).unsqueeze(1)], 1) / samples
        slope[:, :-1].add_(weight, alpha=self.penalty)
        self.slope = float(slope.abs().max())
        return float(loss + self.penalty / 2 * weight.square().sum()), slope.view(-1).numpy()


class _Said:
    """Calls `progress` once a second with a few words about how far the search is."""

    def __init__(self, objective: _Objective, most: int, progress: Callable[[str], object] | None) -> None:
        self.objective, self.most, self.progress = objective, most, progress
        self.steps, self.last = 0, time.monotonic()

    def __call__(self, row: Any) -> None:
        self.steps += 1
        if self.progress is not None and time.monotonic() - self.last >= SECONDS_BETWEEN_WORDS:
            self.last = time.monotonic()
            self.progress(f"step {self.steps} of at most {self.most:,}, slope {self.objective.slope:.0e}")
