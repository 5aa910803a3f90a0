"""The sums from which the concentration is computed, chosen for each row so that nothing cancels.

With u_j = exp(z_j - z_top) over the rivals j and v_j = 1 - u_j, how far each rival is below the top:

    odds of the rivals       R = sum_j u_j        Q = sum_j u_j^2 / (1 + u_j)
    leads over the rivals    S = sum_j v_j        T = sum_j v_j^2 / (2 - v_j)

R + S = C - 1 and 4 Q = T + 2 (C - 1) - 3 S, so that each pair follows from the other. In finite precision this is not
true: if the logits are nearly equal, R is C - 1 up to rounding, while S, computed by exp(x) - 1, has all its digits. A
row is flat if R > (C - 1) / 2, and then its concentration is computed from S and T. A row is sharp if R < 2^-100: then
float32 cannot hold its Q, not even times 2^100. The R and Q of a sharp row are summed relative to its second largest
logit.
"""

from typing import Any

import torch
from torch import Tensor

from .blocks import block_elements, blockwise, fill_blockwise
from .precision import accumulator, is_plain, widen
from .top import find_top


def is_flat(odds: Tensor, num_classes: int) -> Tensor:
    """Which rows have rivals so near the top that their leads must be summed. Rows of NaN are not flat."""
    return odds > (num_classes - 1) * 0.5


def is_sharp(odds: Tensor) -> Tensor:
    """Which rows have odds so small that float32 cannot hold their squares. Rows of NaN are not sharp."""
    return odds < 2.0**-100


def spread_sums(logits: Tensor, odds: Tensor, squares: Tensor) -> tuple[Tensor, Tensor]:
    """S and T of the flat rows of `logits`, R and Q of the others; differentiable, in float64 (float32 on MPS).

    `odds` and `squares` are R and Q, and get no gradient: the gradients of the results go directly to the logits. They
    can be very large, so they stay in float64 until they are multiplied by numbers that are as small.
    """
    if is_plain(logits):
        return _forward(logits, odds, squares)
    mass, mass_squares = _Spread.apply(logits, odds.detach(), squares.detach())
    return mass, mass_squares


def _forward(logits: Tensor, odds: Tensor, squares: Tensor) -> tuple[Tensor, Tensor]:
    if logits.device.type == "cpu" and not torch.compiler.is_compiling():
        # This is an operator, because fake tensors have no values that can be read.
        some: tuple[Tensor, Tensor] = _some_rows(logits, odds, squares)
        return some
    return blockwise(every_row, logits, odds.unsqueeze(-1), squares.unsqueeze(-1))  # type: ignore[return-value]


class _Spread(torch.autograd.Function):
    """Saves the logits, the first sum and which rows are flat, and recomputes the rest."""

    @staticmethod
    def forward(logits: Tensor, odds: Tensor, squares: Tensor) -> tuple[Tensor, Tensor]:
        return _forward(logits, odds, squares)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        logits, odds, _ = inputs
        ctx.save_for_backward(logits, is_flat(odds, logits.shape[-1]), output[0])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        logits, flat, mass = ctx.saved_tensors
        columns = spread_columns(logits, flat, mass, *grads)
        if torch.compiler.is_compiling():
            return gradient(logits, *columns), None, None
        return fill_blockwise(torch.empty_like(logits), gradient, logits, *columns), None, None


def spread_columns(
    logits: Tensor, flat: Tensor, mass: Tensor, on_mass: Tensor, on_squares: Tensor
) -> tuple[Tensor, ...]:
    """The arguments of `gradient` after the logits, with a last axis of size 1."""
    scaled = (on_mass * mass, on_squares * mass * mass)  # in float64: each of the gradients may be very large
    narrow = (x.to(accumulator(logits.dtype)) for x in scaled)
    return flat.unsqueeze(-1), mass.unsqueeze(-1), *(x.unsqueeze(-1) for x in narrow)


def every_row(logits: Tensor, odds: Tensor, squares: Tensor) -> tuple[Tensor, Tensor]:
    """`spread_sums` by reading every row again; `odds` and `squares` have a last axis of size 1."""
    pairs = zip(_leads(logits), _relative_sums(logits), (widen(odds), squares), strict=True)
    flat, sharp = is_flat(odds, logits.shape[-1]), is_sharp(odds)
    mass, mass_squares = (torch.where(flat, x, torch.where(sharp, y, z)).squeeze(-1) for x, y, z in pairs)
    return mass, mass_squares


