"""The one pass over the logits: every quantity of the probe is a function of a few sums per row.

With u_j = exp(z_j - z_top) over the rivals j (the classes other than the top one):

    odds      R = sum_j u_j
    squares   Q = sum_j u_j^2 / (1 + u_j)
    entropy_sum      sum_j u_j (z_top - z_j)
    margin        sum_j (z_top - z_j)

The top class itself has u = 1. It is never added, because in float32 an R below 1e-7 would be lost next to it. Q is
summed times 2^100, because the square of a u below 1e-19 underflows in float32. With this factor, the sum of 10^8
classes does not overflow, and u may be as small as 1e-34. The factor is written as a number wherever it is used,
because torch.compile treats a float with a name as an input.

The concentration is computed from two more sums, `mass` and `mass_squares`, chosen for each row such that nothing
cancels. With v_j = 1 - u_j, how far each rival is below the top:

    odds of the rivals       R = sum_j u_j        Q = sum_j u_j^2 / (1 + u_j)
    leads over the rivals    S = sum_j v_j        T = sum_j v_j^2 / (2 - v_j)

R + S = C - 1 and 4 Q = T + 2 (C - 1) - 3 S: each pair follows from the other. In finite precision this is not
true: if the logits are nearly equal, R is C - 1 up to rounding, while S, computed by exp(x) - 1, has all its digits. A
row is flat if R > (C - 1) / 2, and then its masses are S and T. A row is sharp if R < 2^-100: then float32 cannot hold
its Q, not even times 2^100. The R and Q of a sharp row are summed relative to its second largest logit.
"""

from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from .chunking import recompute_in_backward
from .dtypes import accumulation_dtype, to_wide, wide_dtype
from .topk import find_top


class RowSums(NamedTuple):
    """The sums of each row and its top class, all without the class axis; entropy_sum and margin only if asked for.

    `squares`, `mass` and `mass_squares` are in float64 (float32 on MPS), the others in the dtype in which the sums are
    taken. The fields are those of `schema.SUMS`.
    """

    prediction: Tensor
    top: Tensor
    odds: Tensor
    squares: Tensor
    mass: Tensor
    mass_squares: Tensor
    entropy_sum: Tensor | None = None
    margin: Tensor | None = None


def row_sums(logits: Tensor, extras: bool = False) -> RowSums:
    """The sums over the last axis of `logits`, with `entropy_sum` and `margin` if `extras` are asked for."""
    if torch.compiler.is_compiling():  # a compiler gets the two parts separately, and fuses what it needs of them
        prediction, top, odds, squares, *more = _first_sums[extras](logits)
        columns = (x.detach().unsqueeze(-1) for x in (prediction, top, odds, squares))
        return RowSums(prediction, top, odds, squares, *_masses(logits, *columns), *more)
    return RowSums(*_all_sums[extras](logits))


def is_flat(odds: Tensor, num_classes: int) -> Tensor:
    """Which rows have rivals so near the top that their leads must be summed. Rows of NaN are not flat."""
    return odds > (num_classes - 1) * 0.5


def is_sharp(odds: Tensor) -> Tensor:
    """Which rows have odds so small that float32 cannot hold their squares. Rows of NaN are not sharp."""
    return odds < 2.0**-100


def _sums(logits: Tensor, extras: bool) -> tuple[Tensor, ...]:
    """Prediction, top, odds and squares; with `extras` also entropy_sum and margin."""
    prediction, top, below = find_top(logits)
    margin = -below.sum(-1) if extras else None
    finite = _finite(below) if extras else None
    loses, odds = _coins(below, prediction)
    top = top.squeeze(-1)
    undefined = top - top  # 0, or NaN where the top is NaN or infinite: such a row has no defined result
    rows = [prediction.squeeze(-1), top + undefined, torch.add(undefined, odds.sum(-1), alpha=2.0**-100)]
    rows += [torch.add(undefined, to_wide(loses.mul_(odds).sum(-1)), alpha=2.0**-100)]
    if finite is not None and margin is not None:
        rows += [torch.add(undefined, finite.mul_(odds).sum(-1), alpha=-(2.0**-100)), margin + undefined]
    return tuple(rows)


