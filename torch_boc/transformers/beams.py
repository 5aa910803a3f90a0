"""Beam search: which row of one step continues which row of the step before, on the device and on the host."""

import torch
from torch import Tensor

from .buffers import Steps

# Rows of one sequence have the same logits but for rounding; rows of different texts have not.
SAME_LOGITS = 1e-3


class Fingerprints:
    """A number for each sequence of tokens: equal for equal sequences, and different for others.

    Tokens are multiplied by random integers, one for each place, and summed modulo 2^64. Two different sequences of
    the same length have the same number with a chance of about 2^-47.
    """

    def __init__(self) -> None:
        self._factors = torch.empty(0, dtype=torch.int64)

    def of(self, ids: Tensor) -> Tensor:
        """The numbers of sequences of shape (rows, length), int64 of shape (rows,)."""
        length = ids.shape[1]
        if len(self._factors) < length or self._factors.device != ids.device:
            random = torch.Generator().manual_seed(17)
            size = max(256, 2 * length)
            factors = torch.randint(-(2**63), 2**63 - 1, (size,), generator=random)
            self._factors = factors.to(ids.device, non_blocking=True)
        return (ids * self._factors[:length]).sum(-1)


def match(children: Tensor, parents: Tensor, items: int | None = None) -> Tensor:
    """Whether child i and parent j have the same fingerprint, bool of shape (children, parents).

    Args:
        children: (n,), fingerprints.
        parents: (m,), fingerprints.
        items: how many texts are in the batch, if it is known. The rows of a text stand together, and match no others.
    """
    equal = children.unsqueeze(1) == parents
    if items is None:
        return equal
    own, theirs = (torch.arange(len(x), device=x.device) // (len(x) // items) for x in (children, parents))
    return equal & (own.unsqueeze(1) == theirs)


def choose(matched: Tensor, tops: Tensor | None = None) -> Tensor:
    """The place of a parent of each child; -1 if there is none, or if parents with different logits match.

    Args:
        matched: from `match`.
        tops: (parents,), the largest logit of each.
    """
    place, found = matched.int().argmax(-1), matched.any(-1)
    if tops is not None:
        highest = torch.where(matched, tops, -torch.inf).amax(-1)
        lowest = torch.where(matched, tops, torch.inf).amin(-1)
        found = found & ~(highest - lowest > SAME_LOGITS)
    return torch.where(found, place, -1)


def walk(tokens: list[int], steps: Steps, first: list[int]) -> list[int]:
    """The row of each token of a sequence, as far as it was recorded.

    Args:
        tokens: those that were generated.
        steps: what was recorded.
        first: the rows of the first step where the sequence may begin.
    """
    # Rows with equal sequences are all followed: `previous` names one of them.
    paths = {row: [row] for row in first if tokens and int(steps.token[0, row]) == tokens[0]}
    longest: list[int] = next(iter(paths.values()), [])
    for step in range(1, min(len(tokens), len(steps.token))):
        emitted, previous = steps.token[step].tolist(), steps.previous[step].tolist()
        paths = {
            row: [*paths[before], row]
            for row, (token, before) in enumerate(zip(emitted, previous, strict=True))
            if token == tokens[step] and before in paths
        }
        if not paths:
            break
        longest = next(iter(paths.values()))
    return longest
