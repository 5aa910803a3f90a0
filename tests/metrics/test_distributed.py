"""Two processes with uneven batches, and one without any, give what one process gives."""

import os
from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from tests.metrics.cases import labelled_batches, ood_batches
from tests.nn.test_conformal import KINDS, calibrated, held_out, new
from torch_boc import BoCMetric, BoCSeparation, CoherenceGap, ConformalTest

LABELLED, FLAGGED = labelled_batches(50, 13, 29), ood_batches(60, 21, 40)
METRICS: dict[str, tuple[Callable, list]] = {
    "boc": (BoCMetric, LABELLED),
    "risks": (lambda: BoCMetric(keys=["nll", "aurc", "coverage_at_5", "ece_classwise"]), LABELLED),
    "gap": (CoherenceGap, LABELLED),
    "by class": (lambda: CoherenceGap(7, average="none"), LABELLED),
    "exact": (BoCSeparation, FLAGGED),
    "binned": (lambda: BoCSeparation(("msp", "gap"), exact_up_to=0), FLAGGED),
    "exact, then binned": (lambda: BoCSeparation(("msp", "gap"), exact_up_to=100), FLAGGED),
}
SHARES = {"uneven": ((0, 1), (2,)), "one empty": ((0, 1, 2), ())}


def results(metric, batches):
    for batch in batches:
        metric.update(*batch)
    return metric.compute()


def work(rank: int, port: int, folder: str) -> None:
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "GLOO_SOCKET_IFNAME": "lo"}
    dist.init_process_group("gloo", rank=rank, world_size=2)
    found = {}
    for share, places in SHARES.items():
        for name, (make, batches) in METRICS.items():
            metric = make()
            with torch.no_grad():
                if not places[rank]:
                    metric._update_count = 1  # a rank whose loader was empty; silences the warning of torchmetrics
                found[share, name] = results(metric, [batches[i] for i in places[rank]])
            if name == "boc":
                metric.sync()
                found[share, "counts"] = metric.total()[0], metric.total()[2], metric.total()[3]
                metric.unsync()
    for share, places in {"uneven": (slice(0, 123), slice(123, None)), "one empty": (slice(0), slice(0, None))}.items():
        for kind, options in KINDS.items():
            test = ConformalTest(**options)
            if len(own := held_out()[places[rank]]):
                test.update(own)
            before, whole = test.counts.clone(), test.all_reduced()
            assert torch.equal(test.counts, before)  # so that it may be called again after the next batches
            found[share, "test", kind] = whole.counts, whole(new())
    torch.save(found, f"{folder}/{rank}.pt")
    dist.destroy_process_group()


@pytest.mark.filterwarnings("ignore:.* the scores are counted in bins")
def test_two_processes_are_one(tmp_path, free_port):
    mp.spawn(work, (free_port, str(tmp_path)), nprocs=2)
    alone = BoCMetric()
    results(alone, LABELLED)
    counts = alone.total()[0], alone.total()[2], alone.total()[3]
    for rank in range(2):
        found = torch.load(tmp_path / f"{rank}.pt")
        for share in SHARES:
            for name, (make, batches) in METRICS.items():
                torch.testing.assert_close(found[share, name], results(make(), batches), rtol=1e-12, atol=1e-15)
            torch.testing.assert_close(found[share, "counts"], counts, rtol=0, atol=0)
            for kind, options in KINDS.items():
                test = calibrated(**options)
                torch.testing.assert_close(found[share, "test", kind], (test.counts, test(new())), rtol=0, atol=0)
