"""Two processes, each with its part of the data and its own padding, give what one process gives."""

import os

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from tests.transformers.cases import bert_tagger, by_hand, make_trainer, tagged
from torch_boc.functional import boc_summary
from torch_boc.transformers import BoCTrainerMetrics

EVERY = tuple(boc_summary(torch.zeros(1, 3)))


def classes(trainer):
    """The predicted classes of the tokens that have a label."""
    output = trainer.predict(tagged())
    return torch.tensor(output.predictions.prediction[output.label_ids != -100])


def work(rank, port, folder):
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "GLOO_SOCKET_IFNAME": "lo"}
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2"}
    torch.set_num_threads(1)
    found = []
    for by_batch in (False, True):
        boc = BoCTrainerMetrics(keys=EVERY)
        trainer = make_trainer(bert_tagger(), tagged(), boc, folder, ddp_backend="gloo", batch_eval_metrics=by_batch)
        found.append(trainer.evaluate() | {"classes": classes(trainer)})
    assert trainer.args.world_size == 2
    torch.save(found, f"{folder}/{rank}.pt")
    dist.destroy_process_group()


@pytest.mark.slow
def test_two_processes_are_one(tmp_path, free_port):
    mp.spawn(work, (free_port, str(tmp_path)), nprocs=2)
    one = make_trainer(bert_tagger(), tagged(), BoCTrainerMetrics(), tmp_path)
    expected = {key: x for key, x in by_hand(one).items() if key in EVERY}
    for rank in range(2):
        for results in torch.load(tmp_path / f"{rank}.pt"):
            found = {key: results[f"eval_boc_{key}"] for key in expected}
            assert found == pytest.approx(expected, rel=1e-5, abs=1e-6)  # other padding, other float32 rounding
            assert results["classes"].equal(classes(one))
