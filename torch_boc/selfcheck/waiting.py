"""Checks 3 and 4: an update neither waits for the GPU nor loses samples in a CUDA graph."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from ..metrics import BoCMetric, CoherenceGap
from .cases import make_logits, make_target, need_cuda
from .outcomes import Finding, check

ROWS, CLASSES, REPLAYS = 256, 100, 3
SAMPLES = (REPLAYS + 1) * ROWS


@check("no waiting", "BoCMetric.update and CoherenceGap.update read nothing back from the GPU")
def no_waiting(device: torch.device) -> Finding:
    """Update in the mode in which torch raises an error if the host waits. An update before it compiles the kernels."""
    need_cuda(device, "there is nothing to wait for")
    metrics = [BoCMetric(CLASSES).to(device), CoherenceGap(CLASSES).to(device)]
    batches = [_batch(rows, device) for rows in (ROWS, ROWS, ROWS - 3)]
    for metric in metrics:
        metric.update(*batches[0])
    updates = 0
    with _no_synchronisation():
        for metric in metrics:
            for batch in batches[1:]:
                try:
                    metric.update(*batch)
                except RuntimeError as error:
                    if "synchroniz" not in str(error):
                        raise
                    return Finding(False, f"{type(metric).__name__}.update waited for the GPU: {error}")
                updates += 1
    return Finding(True, f"{updates} updates, none of which waited", "torch does not see every kind of waiting")


@contextmanager
def _no_synchronisation() -> Iterator[None]:
    before = torch.cuda.get_sync_debug_mode()
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode(before)


@check("graphs", f"an update of {ROWS} samples, captured in a CUDA graph and replayed 3 times, counts {SAMPLES:,}")
def graphs(device: torch.device) -> Finding:
    """One update before the capture, then replays on new logits in the same memory."""
    need_cuda(device, "CUDA graphs are on a GPU only")
    return replay(device, _capture)


def replay(device: torch.device, capture: Callable[[Callable[[], None]], Callable[[], None]]) -> Finding:
    """Compare a metric whose update `capture` turns into replays with one that is updated batch by batch."""
    captured, eager = (BoCMetric(CLASSES).to(device) for _ in range(2))
    logits, target = _batch(ROWS, device)
    batches = [logits * (1 + step / 4) for step in range(REPLAYS + 1)]
    for batch in batches:
        eager.update(batch, target)
    static = logits.clone()
    captured.update(static, target)
    again = capture(lambda: captured.update(static, target))
    for batch in batches[1:]:
        static.copy_(batch)
        again()
    got, wanted = captured.compute(), eager.compute()
    off = max(float((got[key] - wanted[key]).abs()) for key in ("gap", "confidence", "accuracy"))
    samples = int(got["samples"])
    found = f"{samples:,} samples; gap, confidence and accuracy differ by {off:.1e} from updates without a graph"
    return Finding(samples == SAMPLES and off <= 1e-9, found, details={"samples": samples, "difference": off})


def _capture(run: Callable[[], None]) -> Callable[[], None]:
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        run()
    replay: Callable[[], None] = graph.replay
    return replay


def _batch(rows: int, device: torch.device) -> tuple[Tensor, Tensor]:
    return make_logits(rows, CLASSES, device=device), make_target(rows, CLASSES, device)
