"""What is kept of each emitted token: a fixed number of bytes, on the device of the model."""

from typing import NamedTuple

import torch
from torch import Tensor

from ..functional.tokens import TOKEN_COLUMNS, TokenNumbers

# Buffers grow by this many steps at a time.
STEPS = 64
# The columns in float32; the confidence follows from the odds. The last ones are about all classes, so that a mask of
# -inf makes them meaningless. The p-value of a test comes after them, then the rivals.
FLOATS = ("log_probability", "odds", "entropy", "lost_coins", "gap", "concentration")
OF_SOME_CLASSES = 3
# The columns in int32, before the rivals. `previous` is the row of the same sequence at the step before; -1 if none is.
INTEGERS = ("token", "rank", "masked", "previous", "stopped")


class Buffer:
    """A tensor of shape (steps, rows, width) that grows by `STEPS` steps at a time."""

    def __init__(self, dtype: torch.dtype) -> None:
        self._dtype = dtype
        self._pieces: list[Tensor] = []
        self._steps = 0

    def __len__(self) -> int:
        return self._steps

    @property
    def nbytes(self) -> int:
        """The bytes that the buffer takes, also those that are not used yet."""
        return sum(piece.nbytes for piece in self._pieces)

    def append(self, values: Tensor) -> None:
        """Add one step, of shape (rows, width), in any dtype."""
        place = self._steps % STEPS
        if place == 0:
            self._pieces.append(values.new_empty((STEPS, *values.shape), dtype=self._dtype))
        self._pieces[-1][place].copy_(values)
        self._steps += 1

    def read(self) -> Tensor:
        """All steps, on the CPU."""
        return torch.cat([piece.cpu() for piece in self._pieces])[: self._steps]


class Steps(NamedTuple):
    """All steps of a recording on the CPU, each of shape (steps, rows).

    Attributes:
        columns: by name, those of `TOKEN_COLUMNS`, `masked`, and `p_in_distribution` if there is a test, in float64.
        token: the emitted tokens, in int64.
        previous: the row of the same sequence at the step before, in int64; -1 if there is none.
        stopped: whether the rule has stopped the sequence.
        rivals: (steps, rows, k) in int64.
        rival_log_probabilities: (steps, rows, k) in float64.
    """

    columns: dict[str, Tensor]
    token: Tensor
    previous: Tensor
    stopped: Tensor
    rivals: Tensor
    rival_log_probabilities: Tensor

    def upto(self, number: int) -> "Steps":
        """The first steps."""
        return Steps({name: x[:number] for name, x in self.columns.items()}, *(x[:number] for x in self[1:]))


def stack_columns(numbers: TokenNumbers, p: Tensor | None, hidden: Tensor) -> Tensor:
    """The columns of one step, (rows, columns): those about all classes, and `p`, are NaN where `hidden` is True."""
    columns = [getattr(numbers, name) for name in FLOATS]
    stacked = torch.stack(columns if p is None else [*columns, p], -1)
    stacked[:, OF_SOME_CLASSES:].masked_fill_(hidden.unsqueeze(-1), torch.nan)
    return stacked


def watched_column(name: str, stacked: Tensor, numbers: TokenNumbers) -> Tensor:
    """The column of this name, as precise as it is kept."""
    names = (*FLOATS, "p_in_distribution")
    return (stacked[:, names.index(name)] if name in names else getattr(numbers, name)).float()


def unpack(floats: Tensor, integers: Tensor, *, tested: bool) -> Steps:
    """The steps from what `Buffer.read` gives."""
    names = (*FLOATS, *(["p_in_distribution"] if tested else []))
    found = dict(zip(names, floats.double().unbind(-1), strict=False))
    own = dict(zip(INTEGERS, integers.long().unbind(-1), strict=False))
    found["confidence"] = (1.0 + found["odds"]).reciprocal()
    found["rank"], found["masked"] = own["rank"].double(), own["masked"].double()
    order = (*TOKEN_COLUMNS, "masked", *names[len(FLOATS) :])
    return Steps(
        {name: found[name] for name in order},
        own["token"],
        own["previous"],
        own["stopped"].bool(),
        integers[..., len(INTEGERS) :].long(),
        floats[..., len(names) :].double(),
    )
