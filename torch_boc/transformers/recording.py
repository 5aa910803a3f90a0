"""One call of `generate`, recorded step by step on the device. No value is read back before the end."""

from typing import NamedTuple

import torch
from torch import Tensor

from ..functional.tokens import token_numbers
from ..nn.conformal import ConformalTest
from .arguments import check_normalised
from .beams import Fingerprints, choose, match
from .buffers import Buffer, Steps, stack_columns, unpack, watched_column
from .stopping import Stop, Watch


class Scored(NamedTuple):
    """What a call as a logits processor leaves for the call as a stopping criterion.

    Attributes:
        ids: (rows, length), the tokens before.
        scores: (rows, C).
        version: how often the scores had been changed in place; None if torch does not count.
    """

    ids: Tensor
    scores: Tensor
    version: int | None


class Recording:
    """The numbers of each step, in buffers on the device.

    Args:
        ids: (rows, length), the tokens before the first step.
        num_classes: the size of the vocabulary.
        rivals: how many of the likeliest tokens are kept.
        num_beams: the number of beams, if it is known.
        stop: when to stop a sequence.
        test: adds a p-value to each token.
    """

    def __init__(
        self,
        ids: Tensor,
        num_classes: int,
        *,
        rivals: int,
        num_beams: int | None = None,
        stop: Stop | None = None,
        test: ConformalTest | None = None,
    ) -> None:
        self.prompt, self.num_classes, self.rivals, self.num_beams = ids, num_classes, rivals, num_beams
        self.test = None if test is None else _follower(test, ids.device)
        self.floats, self.integers = Buffer(torch.float32), Buffer(torch.int32)
        self.has_beams = False
        self._watch = None if stop is None else Watch(stop)
        self._fingerprints = Fingerprints()
        self._scored: Scored | None = None
        self._last: Tensor | None = None  # the tokens of the last step

    @property
    def waits(self) -> bool:
        """Whether there are scores whose token has not come yet."""
        return self._scored is not None

    @property
    def items(self) -> int | None:
        """How many texts the beams belong to, if it is known."""
        rows = len(self.prompt)
        return rows // self.num_beams if self.num_beams and rows % self.num_beams == 0 else None

    @property
    def nbytes(self) -> int:
        """The bytes of the buffers."""
        return self.floats.nbytes + self.integers.nbytes

    def continues(self, ids: Tensor, num_classes: int) -> bool:
        """Whether a call as a logits processor is the next step of this recording, and not the first of another."""
        if self._last is None or num_classes != self.num_classes:
            return False
        if not self.has_beams:
            return ids is self._last  # `generate` hands the same tensor to both calls
        return ids.shape == (len(self.prompt), self._last.shape[1]) and ids.device == self._last.device

    def take(self, ids: Tensor, scores: Tensor) -> None:
        """Keep the scores until their token is known."""
        counts = not scores.is_inference()  # torch does not count changes of tensors that are made in inference mode
        self._scored = Scored(ids, scores if counts else scores.clone(), scores._version if counts else None)

    def step(self, ids: Tensor) -> Tensor:
        """Record the last tokens of `ids`, and return which sequences are stopped, bool of shape (rows,)."""
        assert self._scored is not None
        scored, self._scored = self._scored, None
        _check_pair(ids, scored)
        if not self.has_beams and len(ids) != len(scored.ids):
            self.has_beams = True
            if self.test is not None:
                check_normalised(self.test.scoring)
        parent, previous = self._lineage(ids, scored) if self.has_beams else (None, _in_place(ids, scored.ids))
        rows = scored.scores if parent is None else scored.scores.index_select(0, parent)
        self._last = ids
        return self._append(rows, ids[:, -1], previous)

    def _append(self, rows: Tensor, token: Tensor, previous: Tensor) -> Tensor:
        """Add one step to the buffers, and return which sequences are stopped."""
        numbers = token_numbers(rows, token.clamp(0, self.num_classes - 1), rivals=self.rivals)
        masked = rows.isneginf().count_nonzero(-1)
        p = None if self.test is None else self.test(rows)
        columns = stack_columns(numbers, p, masked * 2 > self.num_classes)
        stopped = torch.zeros_like(token, dtype=torch.bool)
        if self._watch is not None:
            watched = watched_column(self._watch.rule.quantity, columns, numbers)
            stopped = self._watch.look(watched, previous.clamp_min(0) if self.has_beams else None)
        self.floats.append(torch.cat([columns, numbers.rival_log_probabilities], -1))
        integers = torch.stack([token, numbers.rank, masked, previous, stopped.long()], -1)
        self.integers.append(torch.cat([integers, numbers.rivals], -1))
        return stopped

    def _lineage(self, ids: Tensor, scored: Scored) -> tuple[Tensor, Tensor]:
        """For each candidate, the row of its scores, and its row at the step before (at first, that of its prompt)."""
        before = self._fingerprints.of(scored.ids)
        matched = match(self._fingerprints.of(ids[:, :-1]), before, self.items)
        parent = choose(matched, scored.scores.amax(-1))
        found, parent = parent >= 0, parent.clamp_min(0)
        previous = parent
        if self._last is not None:
            earlier = choose(match(before, self._fingerprints.of(self._last), self.items))
            previous = earlier.index_select(0, parent)
        return parent, torch.where(found, previous, -1)

    def read(self) -> Steps:
        """All steps, on the CPU. This waits for the device."""
        return unpack(self.floats.read(), self.integers.read(), tested=self.test is not None)


def _in_place(ids: Tensor, before: Tensor) -> Tensor:
    """The row of each sequence; -1 if its earlier tokens are not those that were scored there."""
    return torch.where((ids[:, :-1] == before).all(-1), torch.arange(len(ids), device=ids.device), -1)


def _check_pair(ids: Tensor, scored: Scored) -> None:
    """Raise if `ids` are not one token longer than what was scored, or if the scores were changed since."""
    rows, length = scored.ids.shape
    if len(ids) < rows or ids.shape[1] != length + 1:
        raise ValueError(
            f"expected tokens of shape ({rows}, {length + 1}) or, with beams, more rows, after scores for "
            f"({rows}, {length}), got {tuple(ids.shape)}; this way of decoding cannot be recorded"
        )
    if scored.version is not None and scored.scores._version != scored.version:
        raise ValueError(
            "expected scores that no later logits processor changes in place, got changed ones; let that processor "
            "return a new tensor, or put the recorder after it"
        )


def _follower(test: ConformalTest, device: torch.device) -> ConformalTest:
    """A copy of the test on the device, which reads nothing back."""
    copy = test.clone()
    copy.validate_args = False  # whether logits are probabilities is read from the first batch
    return copy.to(device)
