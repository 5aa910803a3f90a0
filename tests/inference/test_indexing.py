"""The index of a row is that of the sample in its data set, or the loader is refused."""

import multiprocessing
import os
import sys
from pathlib import Path

import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    TensorDataset,
    default_collate,
    get_worker_info,
)

from tests.inference.cases import SAMPLES, Counting, Stream, assert_same, data, expected, joined, predictor, read
from torch_boc.inference.indexing import as_loader, count_samples, has_own_memory, safe_workers

DATA, KEYED = TensorDataset(*data()), TensorDataset(*data(), torch.arange(SAMPLES))


def assert_order(loader, order):
    model = Counting()
    whole = expected(model.layer(data()[0]), data()[1])
    tables = list(predictor(model).predict(loader))
    if order:
        assert_same(joined(tables), {name: x[list(order)] for name, x in whole.items()})
    assert sum(len(x["index"]) for x in tables) == len(order) == sum(model.calls)


def distributed(rank, world, shuffle=False, drop_last=False, samples=DATA):
    return DistributedSampler(samples, world, rank, shuffle=shuffle, drop_last=drop_last)


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("world", [1, 2, 3, 60])
@pytest.mark.parametrize("size", [4, 5])
def test_the_padding_of_a_distributed_sampler_is_left_out(world, shuffle, size):
    seen = []
    for rank in range(world):
        sampler = distributed(rank, world, shuffle)
        loader = DataLoader(DATA, size, sampler=sampler)
        own = list(sampler)[: len(range(rank, SAMPLES, world))]
        assert count_samples(loader) == len(own)
        assert_order(loader, own)
        seen += own
    assert sorted(seen) == list(range(SAMPLES))


def test_what_is_dropped_at_the_end():
    """12 samples with one of padding: batches of 4 keep all three, batches of 5 the first ten samples."""
    sampler = distributed(2, 3, shuffle=True, drop_last=True)
    sampler.set_epoch(3)
    assert_order(DataLoader(DATA, 4, sampler=sampler), list(sampler))
    sampler = distributed(1, 2)
    for size, count in ((4, 11), (5, 10)):
        loader = DataLoader(DATA, size, sampler=sampler, drop_last=True)
        assert count_samples(loader) == count
        assert_order(loader, list(sampler)[:count])


def in_batches(sampler):
    return BatchSampler(sampler, 4, False)


KNOWN = {
    "drop_last": (lambda: DataLoader(DATA, 4, drop_last=True), range(20)),
    "batch sampler": (lambda: DataLoader(DATA, batch_sampler=in_batches(SequentialSampler(DATA))), range(SAMPLES)),
    "distributed": (lambda: DataLoader(DATA, batch_sampler=in_batches(distributed(1, 2))), range(1, SAMPLES, 2)),
    "lists": (lambda: DataLoader(DATA, sampler=in_batches(SequentialSampler(DATA)), batch_size=None), range(SAMPLES)),
    "list of indices": (lambda: DataLoader(DATA, 4, sampler=[5, 3, 22, 3, 0]), [5, 3, 22, 3, 0]),
    "range of indices": (lambda: DataLoader(DATA, 4, sampler=range(20, 2, -3)), range(20, 2, -3)),
    "one worker out of turn": (lambda: DataLoader(DATA, 4, in_order=False), range(SAMPLES)),
}


@pytest.mark.parametrize(("loader", "order"), KNOWN.values(), ids=KNOWN.keys())
def test_orders_that_are_known(loader, order):
    assert_order(loader(), list(order))


class Backwards(SequentialSampler):
    def __iter__(self):
        return reversed(range(len(self)))


class Custom(BatchSampler):
    def __iter__(self):
        return reversed(list(super().__iter__()))


class Reversed(DataLoader):
    """Yields its batches in another order than its sampler."""

    def __iter__(self):
        return reversed(list(super().__iter__()))


WITH_IDS = {
    "drop_last": (lambda: DataLoader(KEYED, 4, sampler=Backwards(KEYED), drop_last=True), range(3, SAMPLES)),
    "own iteration": (lambda: Reversed(KEYED, 12), range(SAMPLES)),
}


@pytest.mark.parametrize(("loader", "keys"), WITH_IDS.values(), ids=WITH_IDS.keys())
def test_orders_that_are_not_known_with_ids(loader, keys):
    table = joined(predictor(id="key").predict(loader()))
    assert "index" not in table
    assert sorted(table["key"].tolist()) == list(keys)


