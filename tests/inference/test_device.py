"""Copies to and from a GPU are never read before they have arrived, and a batch that does not fit is halved."""

import weakref
from types import SimpleNamespace

import numpy
import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from tests.inference.cases import Counting, Hungry, Loader, assert_same, data, expected, joined, predictor, read, reused
from tests.inference.cuda import CUDA, Cuda, Model, Pinned
from torch_boc.inference import predictor as module
from torch_boc.inference.batches import Batch
from torch_boc.inference.device import PATIENCE, HostCopy, Prefetch, start_host_copy

fits = pytest.mark.filterwarnings("ignore:.* samples do not fit in memory")


def event(log, fill=lambda: None):
    """An event of CUDA, as far as it is used; what happens goes into `log`."""
    return SimpleNamespace(synchronize=lambda: log.append("awaited") or fill())


def test_an_event_behind_the_copies_is_awaited_before_they_are_read(monkeypatch):
    log, copy = [], Tensor.to

    def to(self, *args, **options):
        log.append((f"copied from {self.device}", options["non_blocking"]))
        return copy(self, *args, **options)

    stream = SimpleNamespace(record_event=lambda: log.append("event") or event(log))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: stream)
    monkeypatch.setattr(Tensor, "to", to)
    with FakeTensorMode():
        columns = {"index": torch.arange(3), "names": ["a", "b", "c"]}
        columns |= {f"c{i}": torch.zeros(3, device="cuda:1", dtype=(torch.half, torch.int)[i % 2]) for i in range(3)}
        started = start_host_copy(columns)
        assert log == [("copied from cuda:1", True)] * 2 + ["event"], "one copy of each dtype; nothing is awaited yet"
        assert started.wait().keys() == columns.keys()
    assert log[-1] == "awaited"
    block = torch.ones(1, 3)
    assert HostCopy({}, {("gap",): block}, event(log)).wait()["gap"].data_ptr() != block.data_ptr(), "not pinned"


def test_every_table_is_awaited_before_it_is_handed_out(monkeypatch, tmp_path):
    model, log = Counting(), []

    def late(columns):
        target = {(name,): torch.zeros_like(x)[None] for name, x in columns.items()}  # until the event was awaited
        return HostCopy({}, target, event(log, lambda: [x.copy_(columns[name]) for (name,), x in target.items()]))

    monkeypatch.setattr(module, "start_host_copy", late)
    ours = predictor(model)
    ours._ahead = 1
    tables = []
    for place, table in enumerate(ours.predict(data()[0].split(5))):
        assert len(log) == place + 1, "no table is awaited before its turn"
        assert len(model.calls) == min(place + 2, 5), "the next batch is under way"
        tables.append({name: x.clone() for name, x in table.items()})
    assert_same(joined(tables), expected(model.layer(data()[0])))
    path = ours.to_parquet(Loader(), tmp_path / "samples.parquet", resume=True)
    assert_same(read(path), expected(model.layer(data()[0]), data()[1]))


# Of one batch after the first: it is pinned and copied, then the computation waits, and owns the memory as well.
COPY = ["pinned", "copy on side", "event after side"]
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


def test_the_next_batch_is_copied_after_the_work_on_the_batch_before_has_been_started(cuda):
    model = Model(cuda.log)
    tables = on_cuda(model).predict(asked(cuda.log, data()[0].split(10)))
    table = next(tables)
    first = ["the loader is asked", "pinned", "copy on compute", "the model runs"]
    assert cuda.log.count("the loader is asked") == 3, "before a table is handed out"
    tables = [table, *tables]
    assert cuda.log == first + (["the loader is asked", *COPY, *RUN]) * 2
    assert_same(joined(tables), expected(model.layer(data()[0])))


