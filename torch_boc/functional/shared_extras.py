"""The numbers of `core.extras` for logits whose classes are spread over processes; see `shards.py`.

The log of the odds and the tempered loss take one number per row from each process. The other two need the largest
logits of the whole row, and each process sends the largest of its own: 100, or a fifth of the classes if that is more.
"""

import torch
import torch.distributed as dist
from torch import Tensor

from ..core.blocks import blockwise
from ..core.extras import LARGEST, TEMPERATURE, generalized_entropy, log_rest, nearest_rivals, tempered_losses, top_margin
from ..core.precision import accumulator, widen
from ..core.rows import Rows
from .shards import Part


def shared_extras(part: Part, sums: Rows, names: tuple[str, ...]) -> dict[str, Tensor]:
    """The numbers with these names for whole rows; `sums` are those of `shared_sums`, in float64."""
    found = {}
    with torch.no_grad():
        if "log_odds" in names or "gen" in names:
            found["log_odds"] = -_from_all(part, _own(part, sums, log_rest)).logsumexp(0)
        if "tempered_loss" in names:
            found["tempered_loss"] = _from_all(part, _own(part, sums, lambda x: tempered_loss(x, TEMPERATURE))).sum(0)
        if "top_margin" in names or "gen" in names:
            below = _largest(part) - sums.top.unsqueeze(-1)
            found["top_margin"] = top_margin(below, nearest_rivals(part.classes))
            is_first = torch.arange(below.shape[-1], device=below.device) == 0
            found["gen"] = generalized_entropy(below.masked_fill(is_first, -torch.inf), -found.get("log_odds", sums.top))
    undefined = sums.top - sums.top  # NaN where the top is NaN or infinite
    return {name: found[name] + undefined for name in names}


def _own(part: Part, sums: Rows, function) -> Tensor:  # type: ignore[no-untyped-def]
    """`function` of how far the rivals of this process are below the top of the whole row."""

    def numbers(rows: Tensor, top: Tensor, prediction: Tensor) -> tuple[Tensor]:
        z = rows.to(accumulator(rows.dtype))
        is_top = torch.arange(z.shape[-1], device=z.device) == prediction
        # A process without classes has one rival that is infinitely far below.
        far = z.new_full((*z.shape[:-1], 1), -torch.inf)
        return (function(torch.cat([(z - top.to(z.dtype)).masked_fill(is_top, -torch.inf), far], -1)),)

    columns = sums.top.unsqueeze(-1), (sums.prediction - part.start).unsqueeze(-1)
    return blockwise(numbers, part.rows, *columns)[0]


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
