"""The instruments themselves: they must see what they are there to see."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from tests.dispatch import HostSyncError, MemoryMeter, NoHostSync

MEGABYTE = 2**20


def _branch(x):
    return x if x.sum() > 0 else -x


def _assign(x):
    x.clone()[x > 0] = torch.ones(2)


@pytest.mark.parametrize(
    "read",
    [
        lambda x: x.sum().item(),
        lambda x: float(x[0]),
        _branch,
        _assign,
        lambda x: x[x > 0],
        lambda x: x.masked_select(x > 0),
        lambda x: x.nonzero(),
        lambda x: torch.where(x > 0),
        lambda x: torch.equal(x, x.clone()),
        lambda x: torch.allclose(x, x.clone()),
        lambda x: x.unique(),
        lambda x: x.long().bincount(),
        lambda x: x.repeat_interleave(x.long()),
    ],
)
def test_a_read_is_caught(read):
    with pytest.raises(HostSyncError, match="reads a value back"), NoHostSync():
        read(torch.tensor([1.0, 2.0]))


def test_a_read_in_backward_is_caught():
    class Reader(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, grad):
            return grad * grad.sum().item()

    x = torch.ones(3, requires_grad=True)
    with pytest.raises(HostSyncError), NoHostSync():
        Reader.apply(x).sum().backward()


def test_a_copy_to_the_cpu_is_caught():
    with FakeTensorMode():
        x = torch.ones(3, device="cuda")
        with pytest.raises(HostSyncError, match="copies to the CPU"), NoHostSync():
            x.cpu()


def test_honest_work_passes():
    with NoHostSync():
        x = torch.arange(4.0).reshape(2, 2)
        kept = torch.where(x > 1, x, 0.0)[torch.tensor([1, 0])]
    torch.testing.assert_close(kept, torch.tensor([[2.0, 3.0], [0.0, 0.0]]))


def test_the_meter_counts_a_known_allocation_and_its_end():
    with MemoryMeter() as meter:
        kept = torch.zeros(MEGABYTE, dtype=torch.uint8)
        del kept
        assert meter.live == 0
        first = torch.zeros(MEGABYTE, dtype=torch.float32)
        second = first + 1
        assert meter.live == 8 * MEGABYTE
        del first, second
    assert meter.live == 0
    assert meter.peak == 8 * MEGABYTE


def test_the_meter_counts_neither_inputs_nor_views():
    outside = torch.zeros(MEGABYTE)
    with MemoryMeter() as meter:
        view = outside.view(2, -1)[0]
        view.add_(1)
    assert meter.peak == 0
    assert view[0] == 1


def test_the_meter_sees_what_backward_keeps():
    x = torch.ones(MEGABYTE, requires_grad=True)
    with MemoryMeter() as meter:
        x.exp().sum().backward()
    assert meter.peak >= 8 * MEGABYTE  # the saved exponential and the gradient
    assert meter.live == x.grad.nbytes