@pytest.mark.parametrize("kind", [Tensor, Pinned], ids=["pageable", "pinned"])
def test_a_loader_that_uses_the_same_memory_for_all_batches(cuda, kind):
    x, model = data()[0][:20], Model(cuda.log)
    batches = reused(x, torch.empty(5, 3).as_subclass(kind))
    assert_same(joined(on_cuda(model).predict(batches)), expected(model.layer(x)))
    assert cuda.log.count("copy on side, awaited") == (3 if kind is Pinned else 0)
    assert cuda.log.count("copy on compute, awaited") == (1 if kind is Pinned else 0), "the first batch"


def test_a_device_that_has_no_room_for_the_next_batch(cuda):
    model = Model(cuda.log)
    tables = on_cuda(model).predict(data()[0].split(5))
    first = next(tables)
    cuda.full = True
    assert_same(joined([first, *tables]), expected(model.layer(data()[0])))
    assert cuda.log[-3:] == ["pinned", "copy on compute", "the model runs"]


@fits
def test_memory_that_runs_out_in_the_model(cuda):
    """The pieces are made of what the loader gave, not of what the model changed. From then on nothing is fetched."""

    class Overwriting(Model):
        def forward(self, x):
            logits = super().forward(x)
            if len(self.calls) > 2 and len(x) > 3:
                x.fill_(torch.nan)
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")
            return logits

    model = Overwriting(cuda.log)
    tables = list(on_cuda(model).predict(asked(cuda.log, data()[0].split(5))))
    assert_same(joined(tables), expected(model.layer(data()[0])))
    assert model.calls == [5, 5, 5, 2, 2, 1, 2, 2, 1, 2, 1]
    assert cuda.log.count("copy on side") == 2


def test_the_batch_that_is_asked_for_is_delivered(cuda):
    """Not the copy of another one that is on its way; tensors of other layouts and devices are left to the model."""
    batch = Batch((torch.arange(6.0),), {}, 6, {})
    samples = Prefetch(iter([batch, batch]), CUDA)
    for piece in (batch.piece(2, 4), batch):
        samples.fetch()
        assert torch.equal(samples.deliver(piece).args[0].as_subclass(Tensor), piece.args[0])
    cuda.log.clear()
    other = {"mask": torch.zeros(3, device="meta"), "flag": True}
    Prefetch(iter([Batch((torch.ones(3), torch.eye(3).to_sparse()), other, 3, {})]), CUDA).fetch()
    assert cuda.log == COPY


@pytest.mark.parametrize(("trusted", "copies"), [(True, 2), (False, 1)])
def test_two_batches_of_a_loader_that_keeps_its_memory_are_copied_ahead(cuda, trusted, copies):
    batches = [Batch((torch.ones(3).as_subclass(Pinned),), {}, 3, {}) for _ in range(4)]
    samples = Prefetch(iter(batches), CUDA, trusted=trusted, ahead=2)
    first = samples.next_batch()
    samples.deliver(first)
    samples.fetch()
    own = "copy on side" if trusted else "copy on side, awaited"
    assert cuda.log[1:] == [own, "event after side"] * copies, "nobody pins what is pinned"
    for place in range(1, 4):
        cuda.log.clear()
        assert samples.next_batch() is batches[place]
        samples.deliver(batches[place])
        assert cuda.log == ["compute waits", "memory for compute"], "its own copy"
        samples.fetch()
    assert samples.next_batch() is None


def test_without_a_gpu_no_batch_is_read_ahead():
    log = []
    for number, _ in enumerate(predictor(Counting()).predict(asked(log, data()[0].split(5))), 1):
        assert len(log) == number


class Slow(Counting):
    """A model whose work on the device takes longer than the copy of a batch, and which changes its inputs."""

    def forward(self, x):
        torch.cuda._sleep(20_000_000)
        logits = super().forward(x.clone())
        x.fill_(torch.nan)
        return logits


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("pinned", [False, True])
def test_samples_on_a_gpu_while_copies_and_computation_overlap(pinned):
    """One block of memory for all batches, and many batches, so that the device's memory is used again and again."""
    x, model = torch.randn(500, 3, generator=torch.Generator().manual_seed(0)), Slow()
    memory = torch.empty(5, 3).pin_memory() if pinned else torch.empty(5, 3)
    tables = list(predictor(model, device="cuda").predict(reused(x, memory)))
    assert not any(column.is_pinned() for table in tables for column in table.values())
    assert_same(joined(tables), expected(model.layer.cpu()(x)))


