"""How the rows of logits lie in memory, so that the kernels read views where they are."""

from typing import NamedTuple

from torch import Tensor

# Vectors of up to 2^4 elements; a GPU loads at most 16 bytes at once.
MOST_BITS = 4


class Layout(NamedTuple):
    """Where the logit of a row and a class is: `(row // inner) * jump + (row % inner) * stride + column * step`.

    Attributes:
        rows: how many rows.
        classes: C.
        inner: None if all rows lie in one regular step.
        jump: None where `inner` is.
        stride: None stands for 1: neighbouring rows are side by side, as the pixels of an image.
        step: None stands for 1: the classes of a row are side by side.
        bits: 2^bits divides all numbers that must be multiples for vectors of so many elements.
    """

    rows: int
    classes: int
    inner: int | None
    jump: int | None
    stride: int | None
    step: int | None
    bits: int

    @property
    def across(self) -> bool:
        """Whether neighbouring threads should read neighbouring rows, not neighbouring classes."""
        return self.stride is None

    @property
    def numbers(self) -> tuple[int | None, ...]:
        """The numbers that kernels get, in the order of their arguments; `bits` goes to them by name."""
        return self[:6]


def readable(logits: Tensor) -> Tensor:
    """The logits themselves if the axes before the classes join to at most two regular steps, otherwise a copy.

    Contiguous logits, slices such as `logits[:, :-1]`, and images or sequences whose classes come first are not copied.
    """
    return logits if len(_joined(logits)) <= 2 else logits.contiguous()


def layout_of(logits: Tensor) -> Layout:
    """The layout of logits of shape (..., C), or that of their copy where they are not `readable`."""
    classes, step, axes = logits.shape[-1], logits.stride(-1), _joined(logits)
    if len(axes) > 2:
        step, axes = 1, []
    (_, jump), (inner, stride) = [(1, 0), (1, classes), *axes][-2:]
    split = len(axes) == 2
    rows = logits.numel() // classes
    across = stride == 1 and step != 1
    multiples = [0]
    if across:
        multiples = [rows, step, *([inner, jump] if split else [])]
    elif step == 1:
        multiples = [classes, stride, *([jump] if split else [])]
    return Layout(
        rows,
        classes,
        inner if split else None,
        jump if split else None,
        None if across else stride,
        None if step == 1 else step,
        _bits(multiples) if across or step == 1 else 0,
    )


def _bits(numbers: list[int]) -> int:
    """How many zeros all numbers have at their end in binary, but at most MOST_BITS."""
    joined = 1 << MOST_BITS
    for number in numbers:
        joined |= number
    return (joined & -joined).bit_length() - 1


def _joined(logits: Tensor) -> list[tuple[int, int]]:
    """Size and stride of the axes before the classes. Those that lie in one regular step are joined.

    An axis of size 1 is left out only if there would be more than two: a last batch of one sample needs no new kernel.
    """
    axes = [*zip(logits.shape[:-1], logits.stride()[:-1], strict=True)]
    found = _join(axes)
    return found if len(found) <= 2 else _join([x for x in axes if x[0] != 1])


def _join(axes: list[tuple[int, int]]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for size, stride in axes:
        if found and found[-1][1] == size * stride:
            found[-1] = found[-1][0] * size, stride
        else:
            found.append((size, stride))
    return found
