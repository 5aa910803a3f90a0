"""Two tensors have the same hash when they have the same values, shape and dtype, and otherwise not."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from tests.dispatch import NoHostSync
from torch_boc.inference import hashing
from torch_boc.inference.hashing import hash_rows, hash_tensor

DTYPES = (
    torch.bool,
    torch.uint8,
    torch.int16,
    torch.int64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.complex64,
    torch.float8_e4m3fn,
)


def numbers(*shape, dtype=torch.float32):
    generator = torch.Generator().manual_seed(0)
    if dtype == torch.bool:
        return torch.rand(shape, generator=generator) < 0.5
    if not dtype.is_floating_point and not dtype.is_complex:
        return torch.randint(100, shape, generator=generator, dtype=dtype)
    return torch.randn(shape, generator=generator).to(dtype)


def by_definition(row):
    """The sum of words times weights modulo 2^64, in Python's integers."""
    content = row.reshape(-1).view(torch.uint8).numpy().tobytes()
    content += bytes(-len(content) % 4)
    words = [int.from_bytes(content[i : i + 4], "little", signed=True) for i in range(0, len(content), 4)]
    weights = hashing._weights(len(words), torch.device("cpu")).tolist()
    total = sum(x * w for x, w in zip(words, weights, strict=True)) % 2**64
    return total - 2**64 if total >= 2**63 else total


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(5, 3), (70, 7, 3), (2, 0), (0, 4), (3,)], ids=str)
def test_the_definition(dtype, shape):
    rows = numbers(*shape, dtype=dtype)
    assert hash_rows(rows).tolist() == [by_definition(row) for row in rows]


def test_long_rows_in_pieces():
    rows = numbers(3, 2000)
    assert hashing.CPU_WORDS // hashing.CPU_ROWS < 2000
    assert hash_rows(rows).tolist() == [by_definition(row) for row in rows]


@given(st.integers(0, 199), st.integers(0, 31), st.integers(0, 199), st.integers(0, 31))
def test_any_one_or_two_bits_that_change(first, bit, second, other):
    """Among them two sign bits, in which sums of products modulo a power of 2 are weak."""
    row = numbers(1, 200).view(torch.int32)
    changed = row.clone()
    changed[0, first] ^= 1 << bit if bit < 31 else -(2**31)
    assert hash_rows(changed).item() != hash_rows(row).item()
    if (first, bit) != (second, other):
        changed[0, second] ^= 1 << other if other < 31 else -(2**31)
        assert hash_rows(changed).item() != hash_rows(row).item()


def test_orders_signs_and_thousands_of_rows():
    row = numbers(1000)
    orders = torch.stack([row[torch.randperm(1000)] for _ in range(300)])
    signs = torch.stack([row * torch.randint(2, (1000,)).mul(2).sub(1) for _ in range(300)])
    steps = torch.eye(1000) * 1e-3 + row
    rows = torch.cat([row[None], -row[None], row.flip(0)[None], orders, signs, steps])
    assert len(hash_rows(rows).unique()) == len(rows)


def test_strides_and_offsets_do_not_matter():
    images = numbers(4, 3, 5, 5)
    assert torch.equal(hash_rows(images), hash_rows(images.contiguous(memory_format=torch.channels_last)))
    odd = numbers(41, dtype=torch.uint8)[1:].view(5, 8)
    assert torch.equal(hash_rows(odd), hash_rows(odd.clone()))
    turned = numbers(6, 4, dtype=torch.complex64).conj()
    assert torch.equal(hash_rows(turned), hash_rows(turned.resolve_conj()))
    assert hash_tensor(images.transpose(1, 2)) == hash_tensor(images.transpose(1, 2).contiguous())


def test_nothing_is_read_back_from_a_device():
    with FakeTensorMode(), NoHostSync():
        assert hash_rows(torch.empty(4, 3, 8, 8, device="cuda")).device.type == "cuda"


@pytest.mark.gpu
def test_the_same_on_a_gpu():
    rows = numbers(5000, 33, dtype=torch.bfloat16)
    assert torch.equal(hash_rows(rows), hash_rows(rows.cuda()).cpu())
    assert hash_tensor(rows) == hash_tensor(rows.cuda())


def sparse(value):
    return torch.tensor([[0.0, 2.0, 0.0], [value, 0.0, 3.0]])


KINDS = {
    "dense": sparse,
    "scalar": lambda value: torch.tensor(value),
    "COO": lambda value: sparse(value).to_sparse(),
    "CSR": lambda value: sparse(value).to_sparse_csr(),
    "CSC": lambda value: sparse(value).to_sparse_csc(),
    "BSR": lambda value: sparse(value)[:, :2].to_sparse_bsr((1, 1)),
    "BSC": lambda value: sparse(value)[:, :2].to_sparse_bsc((1, 1)),
    "nested": lambda value: torch.nested.nested_tensor([sparse(value), sparse(0.5)[:1]]),
    "jagged": lambda value: torch.nested.nested_tensor([sparse(value), sparse(0.5)[:1]], layout=torch.jagged),
    "quantised": lambda value: torch.quantize_per_tensor(sparse(value), 0.25, 3, torch.qint8),
    "by channel": lambda value: torch.quantize_per_channel(
        sparse(value), torch.tensor([0.25, 0.5]), torch.tensor([0, 1]), 0, torch.qint8
    ),
    "parameter": lambda value: nn.Parameter(sparse(value)),
    "several blocks": lambda value: torch.cat([torch.zeros(200_001), torch.tensor([value])]),
}


@pytest.mark.filterwarnings("ignore:Sparse CS.* tensor support", "ignore:The PyTorch API of nested tensors")
@pytest.mark.filterwarnings("ignore:.*quantize")
@pytest.mark.parametrize("make", KINDS.values(), ids=KINDS.keys())
def test_tensors_of_every_kind(make):
    assert hash_tensor(make(1.0)) == hash_tensor(make(1.0))
    assert hash_tensor(make(1.0)) != hash_tensor(make(2.0))


def test_shape_dtype_and_scale_count():
    x = numbers(4, 6)
    others = [x.view(6, 4), x.view(torch.int32), x.view(-1), x.new_zeros(0), x.new_zeros(0, 3), x.new_zeros(3, 0)]
    assert len({hash_tensor(y) for y in (x, *others)}) == 7
    assert hash_tensor(torch.zeros(5, dtype=torch.uint8)) != hash_tensor(torch.zeros(6, dtype=torch.uint8))


def test_tensors_without_values():
    assert hash_tensor(torch.empty(3, device="meta")) is None
    assert hash_tensor(nn.LazyLinear(3).weight) is None