UNKNOWN = {
    "shuffled": (lambda: DataLoader(DATA, 4, shuffle=True), "RandomSampler"),
    "custom sampler": (lambda: DataLoader(DATA, 4, sampler=Backwards(DATA)), "Backwards"),
    "in batches": (lambda: DataLoader(DATA, batch_sampler=in_batches(RandomSampler(DATA))), "RandomSampler"),
    "custom batches": (lambda: DataLoader(DATA, batch_sampler=Custom(SequentialSampler(DATA), 4, False)), "Custom"),
    "out of order": (lambda: DataLoader(DATA, 4, num_workers=2, in_order=False), "in_order=False"),
    "places from the end": (lambda: DataLoader(DATA, 4, sampler=[-1, 0]), "list"),
    "own iteration": (lambda: Reversed(DATA, 4), "an __iter__ of its own"),
    "own iteration over items": (lambda: Reversed(DATA, batch_size=None), "an __iter__ of its own"),
    "items, shuffled": (lambda: DataLoader(DATA, batch_size=None, shuffle=True), "RandomSampler"),
}


@pytest.mark.parametrize(("loader", "name"), UNKNOWN.values(), ids=UNKNOWN.keys())
def test_orders_that_are_not_known_are_refused(loader, name, tmp_path):
    message = rf"keeps the order of its data set, got a DataLoader with {name}, .*leave shuffle=True.* id='name'"
    with pytest.raises(ValueError, match=message):
        predictor().predict(loader())
    with pytest.raises(ValueError, match=message):
        predictor().to_parquet(loader(), tmp_path / "samples.parquet")
    assert not any(tmp_path.iterdir())


class Shards(IterableDataset):
    """Each worker has every second sample."""

    def __iter__(self):
        worker = get_worker_info()
        first, step = (0, 1) if worker is None else (worker.id, worker.num_workers)
        yield from zip(*(x[first::step] for x in (*data(), torch.arange(SAMPLES))), strict=True)


def test_the_workers_of_an_iterable_data_set(tmp_path):
    """Samples were counted as they came, so that most rows had the index of another sample."""
    loaders = [DataLoader(Shards(), 4, num_workers=workers, collate_fn=with_key) for workers in (0, 1, 2)]
    for loader in loaders[:2]:
        table = joined(predictor(id="key").predict(loader))
        assert torch.equal(table["index"], table["key"])
    with pytest.raises(ValueError, match=r"at most one worker for an iterable data set, got 2, .* id='name'"):
        predictor().predict(loaders[2])
    path = predictor(id="key").to_parquet(loaders[2], tmp_path / "a.parquet", resume=True)
    table = read(path)
    assert "index" not in table
    assert sorted(table["key"].tolist()) == list(range(SAMPLES))
    with pytest.raises(ValueError, match="num_workers=2, got one with num_workers=None"):
        predictor(id="key").to_parquet(loaders[1], path, resume=True)


def with_key(rows):
    x, y, key = default_collate(rows)
    return {"x": x, "label": y, "key": key}


def test_an_order_that_another_run_does_not_repeat(tmp_path):
    loader = DataLoader(KEYED, 4, num_workers=2, in_order=False)
    with pytest.raises(ValueError, match="whose order is the same in the next run, got a DataLoader with in_order=Fal"):
        predictor(id="key").to_parquet(loader, tmp_path / "a.parquet", resume=True)


def test_a_collate_fn_that_leaves_samples_out_is_refused():
    loader = DataLoader(DATA, 4, collate_fn=lambda samples: default_collate(samples[1:]))
    with pytest.raises(ValueError, match=r"expected 4 samples in a batch .*, got 3; .*iter\(loader\), whose rows are"):
        list(predictor().predict(loader))
    assert joined(predictor().predict(iter(loader)))["index"].tolist() == list(range(17))


def test_a_file_of_one_rank_alone_is_said(tmp_path):
    loader = DataLoader(DATA, 64, sampler=distributed(1, 2))
    with pytest.warns(UserWarning, match=r"process 2 of 2 only; with shard='auto' all") as said:
        path = predictor().to_parquet(loader, tmp_path / "samples.parquet")
    assert [Path(x.filename).name for x in said] == ["test_indexing.py"]
    assert read(path)["index"].tolist() == list(range(1, SAMPLES, 2))


class Ending(TensorDataset):
    """A data set whose error ends the loop over it."""

    def __getitem__(self, i):
        if i == 12:
            raise StopIteration
        return super().__getitem__(i)


@pytest.mark.parametrize("options", [{}, {"sampler": distributed(0, 2)}, {"shuffle": True}])
def test_a_stop_iteration_in_the_data_set_is_an_error(options):
    loader = DataLoader(Ending(*KEYED.tensors), 4, **options)
    with pytest.raises(ValueError, match="expected a batch for all indices of the sampler, got fewer; a StopIteration"):
        list(predictor(id="key").predict(loader))


class Own(DistributedSampler):
    """A class of the user's own."""


def padded(kind=DistributedSampler, **options):
    return kind(KEYED, 2, 1, shuffle=False, **options)