def some_rows(logits: Tensor, odds: Tensor, squares: Tensor) -> tuple[Tensor, Tensor]:
    """`spread_sums` on the CPU: only flat and sharp rows are read again, and few batches have any.

    On the CPU the program can look for these rows without waiting for a device.
    """
    mass, mass_squares = (torch.empty(odds.shape, dtype=squares.dtype).copy_(x) for x in (odds, squares))
    rows = logits.reshape(-1, logits.shape[-1])
    for which, sums in ((is_flat(odds, logits.shape[-1]), _leads), (is_sharp(odds), _relative_sums)):
        places = which.reshape(-1).nonzero().squeeze(-1)
        for some in places.split(max(1, block_elements(logits.device) // rows.shape[1])) if len(places) else ():
            first, second = sums(rows[some])
            mass.view(-1)[some], mass_squares.view(-1)[some] = first.squeeze(-1), second.squeeze(-1)
    return mass, mass_squares


_some_rows = torch.library.custom_op("torch_boc::some_rows", some_rows, mutates_args=())


@_some_rows.register_fake
def _(logits: Tensor, odds: Tensor, squares: Tensor) -> tuple[Tensor, Tensor]:
    return squares.new_empty(squares.shape), squares.new_empty(squares.shape)


def _leads(logits: Tensor) -> tuple[Tensor, Tensor]:
    """S and T of each row, with a last axis of 1. T is summed times 2^100: squares of leads below 1e-19 underflow."""
    z = logits.to(accumulator(logits.dtype))
    lead = (z - z.amax(-1, keepdim=True)).expm1_().neg_()
    beaten = torch.rsub(lead, 2.0**-99, alpha=2.0**-100)
    beaten = torch.div(lead, beaten) if torch.compiler.is_compiling() else torch.div(lead, beaten, out=beaten)
    mass = widen(lead.sum(-1, keepdim=True))
    return mass, widen(lead.mul_(beaten).sum(-1, keepdim=True)) * 2.0**-100


def _relative_sums(logits: Tensor) -> tuple[Tensor, Tensor]:
    """R and Q of each sharp row, with a last axis of 1. Every u is below 2^-100, so that 1 + u is 1."""
    z = logits.to(accumulator(logits.dtype))
    below = z - z.amax(-1, keepdim=True)
    rivals = below.masked_fill(below == 0.0, -torch.inf)  # a sharp row has one top
    second = rivals.amax(-1, keepdim=True).clamp_min(torch.finfo(z.dtype).min)  # finite, even if all are -inf
    relative = (rivals - second).exp()
    unit = widen(second).exp()
    return unit * relative.sum(-1, keepdim=True), unit * unit * relative.square().sum(-1, keepdim=True)


def gradient(logits: Tensor, flat: Tensor, mass: Tensor, on_mass: Tensor, on_squares: Tensor) -> Tensor:
    """The gradient of the logits from the gradients of both sums.

    The first sum is the `mass`. `on_mass` is the gradient of the first sum times the mass, and `on_squares` is the
    gradient of the second sum times the square of the mass.

    With w = u / (1 + u) and t = v / (2 - v) = tanh((z_top - z) / 2):

        d R = u    d Q = u w (2 - w)    d S = -u    d T = -u t (2 + t)

    Everything is divided by the mass before it is multiplied, so that all numbers stay in the range of float32. The
    mass itself is in float64.
    """
    prediction, _, below = find_top(logits)
    loses = torch.sigmoid(below)
    sign = 1.0 - 2.0 * flat
    nothing = mass < torch.finfo(mass.dtype).tiny  # False for NaN
    log_mass = torch.where(nothing, 1.0, mass).log().to(below.dtype)
    share = (below - log_mass).exp()  # u / mass
    part = torch.where(flat, torch.tanh(below * -0.5), loses)
    part_share = torch.where(flat, part / torch.where(flat, mass, 1.0).to(below.dtype), share * (1.0 - loses))
    each = on_mass + on_squares * part_share * (2.0 - sign * part)
    is_top = torch.arange(logits.shape[-1], device=logits.device) == prediction
    rivals = torch.where(is_top | nothing, 0.0, share * sign * each)
    return torch.where(is_top, -rivals.sum(-1, keepdim=True), rivals).to(logits.dtype)
