"""Every kernel starts on the device of its tensors, and a new one never while a CUDA graph is captured."""

from types import SimpleNamespace

import pytest
import torch

from torch_boc.kernels import choice
from torch_boc.kernels.triton import cards, launch


class Kernel:
    """Stands for a kernel of Triton: it was launched before, or it was not."""

    def __init__(self, module):
        self.module, self.runs = module, []

    def warmup(self, *arguments, grid, **options):
        return SimpleNamespace(module=self.module)

    def __getitem__(self, grid):
        return lambda *arguments, **options: self.runs.append((grid, arguments, options))


class Logits:
    """Stands for logits on a GPU that is not here."""

    def __init__(self, index=1, dtype=torch.float32, classes=10):
        self.device, self.dtype, self.shape = torch.device("cuda", index), dtype, torch.Size((5, classes))
        self.is_cuda = True

    def stride(self, axis=None):
        return (self.shape[1], 1) if axis is None else 1

    def numel(self):
        return self.shape.numel()

    def data_ptr(self):
        return 0


@pytest.fixture
def gpus(monkeypatch):
    """Two GPUs that are not here: which one is current, and on which a graph is captured."""
    state = SimpleNamespace(current=0, capturing=None, seen=[])

    class Device:
        def __init__(self, which):
            self.index = getattr(which, "device", which).index

        def __enter__(self):
            self.before, state.current = state.current, self.index
            state.seen.append(self.index)

        def __exit__(self, *_):
            state.current = self.before

    monkeypatch.setattr(torch.cuda, "device", Device)
    monkeypatch.setattr(torch.cuda, "device_of", Device)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: state.capturing == state.current)
    monkeypatch.setattr(launch, "_launched", set())
    return state


def test_a_kernel_starts_on_the_device_of_its_tensors(gpus):
    kernel = Kernel(module=None)
    launch.launch(kernel, (3,), Logits(index=1), "a", "b", block=8)
    assert kernel.runs == [((3,), ("a", "b"), {"block": 8})]
    assert gpus.seen == [1]
    assert gpus.current == 0


@pytest.mark.parametrize("module", [object(), None], ids=["launched before", "new"])
def test_a_new_kernel_is_refused_while_a_graph_is_captured(gpus, module):
    gpus.capturing = 1
    kernel = Kernel(module)
    if module is None:
        with pytest.raises(RuntimeError, match="call the same function once on such a batch before the capture"):
            launch.launch(kernel, (3,), Logits())
        assert not kernel.runs
    else:
        launch.launch(kernel, (3,), Logits())
        assert kernel.runs


def test_a_graph_of_another_device_does_not_matter(gpus):
    gpus.capturing = 0
    assert launch.is_warm(Logits(index=1))
    assert launch.is_capturing(torch.device("cuda", 0))
    assert not launch.is_capturing(torch.device("cuda", 1))
    assert not launch.is_capturing(torch.device("cpu"))


def test_logits_are_warm_once_such_logits_were_launched(gpus):
    assert launch.is_warm(Logits())
    gpus.capturing = 1
    assert not launch.is_warm(Logits())
    launch._launched.add(launch._kind(Logits()))
    assert launch.is_warm(Logits())
    assert not any(map(launch.is_warm, (Logits(dtype=torch.bfloat16), Logits(classes=11))))


def test_a_launch_over_rows_is_remembered(monkeypatch):
    monkeypatch.setattr(launch, "_launched", set())
    monkeypatch.setattr(launch, "launch", lambda *arguments, **options: None)
    monkeypatch.setattr(launch, "load", lambda name: SimpleNamespace(DTYPES={torch.float32: None}, short_rows=None))
    launch.launch_rows(torch.zeros(3, 10), extras=False)
    (kind,) = launch._launched
    assert launch._kind(torch.zeros(7, 10)) == launch._kind(torch.zeros(1, 10)) == kind
    assert launch._kind(torch.zeros(3, 4, 5, 10)[:, :3, :4]) == kind  # which will be copied
    others = torch.zeros(10, 3).T, torch.zeros(2, 3, 10)[:, 1:], torch.zeros(3, 11), torch.zeros(31)[1:].view(3, 10)
    assert kind not in map(launch._kind, others)


@pytest.mark.parametrize("warm", [True, False])
def test_auto_leaves_cold_logits_to_torch(monkeypatch, warm):
    monkeypatch.setattr(choice, "available", lambda device: device == "meta")
    monkeypatch.setattr(choice, "is_trusted", lambda device: True)
    monkeypatch.setattr(choice, "is_warm", lambda logits: warm)
    logits = torch.empty(2, 3, device="meta")
    assert choice.decide(logits)[:2] == (warm, True)
    with choice.use("triton"):
        assert choice.decide(logits)[:2] == (True, True)


@pytest.mark.parametrize(("capability", "slow"), [((8, 0), False), ((9, 0), False), ((8, 9), True), ((7, 5), True)])
def test_cards_with_slow_float64_take_pairs(monkeypatch, capability, slow):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    odds = Logits()
    assert [cards.fraction_steps(odds, trials) < 0 for trials in (1, 100, 1000, 1001)] == [slow] * 3 + [False]
    assert cards.fraction_steps(torch.ones(3), 100) == 18


def test_the_processors_are_those_of_the_card(monkeypatch):
    found = {1: SimpleNamespace(multi_processor_count=108)}
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: found[device.index])
    assert cards.processors(torch.device("cuda", 1)) == 108
    assert cards.processors(torch.device("cpu")) == 1