def _coins(below: Tensor, prediction: Tensor) -> tuple[Tensor, Tensor]:
    """The chance u / (1 + u) that the top loses to each class, and 2^100 u; both 0 for the top itself.

    The memory of `below` is overwritten, because memory that is used again stays in the cache.
    """
    if torch.compiler.is_compiling():
        odds = _put(below.exp(), prediction, 0.0)
        return odds / (1 + odds), odds * 2.0**100
    # exp is not used: where it underflows, as it does for confident networks, eager exp is slow on the CPU.
    loses = below.sigmoid_().scatter_(-1, prediction, 0.0)
    odds = torch.rsub(loses, 2.0**-100, alpha=2.0**-100)
    return loses, torch.div(loses, odds, out=odds)


def masses(logits: Tensor, prediction: Tensor, top: Tensor, odds: Tensor, squares: Tensor) -> tuple[Tensor, Tensor]:
    """S and T of the flat rows of `logits`, R and Q of the others; all but the logits have a last axis of size 1.

    On the CPU the program can look for flat and sharp rows without waiting for a device. Few batches have any, and only
    these rows are read again.
    """
    flat = is_flat(odds, logits.shape[-1])
    if not _has_values(logits):
        return _masses_of_rows(logits, prediction, top, flat)
    sums = tuple(torch.empty(odds.shape[:-1], dtype=squares.dtype).copy_(x.squeeze(-1)) for x in (odds, squares))
    places = (flat | is_sharp(odds)).reshape(-1).nonzero().squeeze(-1)
    if len(places):
        rows = (x.reshape(-1, x.shape[-1])[places] for x in (logits, prediction, top, flat))
        for out, value in zip(sums, _masses_of_rows(*rows), strict=True):
            out.view(-1)[places] = value
    return sums[0], sums[1]


def _has_values(x: Tensor) -> bool:
    """Whether values can be read at once: on the CPU, and neither fake, nor batched, nor seen by a dispatch mode."""
    if torch.compiler.is_compiling() or type(x) not in (Tensor, torch.nn.Parameter) or x.device.type != "cpu":
        return False
    watched = torch._C._are_functorch_transforms_active() or torch._C._len_torch_dispatch_stack()
    return not watched and not torch._C._is_tracing()


def _masses_of_rows(logits: Tensor, prediction: Tensor, top: Tensor, flat: Tensor) -> tuple[Tensor, Tensor]:
    """The masses of rows of any kind: a sum of v and one of v^2 / (1 + u), the second times 2^100.

    v is -(1 - u) in flat rows. In others, it is u relative to that of the second largest logit, as sharp rows need it.
    """
    below = logits.to(accumulation_dtype(logits.dtype)) - top
    lead, wide = below.expm1(), wide_dtype(below.device)
    rivals = _put(below, prediction, -torch.inf)
    second = rivals.amax(-1, keepdim=True).clamp_min(torch.finfo(below.dtype).min)  # finite, even if all are -inf
    each = torch.where(flat, lead, (rivals - second).exp())
    unit = to_wide(second).exp().masked_fill(flat, -1.0).squeeze(-1)
    mass = unit * each.sum(-1, dtype=wide)
    scaled = (each * (each / torch.rsub(lead, 2.0**-99, alpha=-(2.0**-100)))).sum(-1, dtype=wide)
    return mass, scaled * 2.0**-100 * unit * unit


def _all(logits: Tensor, extras: bool) -> tuple[Tensor, ...]:
    """All sums in the order of `RowSums`."""
    prediction, top, odds, squares, *more = _sums(logits, extras)
    columns = (x.unsqueeze(-1) for x in (prediction, top, odds, squares))
    return prediction, top, odds, squares, *masses(logits, *columns), *more


