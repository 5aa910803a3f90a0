"""Hashes of the rows of a tensor, and of whole tensors of any kind."""

import hashlib
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.parameter import UninitializedBuffer, UninitializedParameter
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

# How many rows and 32-bit words are hashed at once: what fits into the cache of a CPU core, or keeps a GPU busy.
CPU_ROWS, CPU_WORDS = 64, 2**15
GPU_ROWS, GPU_WORDS = 2**12, 2**24
BLOCK_BYTES = 2**18
SPARSE = {
    torch.sparse_csr: ("crow_indices", "col_indices", "values"),
    torch.sparse_bsr: ("crow_indices", "col_indices", "values"),
    torch.sparse_csc: ("ccol_indices", "row_indices", "values"),
    torch.sparse_bsc: ("ccol_indices", "row_indices", "values"),
}


def hash_rows(rows: Tensor) -> Tensor:
    """A 64-bit hash of the bytes of each row, the same on every device; the host does not wait for the device.

    Multilinear hashing: the sum of x_j w_j modulo 2^64 over the 32-bit words x_j of the row, with fixed weights w_j of
    64 random bits. Whichever bits of the words differ, at least 33 bits of a weight tell the two rows apart. Two
    different rows that nobody made to collide have the same hash with a chance below 2^-32.

    Args:
        rows: (N, ...), dense.

    >>> first, swapped, again = hash_rows(torch.tensor([[1.0, 2.0], [2.0, 1.0], [1.0, 2.0]])).tolist()
    >>> first == again, first == swapped
    (True, False)
    """
    words = _words(rows)
    weights = _weights(words.shape[1], words.device)
    some, many = (CPU_ROWS, CPU_WORDS) if words.device.type == "cpu" else (GPU_ROWS, GPU_WORDS)
    together = max(some, many // max(1, words.shape[1]))  # the shorter the rows, the more of them
    return torch.cat([_mix(part, weights, many // some) for part in words.split(together)])


def _mix(words: Tensor, weights: Tensor, step: int) -> Tensor:
    hashes = torch.zeros(len(words), dtype=torch.int64, device=words.device)
    for part, weight in zip(words.split(step, 1), weights.split(step), strict=True):
        # A matrix product needs no temporary table of the products, but on GPUs there is none for integers.
        hashes += part.long() @ weight if part.device.type == "cpu" else (part * weight).sum(1)
    return hashes


def _words(rows: Tensor) -> Tensor:
    """The bytes of each row as 32-bit words; the last word is filled up with zeros."""
    if not rows.numel():
        return torch.zeros(len(rows), 0, dtype=torch.int32, device=rows.device)
    flat = _bytes(rows).view(len(rows), -1)
    if flat.shape[1] % 4:
        flat = functional.pad(flat, (0, -flat.shape[1] % 4))
    return (flat if flat.storage_offset() % 4 == 0 else flat.clone()).view(torch.int32)


def _bytes(x: Tensor) -> Tensor:
    """All bytes of the values of a dense tensor, in their order."""
    return x.detach().resolve_conj().resolve_neg().contiguous().reshape(-1).view(torch.uint8)


def _weights(count: int, device: torch.device) -> Tensor:
    """Odd numbers of 64 bits that look random: the finalizer of splitmix64, with shifts that keep the sign."""
    x = torch.arange(1, count + 1, device=device) * -7046029254386353131
    x = (x ^ (x >> 30)) * -4658895280553007687
    x = (x ^ (x >> 27)) * -7723592293110705685
    return (x ^ (x >> 31)) | 1


def digest(tensors: Iterable[Tensor]) -> str:
    """A short text computed from the shapes, dtypes and all bytes of dense tensors; it differs when any of these do."""
    state = hashlib.sha256()
    for x in tensors:
        state.update(f"{tuple(x.shape)} {x.dtype} ".encode())
        state.update(_bytes(x).cpu().numpy().tobytes())
    return state.hexdigest()[:16]


def hash_tensor(x: Tensor) -> bytes | None:
    """The same for a tensor of any kind (sparse, quantised, a subclass); None if it has no values to read.

    The values are read once, on their device. Only 8 bytes for each `BLOCK_BYTES` of them are copied to the CPU.
    """
    state = hashlib.sha256()
    parts = components(x)
    if parts is None:
        return None
    shape = None if x.is_nested else tuple(x.shape)  # a nested tensor has only the shapes of its parts
    state.update(f"{type(x).__name__} {x.layout} {shape} {x.dtype}".encode())
    for part in parts:
        state.update(f"{tuple(part.shape)} {part.dtype}".encode())
        state.update(_hash_blocks(part).cpu().numpy().tobytes())
    return state.digest()


def _hash_blocks(x: Tensor) -> Tensor:
    flat = _bytes(x)
    whole = len(flat) // BLOCK_BYTES * BLOCK_BYTES
    return torch.cat([hash_rows(flat[:whole].view(-1, BLOCK_BYTES)), hash_rows(flat[whole:][None])])


def components(x: Tensor) -> list[Tensor] | None:
    """The dense tensors that `x` consists of; None if it has no values: on the meta device, or uninitialised."""
    if isinstance(x, UninitializedBuffer | UninitializedParameter) or x.device.type == "meta":
        return None
    inner: Any = x
    if is_traceable_wrapper_subclass(inner):
        return _joined(components(getattr(inner, name)) for name in inner.__tensor_flatten__()[0])
    if x.layout == torch.sparse_coo:
        x = x.detach().coalesce()
        return [x.indices(), x.values()]
    if x.layout in SPARSE:
        return [getattr(x.detach(), name)() for name in SPARSE[x.layout]]
    if x.is_nested:
        return _joined(map(components, x.unbind()))
    if x.is_quantized:
        return [x.detach().int_repr(), x.detach().dequantize()]
    return [x if x.layout == torch.strided else x.to_dense()]


def _joined(lists: Iterable[list[Tensor] | None]) -> list[Tensor] | None:
    found = list(lists)
    return None if None in found else [x for part in found if part is not None for x in part]
