"""Two modes that watch every operation below autograd: one forbids reading values back, one measures live memory."""

import weakref
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

aten = torch.ops.aten

# Operations whose result, or the shape of whose result, depends on values: on a GPU the host must wait for each.
READS = {
    aten._local_scalar_dense, aten.item, aten.is_nonzero, aten.equal, aten.allclose, aten.nonzero, aten.nonzero_numpy,
    aten.argwhere, aten.masked_select, aten._unique, aten._unique2, aten.unique_dim, aten.unique_consecutive,
    aten.unique_dim_consecutive, aten.bincount, aten.repeat_interleave,
}  # fmt: skip
MASKABLE = {aten.index, aten.index_put, aten.index_put_, aten._index_put_impl_, aten._unsafe_index}


class HostSyncError(AssertionError):
    """An operation made the host wait for a value."""


class Counted(TorchDispatchMode):
    """Counts what a GPU would run: operations that are no views and only allocate nothing, and copies from or to it."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []
        self.waits: list[str] = []
        self.dtypes: set[torch.dtype] = set()
        self.float_sums = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        result = func(*args, **(kwargs or {}))
        packet, name = func.overloadpacket, str(func.overloadpacket)
        given, made = _tensors((args, kwargs)), _tensors(result)
        if made or func.namespace == "torch_boc" or packet is aten._foreach_copy_:
            aliases = [x.alias_info for x in func._schema.returns]
            is_view = any(x is not None and not x.is_write for x in aliases) or packet in FREE
            self.names += [] if is_view else [name]
        sides = {x.device.type for x in given if x.ndim}, {x.device.type for x in made}
        if _reads_back(packet, args, *sides) or (sides[0] == {"cpu"} and sides[1] - {"cpu"}):
            self.waits.append(name)
        self.dtypes |= {x.dtype for x in made if x.device.type != "cpu"}
        self.float_sums += packet is aten.cumsum and given[0].is_floating_point()
        return result


class NoHostSync(TorchDispatchMode):
    """Fails on any operation that reads a value back, and on copies from an accelerator to the CPU.

    What never reaches the dispatcher on the CPU, as `.tolist()` and `.numpy()`, is found with fake tensors instead.
    """

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        result = func(*args, **(kwargs or {}))
        before, after = ({x.device.type for x in _tensors(tree)} for tree in ((args, kwargs), result))
        if _reads_back(func.overloadpacket, args, before, after):
            raise HostSyncError(f"{func} reads a value back")
        return result


def _reads_back(packet: Any, args: tuple, before: set[str], after: set[str]) -> bool:
    masked = packet in MASKABLE and any(x.dtype in (torch.bool, torch.uint8) for x in _tensors(args[1]))
    return packet in READS or masked or bool(before - {"cpu"} and "cpu" in after)


# What only allocates memory, or nothing at all.
FREE = {aten.empty, aten.empty_like, aten.new_empty, aten.lift_fresh, aten.detach, torch.ops.prim.device}


class MemoryMeter(TorchDispatchMode):
    """Bytes held by storages that were made inside the mode: `live` now, and `peak` so far."""

    def __init__(self) -> None:
        super().__init__()
        self.live = self.peak = 0
        self._releases: dict[int, weakref.finalize] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        for tensor in _tensors((args, kwargs)):
            self._meet(tensor, made_here=False)
        result = func(*args, **kwargs)
        for tensor in _tensors(result):
            self._meet(tensor, made_here=True)
        self.peak = max(self.peak, self.live)
        return result

    def _meet(self, tensor: Tensor, *, made_here: bool) -> None:
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key not in self._releases:
            size = storage.nbytes() if made_here else 0
            self.live += size
            self._releases[key] = weakref.finalize(storage, self._part, key, size)

    def _part(self, key: int, size: int) -> None:
        self.live -= size
        del self._releases[key]


def _tensors(tree: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor)]


def _indexes_without_a_driver() -> bool:
    with FakeTensorMode():
        try:
            torch.empty(2, device="cuda")[:1]
        except RuntimeError:
            return False
    return True


needs_fake_gpu = pytest.mark.skipif(
    not _indexes_without_a_driver(), reason="this torch, as 2.7, asks for a driver to index fake tensors on a GPU"
)