def gradient(logits: Tensor, *grads: Tensor | None) -> Tensor:
    """The gradient of the logits from the gradients of the sums but the masses, which have a last axis of size 1.

    They are those of top, odds, squares and, if they are given, of entropy_sum and margin. The top logit gets the
    gradient of `top`, minus the sum of what its rivals get.
    """
    on_top, on_odds, on_squares, on_entropy_sum, on_margin = [*grads, None, None][:5]
    prediction, largest, below = find_top(logits)
    undefined = largest - largest  # NaN where the top is infinite: such a row has no gradient
    loses = _put(torch.sigmoid(below), prediction, 0.0)
    each = undefined if on_odds is None else on_odds + undefined
    if on_squares is not None:
        # d(u) = u and d(u^2/(1+u)) = u w (2 - w) with w = u/(1+u). The gradient of Q grows as 1/R^2, and float32
        # cannot hold it: therefore it stays scaled down until it is multiplied by w.
        small = (on_squares * 2.0**-100).to(loses.dtype)
        each = each + (small * loses) * torch.rsub(loses, 2.0**101, alpha=2.0**100)
    if on_entropy_sum is not None:
        each = each - on_entropy_sum * (1 + _finite(below))
    rivals = loses / (1 - loses) * each
    if on_margin is not None:
        rivals = _put(rivals - on_margin, prediction, 0.0)
    on_rivals = rivals.sum(-1, keepdim=True)
    return _put(rivals, prediction, -on_rivals if on_top is None else on_top - on_rivals).to(logits.dtype)


def mass_gradient(
    logits: Tensor, odds: Tensor, mass: Tensor, on_mass: Tensor | None, on_squares: Tensor | None
) -> Tensor:
    """The gradient of the logits from the gradients of both masses; all but the logits have a last axis of size 1.

    With w = u / (1 + u) and t = v / (2 - v) = tanh((z_top - z) / 2):

        d R = u    d Q = u w (2 - w)    d S = -u    d T = -u t (2 + t)

    The gradients can be very large. Everything is divided by the mass, which is in float64, before it is multiplied, so
    that all numbers stay in the range of float32.
    """
    prediction, _, below = find_top(logits)
    flat = is_flat(odds, logits.shape[-1])
    loses = torch.sigmoid(below)
    sign = 1.0 - 2.0 * flat
    nothing = mass < torch.finfo(mass.dtype).tiny  # False for NaN
    log_mass = torch.where(nothing, 1.0, mass).log().to(below.dtype)
    share = (below - log_mass).exp()  # u / mass
    part = torch.where(flat, torch.tanh(below * -0.5), loses)
    part_share = torch.where(flat, part / torch.where(flat, mass, 1.0).to(below.dtype), share * (1.0 - loses))
    each = torch.zeros_like(below) if on_mass is None else (on_mass * mass).to(below.dtype)
    if on_squares is not None:
        each = each + (on_squares * mass * mass).to(below.dtype) * part_share * (2.0 - sign * part)
    is_top = torch.arange(logits.shape[-1], device=logits.device) == prediction
    rivals = torch.where(is_top | nothing, 0.0, share * sign * each)
    return torch.where(is_top, -rivals.sum(-1, keepdim=True), rivals).to(logits.dtype)


def gradient_of_all(logits: Tensor, odds: Tensor, mass: Tensor, *grads: Tensor | None) -> Tensor:
    """The gradient of the logits from those of all sums but the prediction, in the order of `RowSums`."""
    on_top, on_odds, on_squares, on_mass, on_mass_squares, *on_extras = grads
    whole = gradient(logits, on_top, on_odds, on_squares, *on_extras)
    if on_mass is None and on_mass_squares is None:
        return whole
    return whole + mass_gradient(logits, odds, mass, on_mass, on_mass_squares)


def _finite(below: Tensor) -> Tensor:
    """`below` with a finite number instead of -inf: a weight of 0 then gives 0 and not NaN."""
    return below.clamp_min(-1e30)


def _put(x: Tensor, index: Tensor, value: Tensor | float) -> Tensor:
    """`x` with `value` at `index` of the last axis; a select when compiled, because it fuses and a scatter does not."""
    if torch.compiler.is_compiling():
        return torch.where(torch.arange(x.shape[-1], device=x.device) == index, value, x)
    return x.scatter(-1, index, value)


_first_sums = {
    extras: recompute_in_backward(partial(_sums, extras=extras), lambda z, _, on: gradient(z, *on[1:]))
    for extras in (False, True)
}
_masses = recompute_in_backward(
    masses, lambda z, rows, on, prediction, top, odds, squares: mass_gradient(z, odds, rows[0], *on)
)
_all_sums = {
    extras: recompute_in_backward(
        partial(_all, extras=extras), lambda z, rows, on: gradient_of_all(z, rows[2], rows[4], *on[1:])
    )
    for extras in (False, True)
}
