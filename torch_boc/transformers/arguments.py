"""Errors for what cannot be recorded: they say what was expected, what was given, and the remedy."""

import warnings
from typing import Any

import torch
from torch import Tensor

from ..data.finding import describe
from ..functional.screening import Scoring, place_samples
from ..nn.conformal import ConformalTest
from .stopping import Stop


def check_arguments(rivals: int, num_beams: int | None, stop: Stop | None, test: ConformalTest | None) -> None:
    """Raise if the recorder cannot be made with these arguments."""
    for name, number in (("rivals", rivals), ("num_beams", 1 if num_beams is None else num_beams)):
        if isinstance(number, bool) or not isinstance(number, int) or number < 1:
            raise ValueError(f"expected {name} as a positive integer, got {number!r}")
    if not (stop is None or isinstance(stop, Stop)):
        raise TypeError(f"expected stop as a torch_boc.transformers.Stop, got {type(stop).__name__}")
    if not (test is None or isinstance(test, ConformalTest)):
        raise TypeError(f"expected test as a torch_boc.ConformalTest, got {type(test).__name__}")
    if test is not None:
        test.check_calibrated()
    elif stop is not None and stop.quantity == "p_in_distribution":
        raise ValueError("expected a test to stop by p_in_distribution, got none; give test=, a ConformalTest")


def check_generates(model: Any) -> None:
    """Raise if this is not a model that generates."""
    if model is None:
        raise ValueError("expected a model, got none; give it here or to BoCGeneration")
    if not callable(getattr(model, "generate", None)):
        raise TypeError(
            f"expected a model first, got {describe(model)}; use g.generate(input_ids=...), or g.generate(model, ...)"
        )


def check_scores(ids: Any, scores: Tensor) -> None:
    """Raise if these are not the arguments of a logits processor."""
    fits = isinstance(ids, Tensor) and ids.ndim == 2 and scores.ndim == 2 and len(ids) == len(scores)
    if not fits or not scores.is_floating_point() or ids.is_floating_point():
        raise ValueError(
            f"expected integer tokens of shape (N, L) and floating-point scores of shape (N, C), got {describe(ids)} "
            f"and {describe(scores)}"
        )


def check_output(output: Any) -> Tensor:
    """The sequences in what `generate` returned, on the CPU."""
    found = output if isinstance(output, Tensor) else getattr(output, "sequences", None)
    if not isinstance(found, Tensor) or found.ndim != 2 or found.is_floating_point():
        raise TypeError(f"expected the output of generate, with sequences of shape (N, L), got {describe(output)}")
    return found.cpu()


def check_same(sequences: Tensor, recorded: Tensor) -> None:
    """Raise if the generated part of the sequences is not what was recorded, both of shape (N, T)."""
    if sequences.shape != recorded.shape or not torch.equal(sequences, recorded):
        raise ValueError(
            f"expected the output of the last recorded generate, with {len(recorded)} sequences of "
            f"{recorded.shape[1]} new tokens, got {len(sequences)} with {sequences.shape[1]}, or other tokens"
        )


def check_normalised(scoring: Scoring) -> None:
    """Raise if a score depends on the mean of the logits, which beam search takes away."""
    rows = torch.tensor([[3.0, 1.0, 0.0, -2.0]])
    if place_samples(rows, scoring).place.tolist() != place_samples(rows + 8.0, scoring).place.tolist():
        raise ValueError(
            f"expected a test whose score does not depend on the mean of the logits, because beam search normalises "
            f"them, got {scoring.score!r}; take 'log_odds'"
        )


def warn_of_masks(spoiled: int) -> None:
    """Warn that masks spoil the numbers of so many tokens."""
    warnings.warn(
        f"{spoiled} tokens were chosen from scores of which more than half were masked with -inf: their gap, "
        "lost_coins and concentration are NaN; put the processor that masks (top-k, top-p) after this one",
        stacklevel=4,
    )


def warn_of_unknown_ends() -> None:
    """Warn that a batch is recorded without knowing which tokens end its sequences."""
    warnings.warn(
        "expected the tokens that end the sequences of a batch, got none: padding after the end of a sequence counts "
        "as its text; use g.generate(...) in place of model.generate(...), or give BoCGeneration the model or "
        "eos_token_id=, which is [] if no token ends a sequence",
        stacklevel=5,
    )
