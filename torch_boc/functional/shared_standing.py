"""How a given class stands among the others of its row, where the classes are sharded over processes."""

import torch
import torch.distributed as dist
from torch import Tensor

from ..core.blocks import blockwise
from ..core.precision import accumulator, widen
from .shards import Part


def shared_standing(part: Part) -> tuple[Tensor, Tensor, Tensor]:
    """The logit of the target, and `core.standing.standing` over the classes of all processes; there is no gradient.

    The processes exchange two times: the logit of the target, which one of them has, and the sums.
    """
    assert part.target is not None
    place = (part.target - part.start).unsqueeze(-1)
    with torch.no_grad():
        (own,) = blockwise(lambda z, i: (_own_logit(z, i),), part.rows, place)
        own = own.contiguous()
        dist.all_reduce(own, group=part.group)
        (sums,) = blockwise(lambda *x: (_sums(*x),), part.rows, place, own.unsqueeze(-1))
        sums = sums.contiguous()
        dist.all_reduce(sums, group=part.group)
    lost, ahead = sums.unbind(-1)
    return own, lost, ahead.long()


def _own_logit(rows: Tensor, place: Tensor) -> Tensor:
    """The logit at `place`, in float64; 0 on a process that has another part of the classes."""
    places = torch.arange(rows.shape[-1], device=rows.device)
    return widen(torch.where(places == place, rows, 0.0).sum(-1))


def _sums(rows: Tensor, place: Tensor, own: Tensor) -> Tensor:
    z = rows.to(accumulator(rows.dtype))
    above, places = z - own.to(z.dtype), torch.arange(z.shape[-1], device=z.device)
    chances = torch.sigmoid(above).masked_fill(places == place, 0.0)
    return torch.stack([widen(chances.sum(-1)), widen((above > 0.0).sum(-1))], -1)
