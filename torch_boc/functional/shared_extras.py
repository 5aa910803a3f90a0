"""The numbers of `core.extras` for logits whose classes are spread over processes; see `shards.py`.

The log of the odds and the tempered loss take two numbers per row from each process. The other two need the largest
logits of the whole row, and each process sends the largest of its own: 100, or more if N, the number of the nearest
rivals, is more.
"""

import torch
import torch.distributed as dist
from torch import Tensor

from ..core.blocks import blockwise
from ..core.extras import (
    LARGEST,
    TEMPERATURE,
    generalized_entropy,
    log_rest,
    nearest_rivals,
    tempered_losses,
    top_margin,
)
from ..core.precision import accumulator, widen
from ..core.rows import Rows
from .shards import Part


def shared_extras(part: Part, sums: Rows, names: tuple[str, ...]) -> dict[str, Tensor]:
    """The numbers with these names for whole rows; `sums` are those of `shared_sums`, in float64."""
    if not names:
        return {}
    with torch.no_grad():
        columns = sums.top.unsqueeze(-1), (sums.prediction - part.start).unsqueeze(-1)
        rest, losses = _from_all(part, blockwise(_own_numbers, part.rows, *columns)[0]).unbind(-1)
        found = {"log_odds": -rest.logsumexp(0), "tempered_loss": losses.sum(0) / (part.classes - 1)}
        if "top_margin" in names or "gen" in names:
            below = (_largest(part) - sums.top.unsqueeze(-1)).to(accumulator(part.rows.dtype))
            found["top_margin"] = top_margin(below, nearest_rivals(part.classes))
            is_first = torch.arange(below.shape[-1], device=below.device) == 0
            found["gen"] = generalized_entropy(below.masked_fill(is_first, -torch.inf), -found["log_odds"])
        undefined = sums.top - sums.top  # NaN where the top is NaN or infinite
        return {name: found[name] + undefined for name in names}


def _own_numbers(rows: Tensor, top: Tensor, prediction: Tensor) -> tuple[Tensor]:
    """The log of the odds of the rivals that this process has, and their tempered losses, on the last axis."""
    z = rows.to(accumulator(rows.dtype))
    is_top = torch.arange(z.shape[-1], device=z.device) == prediction
    rivals = (z - top.to(z.dtype)).masked_fill(is_top, -torch.inf)
    # One more rival, infinitely far below: a process may have no classes.
    rivals = torch.nn.functional.pad(rivals, (0, 1), value=-torch.inf)
    return (torch.stack([log_rest(rivals), tempered_losses(rivals, TEMPERATURE)], -1),)


def _largest(part: Part) -> Tensor:
    """The largest logits of each whole row in falling order, in float64."""
    number = min(part.classes, max(LARGEST, nearest_rivals(part.classes) + 1))
    own = widen(part.rows.topk(min(number, part.rows.shape[-1]), -1).values)
    padded = torch.nn.functional.pad(own, (0, number - own.shape[-1]), value=-torch.inf)
    return torch.cat(_from_all(part, padded).unbind(0), -1).topk(number, -1).values


def _from_all(part: Part, own: Tensor) -> Tensor:
    """The tensors of all processes of the group, along a new first axis."""
    everyone = own.new_empty(dist.get_world_size(part.group), *own.shape)
    dist.all_gather_into_tensor(everyone.view(-1), own.reshape(-1), group=part.group)
    return everyone
