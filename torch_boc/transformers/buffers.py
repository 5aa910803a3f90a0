"""What is kept of each emitted token: a fixed number of bytes, on the device of the model."""

from typing import NamedTuple

import torch
from torch import Tensor

from ..functional.tokens import TOKEN_COLUMNS, TokenNumbers

# Buffers grow by this many steps at a time.
STEPS = 64
# The columns in float32; the confidence follows from the odds. The p-value of a test comes after them, then the rivals.
FLOATS = ("log_probability", "odds", "lost_coins", "gap", "concentration", "entropy")
# The columns in int32, before the rivals. `previous` is the row of the same sequence at the step before; -1 if none is.
INTEGERS = ("token", "rank", "masked", "previous", "stopped")
# What a mask of -inf makes meaningless, because it is about all classes.
OF_ALL_CLASSES = ("lost_coins", "gap", "concentration")


class Buffer:
    """A tensor of shape (steps, rows, width) that grows by `STEPS` steps at a time."""

    def __init__(self) -> None:
        self._pieces: list[Tensor] = []
        self._steps = 0

    def __len__(self) -> int:
        return self._steps

    @property
    def nbytes(self) -> int:
        """The bytes that the buffer takes, also those that are not used yet."""
        return sum(piece.nbytes for piece in self._pieces)

    def append(self, values: Tensor) -> None:
        """Add one step, of shape (rows, width)."""
        place = self._steps % STEPS
        if place == 0:
            self._pieces.append(values.new_empty((STEPS, *values.shape)))
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


def float_columns(numbers: TokenNumbers, p: Tensor | None, hidden: Tensor) -> dict[str, Tensor]:
    """The columns of one step in float32, (rows,) each: `OF_ALL_CLASSES` and `p` are NaN where `hidden` is True."""
    found = {name: getattr(numbers, name).float() for name in FLOATS}
    if p is not None:
        found["p_in_distribution"] = p.float()
    kept = {name: x for name, x in found.items() if name not in (*OF_ALL_CLASSES, "p_in_distribution")}
    return {name: x if name in kept else x.masked_fill(hidden, torch.nan) for name, x in found.items()}


def watched_column(name: str, columns: dict[str, Tensor], numbers: TokenNumbers) -> Tensor:
    """The column of this name in float32, with NaN as in `columns`."""
    return columns[name] if name in columns else getattr(numbers, name).float()


def pack_floats(columns: dict[str, Tensor], numbers: TokenNumbers) -> Tensor:
    """One step in float32, (rows, width): the columns, then the rivals."""
    return torch.cat([torch.stack(list(columns.values()), -1), numbers.rival_log_probabilities.float()], -1)


def pack_integers(numbers: TokenNumbers, **columns: Tensor) -> Tensor:
    """One step in int32: (rows, width)."""
    named = {**columns, "rank": numbers.rank}
    own = torch.stack([named[name].to(torch.int32) for name in INTEGERS], -1)
    return torch.cat([own, numbers.rivals.to(torch.int32)], -1)


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