PADDED = {
    "own sampler": lambda sampler: DataLoader(KEYED, 4, sampler=sampler(Own)),
    "own batch sampler": lambda sampler: DataLoader(KEYED, batch_sampler=Custom(sampler(), 4, False)),
}


@pytest.mark.parametrize("loader", PADDED.values(), ids=PADDED.keys())
def test_padding_in_an_unknown_place_is_refused_also_with_an_id(loader):
    with pytest.raises(ValueError, match=r"each sample once, got .* that repeats samples.*shard='auto'.*drop_last=T"):
        predictor(id="key").predict(loader(padded))
    table = joined(predictor(id="key").predict(loader(lambda *kind: padded(*kind, drop_last=True))))
    assert sorted(table["key"].tolist()) == list(range(1, SAMPLES - 1, 2))


class Unrelated:
    """A data set that does not say that it is one."""

    def __getitem__(self, i):
        return torch.zeros(3)


UNSHARED = {
    "a list": (lambda: [torch.zeros(2, 3)], "got list over NoneType"),
    "iterable": (Stream, "got DataLoader over Stream"),
    "unrelated": (Unrelated, r"got Unrelated; let it inherit from torch\.utils\.data\.Dataset"),
    "shuffled": (lambda: DataLoader(DATA, 4, shuffle=True), "with RandomSampler; give the data set itself"),
    "drop_last": (lambda: DataLoader(DATA, 4, drop_last=True), "drop_last=False"),
    "distributed": (lambda: DataLoader(DATA, 4, sampler=distributed(0, 2, drop_last=True)), "drop_last=False"),
    "own iteration": (lambda: Reversed(DATA, 4), "got Reversed over TensorDataset"),
}


@pytest.mark.parametrize(("loader", "message"), UNSHARED.values(), ids=UNSHARED.keys())
def test_what_cannot_be_shared(loader, message, tmp_path):
    with pytest.raises(TypeError, match=message):
        predictor(shard=(0, 2)).to_parquet(loader(), tmp_path / "out")
    assert not any(tmp_path.iterdir())


class Processes(Dataset):
    """Each sample tells the process that read it."""

    def __len__(self):
        return SAMPLES

    def __getitem__(self, place):
        return data()[0][place], 0 if get_worker_info() is None else 1 + get_worker_info().id


@pytest.mark.parametrize(("workers", "readers"), [(None, {0}), (0, {0}), (2, {1, 2})])
def test_workers_of_a_data_set(workers, readers):
    """By default a model on the CPU needs the cores itself."""
    table = joined(predictor(num_workers=workers, batch_size=5).predict(Processes()))
    assert {*table["target"].tolist()} == readers
    assert table["index"].tolist() == [*range(SAMPLES)]


class Holding(Processes):
    """A data set that holds something."""

    def __init__(self, thing):
        self.thing = thing


def test_where_workers_are_safe(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(64), raising=False)
    monkeypatch.setattr(multiprocessing, "get_all_start_methods", lambda: ["fork"])
    gpu = torch.device("cuda")
    assert safe_workers(Processes(), gpu) == safe_workers(Holding(torch.ones(3)), gpu) == 4
    assert as_loader(Processes(), 4, None, gpu).pin_memory
    assert safe_workers(Processes(), torch.device("cpu")) == 0
    assert safe_workers(Stream(), gpu) == 0
    with Path(__file__).open() as file:
        assert safe_workers(Holding(file), gpu) == 0, "a place in a file that processes would share"
    assert safe_workers(Holding(torch.ones(3, device="meta")), gpu) == 0, "as a tensor on the GPU"
    assert safe_workers(Holding(bytes(2**26 + 1)), gpu) == 0, "in memory"
    with monkeypatch.context() as notebook:
        notebook.setitem(sys.modules, "ipykernel", sys)
        assert safe_workers(Processes(), gpu) == 0
    monkeypatch.setattr(multiprocessing, "get_all_start_methods", lambda: ["spawn", "fork"])
    assert safe_workers(Processes(), gpu) == 0


def test_rows_of_tensors_come_a_batch_at_a_time():
    for ours, theirs in zip(as_loader(DATA, 5), DataLoader(DATA, 5), strict=True):
        for x, y in zip(ours, theirs, strict=True):
            assert torch.equal(x, y)


def test_which_loaders_may_use_their_memory_again():
    assert has_own_memory(as_loader(DATA, 4))
    assert has_own_memory(DataLoader(DATA, 4))
    assert has_own_memory(DataLoader(DATA, 4, num_workers=1, collate_fn=list))
    assert not has_own_memory(DataLoader(DATA, 4, collate_fn=lambda rows: default_collate(rows)))
    assert not has_own_memory([data()[0]])