def test_the_size_that_fits_is_remembered():
    model = Hungry(room=3)
    ours = predictor(model)
    with pytest.warns(UserWarning, match="samples do not fit") as said:
        tables = joined(ours.predict(data()[0].split(10)))
    warned = [f"{size} samples do not fit in memory; continuing with {size // 2} at a time" for size in (10, 5)]
    assert [str(x.message) for x in said] == warned
    assert model.calls == [10, 5, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 1]
    assert_same(tables, expected(model.layer(data()[0])))
    assert_same(joined(ours.predict(data()[0].split(23))), tables)
    assert max(model.calls[14:]) == 2


@fits
def test_larger_pieces_are_tried_again_after_a_while():
    model = Hungry(room=4)
    tables = predictor(model).predict(data(8)[0].repeat(3 * PATIENCE, 1).split(8))
    for rounds in range(2):
        for _ in range(PATIENCE):
            next(tables)
        assert model.calls[-2:] == [4, 4]
        assert model.calls.count(8) == rounds + 1, "the whole batch does not fit yet"
    model.room = 8
    assert len(list(tables)) == PATIENCE
    assert model.calls[-PATIENCE:] == [8] * PATIENCE


@fits
@pytest.mark.parametrize(
    ("error", "calls"),
    [
        (RuntimeError("DefaultCPUAllocator: not enough memory: you tried to allocate 9999."), [23, 11, 5, 2, 1]),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate"), [23, 11, 5, 2, 1]),
        (torch.OutOfMemoryError("XPU has no room"), [23, 11, 5, 2, 1]),
        (MemoryError("Unable to allocate 2 GiB"), [23, 11, 5, 2, 1]),
        (MemoryError(), [23, 11, 5, 2, 1]),
        (OSError(12, "Cannot allocate memory"), [23, 11, 5, 2, 1]),
        (RuntimeError("device-side assert"), [23]),
        (ValueError("expected a file, got out of memory.png"), [23]),
    ],
    ids=repr,
)
def test_a_single_sample_that_does_not_fit_and_other_errors(error, calls):
    model = Hungry(0, error)
    with pytest.raises(type(error)) as found:
        list(predictor(model).predict([data()[0]]))
    assert found.value is error
    assert model.calls == calls


@fits
def test_the_failed_call_holds_no_memory_when_the_cache_of_a_gpu_is_given_back(monkeypatch):
    """Its tensors hang on the error's traceback until the handler is left."""
    held, alive = [], []

    class Holding(Counting):
        def forward(self, x):
            activation = x.clone()
            held.append(weakref.ref(activation))
            if len(x) > 12:
                raise torch.OutOfMemoryError("out of memory")
            return super().forward(activation)

    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: alive.append(held[-1]() is not None))
    list(predictor(Holding()).predict([data()[0]]))
    assert alive == [False]


class Captioned(Hungry):
    """Multiplies the logits of each sample by the number in its text."""

    def forward(self, x, text, scale=(1.0, 2.0, 3.0), flag=True):
        assert len(scale) == 3, "belongs to the whole batch"
        return super().forward(x) * torch.tensor([float(t) for _, t in zip(x, text, strict=False)])[:, None]


@fits
@pytest.mark.parametrize("make", [list, tuple, numpy.array], ids=["list", "tuple", "array"])
@pytest.mark.parametrize("named", [False, True])
def test_texts_among_the_arguments_are_halved_too(make, named):
    """The second half of the samples was paired with the texts of the first half."""
    x, texts = data(8)[0], [str(i) for i in range(8)]
    batch = {"x": x, "text": make(texts), "scale": [1.0, 2.0, 3.0]} if named else ((x, make(texts)), data(8)[1])
    table = joined(predictor(Captioned(room=2)).predict([batch]))
    assert_same(table, joined(predictor(Captioned(room=8)).predict([batch])))
