"""When memory runs out the batch is halved: no sample is lost or repeated, and the size that fits is remembered."""

import weakref

import numpy
import pytest
import torch
from torch import nn

from tests.inference.cases import Counting, Hungry, assert_same, data, expected, joined, predictor
from tests.nn.models import linear
from torch_boc.inference.batches import Batch
from torch_boc.inference.fitting import is_out_of_memory

pytestmark = pytest.mark.filterwarnings("ignore:.* samples do not fit in memory")

CPU = RuntimeError("[enforce fail at alloc_cpu.cpp:121] data. DefaultCPUAllocator: can't allocate memory")
WINDOWS = RuntimeError("DefaultCPUAllocator: not enough memory: you tried to allocate 9999 bytes.")
CUBLAS = RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate(handle)")


@pytest.mark.parametrize(("room", "error"), [(1, None), (2, CPU), (5, WINDOWS), (7, CUBLAS), (22, None)])
def test_no_sample_is_lost(room, error):
    model = Hungry(room, error)
    x, y = data()
    tables = list(predictor(model).predict([(x, y)]))
    assert len(tables) == 1
    assert_same(tables[0], expected(model.layer(x), y))


def test_the_size_that_fits_is_remembered():
    model = Hungry(room=3)
    tables = joined(predictor(model).predict(data()[0].split(10)))
    assert model.calls == [10, 5, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 1]
    assert_same(tables, expected(model.layer(data()[0])))


def test_memory_that_runs_out_later():
    class Shrinking(Hungry):
        def forward(self, x):
            self.room = 4 if len(self.calls) < 3 else 2
            return super().forward(x)

    model = Shrinking(4)
    assert_same(joined(predictor(model).predict(data()[0].split(4))), expected(model.layer(data()[0])))
    assert max(model.calls[5:]) <= 2


def test_a_new_run_tries_whole_batches_again():
    model = Hungry(room=3)
    ours = predictor(model)
    for _ in range(2):
        model.calls.clear()
        list(ours.predict(data()[0].split(10)))
        assert model.calls[0] == 10


def test_a_single_sample_that_does_not_fit_is_an_error():
    model = Hungry(room=0)
    with pytest.raises(torch.OutOfMemoryError):
        list(predictor(model).predict([data()[0]]))
    assert model.calls == [23, 11, 5, 2, 1]


def test_the_user_is_told():
    with pytest.warns(UserWarning, match="23 samples do not fit in memory; going on with 11 at a time"):
        list(predictor(Hungry(room=11)).predict([data()[0]]))


@pytest.mark.parametrize("initialized", [True, False])
def test_the_cache_of_a_gpu_is_given_back_before_the_next_attempt(initialized, monkeypatch):
    """What the failed call left in the cache is of no use to smaller tensors; without CUDA nothing is called."""
    model, log = Hungry(room=6), []
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: initialized)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: log.append(len(model.calls)))
    list(predictor(model).predict([data()[0]]))
    assert model.calls == [23, 11, 5, 5, 5, 5, 3]
    assert log == ([1, 2] if initialized else []), "after each failure, before the next call"


def test_the_failed_call_holds_no_memory_when_the_cache_is_given_back(monkeypatch):
    """Its tensors hang on the error's traceback until the handler is left."""
    held, alive = [], []

    class Holding(Counting):
        def forward(self, x):
            activation = x.clone()
            held.append(weakref.ref(activation))
            if len(x) > 12:
                raise torch.OutOfMemoryError("out of memory")
            return super().forward(activation)

    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: alive.append(held[-1]() is not None))
    list(predictor(Holding()).predict([data()[0]]))
    assert alive == [False]


def test_other_errors_are_not_taken_for_it():
    model = Hungry(room=3, error=RuntimeError("CUDA error: device-side assert triggered"))
    with pytest.raises(RuntimeError, match="device-side assert"):
        list(predictor(model).predict([data()[0]]))
    assert model.calls == [23]
    assert not is_out_of_memory(RuntimeError("mat1 and mat2 shapes cannot be multiplied"))


def test_a_real_failure_of_the_cpus_allocator():
    class Greedy(Counting):
        def forward(self, x):
            if len(x) > 4:
                torch.empty(2**60, dtype=torch.uint8)
            return super().forward(x)

    model = Greedy()
    assert_same(joined(predictor(model).predict([data()[0]])), expected(model.layer(data()[0])))


def test_pieces_of_a_batch():
    x, mask, bias = torch.randn(6, 3), torch.ones(6, 2), torch.randn(1, 4)
    batch = Batch((x,), {"mask": mask, "bias": bias, "flag": True}, torch.arange(6), 6)
    piece = batch.piece(2, 5)
    assert piece.size == 3
    assert torch.equal(piece.args[0], x[2:5])
    assert torch.equal(piece.kwargs["mask"], mask[2:5])
    assert piece.kwargs["bias"] is bias
    assert piece.kwargs["flag"] is True
    assert piece.target.tolist() == [2, 3, 4]


class Captioned(nn.Module):
    """Multiplies the logits of each sample by the number in its text; runs out of memory above `room` samples."""

    def __init__(self, room):
        super().__init__()
        self.layer, self.room = linear(), room

    def forward(self, x, text, scale=(1.0, 2.0, 3.0)):
        if len(x) > self.room:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")
        assert len(scale) == 3, "belongs to the whole batch"
        return self.layer(x) * torch.tensor([float(t) for _, t in zip(x, text, strict=False)])[:, None]


@pytest.mark.parametrize("make", [list, tuple, numpy.array], ids=["list", "tuple", "array"])
@pytest.mark.parametrize("named", [False, True])
def test_texts_among_the_arguments_are_halved_too(make, named):
    """The second half of the samples was paired with the texts of the first half."""
    x, texts = data(8)[0], [str(i) for i in range(8)]
    batch = {"x": x, "text": make(texts), "scale": [1.0, 2.0, 3.0]} if named else ((x, make(texts)), data(8)[1])
    table = joined(predictor(Captioned(room=2)).predict([batch]))
    assert_same(table, joined(predictor(Captioned(room=8)).predict([batch])))
