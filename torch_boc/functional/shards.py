"""Logits that are a DTensor: the part that this process holds, and sums over classes that are spread over processes.

After a tensor-parallel model, each process has some of the classes of every row. No process needs the logits of the
other processes. Each process finds the largest of its own logits, and all exchange two numbers per row: its value and
its class. Then each process computes the sums of `core.rows` and `core.spread` over its own classes, relative to the
largest logit of all. The sums are added up: six numbers per row, two for `surprise` and `margin`, one for a target.
"""

import sys
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from ..core.blocks import blockwise
from ..core.precision import accumulator, widen
from ..core.rows import Rows
from ..core.spread import is_flat, is_sharp
from ..core.top import find_top
from ..kernels.dtensors import is_distributed
from .checks import check_target


class Part(NamedTuple):
    """The part of logits of shape (..., C) that this process holds.

    Attributes:
        rows: plain logits of shape (..., c), for c of the C classes.
        classes: C.
        start: the first of the c classes.
        group: the processes that share the classes; None if this process has all classes.
        target: the targets of these rows, or None.
    """

    rows: Tensor
    classes: int
    start: int = 0
    group: Any = None
    target: Tensor | None = None


def own_part(rows: Any, target: Tensor | None = None) -> Part:
    """Return the part of a DTensor of shape (..., C) that this process holds, or raise if it cannot be probed.

    The target is a DTensor as well, or a plain tensor with the targets of the rows of this process.
    """
    mesh, classes, axes = rows.device_mesh, rows.shape[-1], _class_axes(rows)
    if axes and rows.requires_grad and torch.is_grad_enabled():
        raise ValueError(
            "expected logits without a gradient where the classes are sharded over processes, got logits that require "
            "one; give logits.detach(), or logits.redistribute(placements=[Replicate()]) where a gradient is needed"
        )
    part = Part(rows.to_local(), classes)
    if axes:
        each = -(-classes // mesh.size(axes[0]))  # as torch.chunk divides them
        start = min(mesh.get_coordinate()[axes[0]] * each, classes)
        part = part._replace(start=start, group=mesh.get_group(axes[0]))
        if part.rows.shape[-1] != min(each, classes - start):
            raise ValueError(
                f"expected {min(each, classes - start)} of the {classes} classes on this process, as torch.chunk "
                f"divides them, got {part.rows.shape[-1]}; make the logits with distribute_tensor"
            )
    if target is None:
        return part
    own = _own_target(target, rows) if is_distributed(target) else target
    return part._replace(target=check_target(own, part.rows.shape[:-1]))


def _class_axes(rows: Any) -> list[int]:
    """Return the axes of the mesh over which the classes are sharded, at most one, or raise for other placements."""
    tensor, got = sys.modules["torch.distributed.tensor"], f"got placements {tuple(rows.placements)}"
    if any(type(x) not in (tensor.Shard, tensor.Replicate) for x in rows.placements):
        remedy = "redistribute them, as logits.redistribute(placements=[Shard(-1)])"
        raise ValueError(f"expected logits that are sharded or replicated, {got}; {remedy}")
    if rows.device_mesh.get_coordinate() is None:
        raise ValueError(f"expected a process of the mesh {rows.device_mesh}, got rank {dist.get_rank()}")
    axes = [i for i, x in enumerate(rows.placements) if x.is_shard(rows.ndim - 1)]
    if len(axes) > 1:
        raise ValueError(f"expected classes that are sharded over one axis of the mesh, {got}")
    return axes


def _own_target(target: Any, rows: Any) -> Tensor:
    """The targets of the rows that this process holds."""
    tensor = sys.modules["torch.distributed.tensor"]
    placements = tuple(tensor.Replicate() if x.is_shard(rows.ndim - 1) else x for x in rows.placements)
    if target.placements != placements or target.device_mesh != rows.device_mesh:
        raise ValueError(
            f"expected a target with placements {placements} on the mesh of the logits, got {tuple(target.placements)} "
            f"on {target.device_mesh}; redistribute it, or give each process the plain targets of its own rows"
        )
    own: Tensor = target.to_local()
    return own


def shared_sums(part: Part, *, extras: bool = False) -> tuple[Rows, Tensor | None]:
    """The sums of whole rows, and the target's distance below the top. All processes of the group get the same.

    The sums are equal to `core.rows.row_sums` up to rounding. The prediction is the same: if several classes have the
    largest logit, it is the first of them. There is no gradient.
    """
    with torch.no_grad():
        prediction, top = _shared_top(part)
        columns = [top, prediction - part.start]
        if part.target is not None:
            columns.append((part.target - part.start).unsqueeze(-1))
        sums = blockwise(lambda *x: (_own_sums(*x, extras=extras),), part.rows, *columns)[0].contiguous()
        dist.all_reduce(sums, group=part.group)
    return _as_rows(part, prediction.squeeze(-1), top.squeeze(-1), list(sums.unbind(-1)), extras)


def _shared_top(part: Part) -> tuple[Tensor, Tensor]:
    """The first class with the largest logit of each row, or with NaN, and its logit. The last axis has size 1."""
    rows, size = part.rows, (*part.rows.shape[:-1], 1)
    if rows.shape[-1]:
        place, top = blockwise(lambda z: find_top(z)[:2], rows)
        own = torch.cat([widen(top), widen(place + part.start)], -1)
    else:  # this process has no classes: there are fewer classes than processes
        own = widen(torch.cat([rows.new_full(size, -torch.inf), rows.new_full(size, part.classes)], -1))
    everyone = own.new_empty(dist.get_world_size(part.group), *own.shape)
    dist.all_gather_into_tensor(everyone.view(-1), own.reshape(-1), group=part.group)
    tops, places = everyone.split(1, -1)
    top = tops.amax(0)
    # The lowest class, not the first process: the mesh and the group can have the processes in different orders.
    prediction = torch.where((tops == top) | tops.isnan(), places, float(part.classes)).amin(0)
    return prediction.long(), top


def _own_sums(rows: Tensor, top: Tensor, prediction: Tensor, target: Any = None, *, extras: bool) -> Tensor:
    """The sums over the classes of this process, in float64, on the last axis.

    They are R, Q, S and T of `core.spread`, then R and Q computed relative to the largest rival of this process, which
    sharp rows need. `prediction` and `target` count from the first class of this process; a class of another process is
    out of range.
    """
    z = rows.to(accumulator(rows.dtype))
    below, places = z - top.to(z.dtype), torch.arange(z.shape[-1], device=z.device)
    rivals = below.masked_fill(places == prediction, -torch.inf)
    loses = torch.sigmoid(rivals)
    odds = loses / torch.rsub(loses, 2.0**-100, alpha=2.0**-100)  # times 2^100, as in `core.rows`
    lead = -torch.expm1(below)
    sums = [odds.sum(-1), (loses * odds).sum(-1), lead.sum(-1), (lead * (lead / (2.0**-99 - lead * 2.0**-100))).sum(-1)]
    scales = [2.0**-100, 2.0**-100, 1.0, 2.0**-100]
    columns = [widen(x) * scale for x, scale in zip(sums, scales, strict=True)] + _relative_sums(rivals)
    if extras:
        surprise = (below.clamp_min(-1e30) * odds).sum(-1)
        columns += [widen(surprise) * -(2.0**-100), widen(-below.sum(-1))]
    if target is not None:
        columns.append(widen(torch.where(places == target, z, 0.0).sum(-1)))
    return torch.stack(columns, -1)


def _relative_sums(rivals: Tensor) -> list[Tensor]:
    """The sums of u and of its square, for u so small that 1 + u rounds to 1."""
    if not rivals.shape[-1]:
        return [widen(rivals.sum(-1))] * 2
    largest = rivals.amax(-1, keepdim=True).clamp_min(torch.finfo(rivals.dtype).min)
    relative, unit = (rivals - largest).exp(), widen(largest).exp().squeeze(-1)
    return [unit * relative.sum(-1), unit * unit * relative.square().sum(-1)]


def _as_rows(
    part: Part, prediction: Tensor, top: Tensor, sums: list[Tensor], extras: bool
) -> tuple[Rows, Tensor | None]:
    """The fields of Rows, in their dtypes, from the sums over all processes."""
    undefined, narrow = top - top, accumulator(part.rows.dtype)  # NaN if the top is NaN or infinite
    odds, squares = (sums[0] + undefined).to(narrow), sums[1] + undefined
    flat, sharp = is_flat(odds, part.classes), is_sharp(odds)
    pairs = ((sums[2], sums[4], widen(odds)), (sums[3], sums[5], squares))
    mass, mass_squares = (torch.where(flat, x, torch.where(sharp, y, z)) for x, y, z in pairs)
    rows = Rows(prediction, (top + undefined).to(narrow), odds, squares, mass=mass, mass_squares=mass_squares)
    if extras:
        rows = rows._replace(surprise=(sums[6] + undefined).to(narrow), margin=(sums[7] + undefined).to(narrow))
    if part.target is None:
        return rows, None
    is_class = (part.target >= 0) & (part.target < part.classes)
    return rows, torch.where(is_class, top - sums[-1], undefined)
