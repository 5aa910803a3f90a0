"""The next batch is on its way to a GPU while the model runs, and every sample is the right one, whatever is late."""

import json

import pytest
import torch
from torch import Tensor

from tests.inference.cases import Counting, assert_same, data, expected, joined, predictor
from tests.inference.cuda import CUDA, Cuda, Model, Pinned
from torch_boc.inference.batches import Batch
from torch_boc.inference.supply import Samples, Supply

# Of one batch after the first: the thread pins and copies, then the computation waits, and owns the memory as well.
COPY = ["pinned by a thread", "copy on side", "event after side"]
RUN = ["compute waits", "memory for compute", "the model runs"]


@pytest.fixture
def cuda(monkeypatch) -> Cuda:
    return Cuda(monkeypatch)


def on_cuda(model):
    ours = predictor(model)
    ours.device, ours._ahead = CUDA, 1
    return ours


def asked(log, batches):
    """Batches of a loader that says when it is asked."""
    for batch in batches:
        log.append("the loader is asked")
        yield batch


def test_the_order_of_operations(cuda):
    """The first batch is copied at once; each other one after the work on the batch before has been started."""
    model = Model(cuda.log)
    tables = list(on_cuda(model).predict(asked(cuda.log, data()[0].split(10))))
    first = ["the loader is asked", "pinned by the program", "copy on compute", "the model runs"]
    assert cuda.log == first + (["the loader is asked", *COPY, *RUN]) * 2
    assert_same(joined(tables), expected(model.layer(data()[0])))


def test_the_next_copy_has_started_before_a_table_is_handed_out(cuda):
    tables = on_cuda(Model(cuda.log)).predict(asked(cuda.log, data()[0].split(5)))
    for number in range(1, 4):
        next(tables)
        assert cuda.log.count("the model runs") == number + 1
        assert cuda.log.count("the loader is asked") == number + 2
    tables.close()


@pytest.mark.parametrize("kind", [Tensor, Pinned], ids=["pageable", "pinned"])
def test_a_loader_that_uses_the_same_memory_for_all_batches(cuda, kind):
    x, model = data()[0][:20], Model(cuda.log)

    def reusing():
        memory = torch.empty(5, 3).as_subclass(kind)
        for part in x.split(5):
            memory.copy_(part)
            yield memory

    assert_same(joined(on_cuda(model).predict(reusing())), expected(model.layer(x)))
    assert cuda.log.count("awaited") == (3 if kind is Pinned else 0)
    assert cuda.log.count("copy on compute, awaited") == (1 if kind is Pinned else 0), "the first batch"


def test_a_device_that_has_no_room_for_the_next_batch(cuda):
    model = Model(cuda.log)
    tables = on_cuda(model).predict(data()[0].split(5))
    first = next(tables)
    cuda.full = True
    assert_same(joined([first, *tables]), expected(model.layer(data()[0])))
    assert cuda.log[-3:] == ["pinned by the program", "copy on compute", "the model runs"]


@pytest.mark.filterwarnings("ignore:.* samples do not fit in memory")
def test_memory_that_runs_out_in_the_model(cuda):
    """The pieces are made of what the loader gave, not of what the model changed. From then on nothing is fetched."""

    class Hungry(Model):
        def forward(self, x):
            logits = super().forward(x)
            if len(self.calls) > 2 and len(x) > 3:
                x.fill_(torch.nan)
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")
            return logits

    model = Hungry(cuda.log)
    tables = list(on_cuda(model).predict(asked(cuda.log, data()[0].split(5))))
    assert_same(joined(tables), expected(model.layer(data()[0])))
    assert model.calls == [5, 5, 5, 2, 2, 1, 2, 2, 1, 2, 1]
    assert cuda.log.count("copy on side") == 2


def test_what_came_before_an_error_of_the_loader_is_handed_out(cuda):
    def broken():
        yield from data()[0].split(5)[:3]
        raise OSError("the disk is gone")

    tables = on_cuda(Model(cuda.log)).predict(broken())
    assert [next(tables)["index"].tolist() for _ in range(2)] == [list(range(5)), list(range(5, 10))]
    with pytest.raises(OSError, match="the disk is gone"):
        next(tables)


def test_other_errors_of_a_copy_are_not_taken_for_a_lack_of_memory(cuda, monkeypatch):
    def broken(x):
        raise RuntimeError("CUDA error: device-side assert triggered")

    tables = on_cuda(Model(cuda.log)).predict(data()[0].split(5))
    monkeypatch.setattr(Tensor, "pin_memory", broken)
    with pytest.raises(RuntimeError, match="device-side assert"):
        list(tables)


def test_the_batch_that_is_asked_for_is_delivered(cuda):
    """Not the copy of another one that is on its way."""
    batch = Batch((torch.arange(6.0),), {}, None, 6)
    with Supply(iter([Samples({}, batch)]), CUDA) as samples:
        for piece in (batch.piece(2, 4), batch):
            samples.fetch()
            assert torch.equal(samples.deliver(piece).args[0].as_subclass(Tensor), piece.args[0])


def test_tensors_of_other_layouts_and_devices_stay_for_the_stream_of_the_model(cuda):
    sparse, meta = torch.eye(3).to_sparse(), torch.zeros(3, device="meta")
    batch = Batch((torch.ones(3), sparse), {"mask": meta, "flag": True}, None, 3)
    with Supply(iter([Samples({}, batch)]), CUDA) as samples:
        samples.fetch()
        samples._copying[1].result()
        assert cuda.log == COPY


def test_without_a_gpu_no_batch_is_read_ahead_and_there_is_no_thread():
    log = []
    tables = predictor(Counting()).predict(asked(log, data()[0].split(5)))
    for number in range(1, 4):
        next(tables)
        assert len(log) == number
    with Supply(iter([]), torch.device("cpu")) as samples:
        assert samples._thread is None


needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


class Slow(Counting):
    """A model whose work on the device takes longer than the copy of a batch, and which changes its inputs."""

    def forward(self, x):
        torch.cuda._sleep(20_000_000)
        logits = super().forward(x.clone())
        x.fill_(torch.nan)
        return logits


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("pinned", [False, True])
def test_samples_on_a_gpu_while_copies_and_computation_overlap(pinned):
    """One block of memory for all batches, and many batches, so that the device's memory is used again and again."""
    x = torch.randn(500, 3, generator=torch.Generator().manual_seed(0))

    def reusing():
        memory = torch.empty(5, 3)
        memory = memory.pin_memory() if pinned else memory
        for part in x.split(5):
            memory.copy_(part)
            yield memory

    model = Slow()
    tables = joined(predictor(model, device="cuda").predict(reusing()))
    assert_same(tables, expected(model.layer.cpu()(x)))


@pytest.mark.gpu
@needs_gpu
def test_copies_to_a_gpu_have_a_stream_of_their_own(tmp_path):
    ours = predictor(Slow(), device="cuda")
    batches = torch.randn(40, 3).split(5)
    list(ours.predict(batches))
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        list(ours.predict(batches))
        torch.cuda.synchronize()
    profile.export_chrome_trace(str(tmp_path / "trace.json"))
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    copies = [x["args"]["stream"] for x in events if x.get("name", "").startswith("Memcpy HtoD")]
    kernels = {x["args"]["stream"] for x in events if x.get("cat") == "kernel"}
    assert len(copies) >= len(batches)
    assert sum(stream not in kernels for stream in copies) == len(batches) - 1, "all but the first batch"
