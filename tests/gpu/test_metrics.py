"""An update of a metric on a GPU: it takes little memory, and counts in graphs and processes."""

import os

import pytest
import torch
import torch.distributed as dist
from torch.multiprocessing.spawn import spawn

from tests.gpu.batches import make_batch
from torch_boc import BoCMetric
from torch_boc.functional import bag_of_coins, log_p_value

pytestmark = pytest.mark.gpu
ROWS, CLASSES = 256, 100


def test_a_graph_counts_every_replay(device):
    """One update before the capture, on a side stream as torch asks; then replays on new logits in the same memory."""
    captured, eager = (BoCMetric(CLASSES).to(device) for _ in range(2))
    logits, target = make_batch(ROWS, CLASSES, device=device)
    batches = [logits * (1 + step / 4) for step in range(4)]
    for batch in batches:
        eager.update(batch, target)
    static, stream, graph = logits.clone(), torch.cuda.Stream(), torch.cuda.CUDAGraph()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        captured.update(static, target)
    torch.cuda.current_stream().wait_stream(stream)
    with torch.cuda.graph(graph):
        captured.update(static, target)
    for batch in batches[1:]:
        static.copy_(batch)
        graph.replay()
    assert captured.compute()["samples"] == 4 * ROWS
    assert_same(captured.compute(), eager.compute())


def test_a_cold_capture_gives_the_same(device):
    """Logits of a number of classes that no kernel has seen: nothing may be loaded while the graph is captured."""
    BoCMetric(CLASSES).to(device).update(*make_batch(ROWS, CLASSES, device=device))
    logits, graph = make_batch(32, 23, device=device)[0], torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        coins = bag_of_coins(logits)
    graph.replay()
    torch.testing.assert_close(coins.odds, bag_of_coins(logits).odds, rtol=1e-5, atol=0)


def test_shifted_logits_are_not_copied(device):
    """Language models shift their logits by one position. The peak is without the memory of the logits."""
    logits = torch.randn(4, 1_025, 32_000, dtype=torch.bfloat16, device=device)
    shifted, target = logits[:, :-1], torch.zeros(4, 1_024, dtype=torch.int64, device=device)
    for use in (lambda x, y: BoCMetric(dim=-1).to(device).update(x, y), lambda x, y: bag_of_coins(x)):
        use(shifted[:1, :2], target[:1, :2])  # compiles
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        use(shifted, target)
        torch.cuda.synchronize(device)
        assert torch.cuda.max_memory_allocated(device) - before < 0.1 * logits.nbytes


def test_other_cards_are_left_alone(other_device):
    """A new process computes on the last GPU, while GPU 0 is torch's current device."""
    spawn(use_one_card, (other_device.index,), nprocs=1)


def use_one_card(rank, index):
    device, others = torch.device("cuda", index), [i for i in range(torch.cuda.device_count()) if i != index]
    logits, target = make_batch(64, 10, device=device)
    logits.requires_grad_().softmax(-1).square().sum().backward()  # torch itself may open a context
    before = {i for i in others if torch._C._cuda_hasPrimaryContext(i)}
    coins = bag_of_coins(logits)
    (coins.gap.sum() + log_p_value(coins).sum()).backward()
    metric = BoCMetric(10).to(device)
    metric.update(logits, target)
    metric.compute()
    assert {i for i in others if torch._C._cuda_hasPrimaryContext(i)} == before
    assert not any(torch.cuda.memory_reserved(i) for i in others if i not in before)


BATCHES = (100, 60, 33)
SHARES = ((0, 2), (1,))  # the batches of each process; one process has more than the other


def test_two_processes_count_what_one_counts(device, tmp_path):
    """By NCCL if each has its own GPU; otherwise by gloo, which adds the sums on the CPU."""
    spawn(share_work, (str(tmp_path),), nprocs=2)


def share_work(rank, folder):
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")  # one machine: the name of the host may not be known
    own_gpu = torch.cuda.device_count() > 1 and dist.is_nccl_available()
    device = torch.device("cuda", rank if own_gpu else 0)
    torch.cuda.set_device(device)
    alone = summarize(device, range(len(BATCHES)))
    backend = "nccl" if own_gpu else "gloo"
    dist.init_process_group(backend, init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
    shared = summarize(device, SHARES[rank], on_cpu=not own_gpu)
    assert shared["samples"] == sum(BATCHES)
    assert_same(shared, alone)
    dist.destroy_process_group()


def summarize(device, batches, *, on_cpu=False):
    metric = BoCMetric(20).to(device)
    for i in batches:
        metric.update(*make_batch(BATCHES[i], 20, device=device))
    return {name: float(value) for name, value in (metric.cpu() if on_cpu else metric).compute().items()}


def assert_same(result, expected):
    for name, value in expected.items():
        assert float(result[name]) == pytest.approx(float(value), rel=1e-12, abs=1e-12, nan_ok=True), name
