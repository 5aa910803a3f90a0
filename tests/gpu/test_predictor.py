"""`BoCPredictor` on a GPU: a model on two devices, and a GPU whose memory does not suffice for a batch."""

import pytest
import torch
from torch import nn

from tests.inference.cases import assert_same, joined, predictor

pytestmark = pytest.mark.gpu
CPU = torch.device("cpu")


def table(model, batch_size):
    inputs = torch.randn(512, 16, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return joined(predictor(model, batch_size=batch_size).predict(inputs))


class Halves(nn.Module):
    """A classifier with its first layer on one device and its second layer on another, whose logits come late."""

    def __init__(self, first, second):
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        weights = [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in ((16, 64), (64, 50))]
        self.first, self.second = nn.Parameter(weights[0].to(first)), nn.Parameter(weights[1].to(second))

    def forward(self, x):
        hidden = (x @ self.first).relu().to(self.second.device)
        if hidden.is_cuda:
            with torch.cuda.device(hidden.device):
                torch.cuda._sleep(20_000_000)  # about 10 ms: who does not wait reads a table before it is ready
        return hidden @ self.second / 16


@pytest.mark.parametrize("turned", [False, True])
def test_a_model_on_two_devices(device, turned):
    other = torch.device("cuda", 1) if torch.cuda.device_count() > 1 else CPU
    places = (other, device) if turned else (device, other)
    assert_same(table(Halves(*places), 32), table(Halves(CPU, CPU), 32), rtol=1e-9)


ROOM = 30  # samples that fit
SAMPLE_BYTES = 8 * 2**20


class Hungry(Halves):
    """A classifier that needs much memory for each sample."""

    def __init__(self, device, *, sample_bytes):
        super().__init__(device, device)
        self.sample_bytes, self.calls = sample_bytes, []

    def forward(self, x):
        self.calls.append(len(x))
        torch.empty(len(x), self.sample_bytes, dtype=torch.uint8, device=x.device)
        return super().forward(x)


def test_a_batch_that_does_not_fit_is_halved(device):
    expected, model = table(Halves(CPU, CPU), 100), Hungry(device, sample_bytes=SAMPLE_BYTES)
    torch.cuda.empty_cache()
    most = torch.cuda.memory_reserved(device) + ROOM * SAMPLE_BYTES
    torch.cuda.set_per_process_memory_fraction(most / torch.cuda.get_device_properties(device).total_memory, device)
    try:
        assert_same(table(model, 100), expected, rtol=1e-9)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0, device)
        torch.cuda.empty_cache()
    assert max(model.calls) == 100
    assert min(model.calls) < 100
