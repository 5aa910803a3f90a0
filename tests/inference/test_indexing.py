"""The index of a row is that of the sample in its dataset, or the loader is refused."""

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
from torch_boc.inference import indexing
from torch_boc.inference.indexing import as_loader, count_samples, has_own_memory, safe_workers

DATA, KEYED = TensorDataset(*data()), TensorDataset(*data(), torch.arange(SAMPLES))


def distributed(rank, world, *, kind=DistributedSampler, **options):
    return kind(KEYED, world, rank, **{"shuffle": False} | options)


def loader(size=4, samples=DATA, kind=DataLoader, **options):
    return kind(samples, size, **options)


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


class Own(DistributedSampler):
    """A class of the user's own."""


def batches(sampler, kind=BatchSampler):
    return {"size": 1, "batch_sampler": kind(sampler, 4, False)}


KNOWN = {
    "drop_last": ({"drop_last": True}, range(20)),
    "batch sampler": (batches(SequentialSampler(DATA)), range(SAMPLES)),
    "distributed": (batches(distributed(1, 2)), range(1, SAMPLES, 2)),
    "list of indices": ({"sampler": [5, 3, 22, 3, 0]}, [5, 3, 22, 3, 0]),
    "range of indices": ({"sampler": range(20, 2, -3)}, range(20, 2, -3)),
    "one worker out of turn": ({"in_order": False}, range(SAMPLES)),
    # 12 samples with one of padding: batches of 4 keep all three, batches of 5 the first ten samples.
    "padding, drop_last": ({"sampler": distributed(1, 2), "drop_last": True}, range(1, SAMPLES, 2)),
    "padding, dropped": ({"size": 5, "sampler": distributed(1, 2), "drop_last": True}, range(1, 21, 2)),
}


@pytest.mark.parametrize(("options", "order"), KNOWN.values(), ids=KNOWN.keys())
def test_known_orders(options, order):
    model = Counting()
    whole = expected(model.layer(data()[0]), data()[1])
    table = joined(predictor(model).predict(loader(**options)))
    assert_same(table, {name: x[list(order)] for name, x in whole.items()})
    assert count_samples(loader(**options)) in (len(order), None)
    assert sum(model.calls) == len(order)


@pytest.mark.parametrize("options", [{}, {"shuffle": True}, {"shuffle": True, "drop_last": True}], ids=str)
@pytest.mark.parametrize("world", [1, 2, 3, 60])
@pytest.mark.parametrize("size", [4, 5])
def test_the_padding_of_a_distributed_sampler_is_left_out(world, size, options):
    seen = []
    for rank in range(world):
        sampler = distributed(rank, world, **options)
        rows = list(sampler)[: len(range(rank, SAMPLES, world))]
        found = loader(size, sampler=sampler)
        table = joined(predictor().predict(found))
        assert table["index"].tolist() == rows
        assert count_samples(found) == len(rows)
        seen += rows
    assert len({*seen}) == len(seen) == (SAMPLES // world * world if "drop_last" in options else SAMPLES)


class Shards(IterableDataset):
    """Each worker has every second sample."""

    def __iter__(self):
        worker = get_worker_info()
        first, step = (0, 1) if worker is None else (worker.id, worker.num_workers)
        yield from zip(*(x[first::step] for x in (*data(), torch.arange(SAMPLES))), strict=True)


SHARDS = {"samples": Shards(), "num_workers": 2}
UNKNOWN = {
    "RandomSampler": {"shuffle": True, "samples": KEYED},
    "Backwards": {"sampler": Backwards(DATA), "samples": KEYED},
    "RandomSampler in batches": batches(RandomSampler(DATA)) | {"samples": KEYED},
    "Custom": batches(SequentialSampler(DATA), Custom) | {"samples": KEYED},
    "in_order=False": {"num_workers": 2, "in_order": False, "samples": KEYED},
    "list from the end": {"sampler": [-1, *range(SAMPLES - 1)], "samples": KEYED},
    "an __iter__ of its own": {"kind": Reversed, "samples": KEYED},
    "SequentialSampler of single samples": {"size": None, "samples": KEYED},
    "2 workers that take turns": SHARDS,
}


@pytest.mark.parametrize(("name", "options"), UNKNOWN.items(), ids=UNKNOWN.keys())
def test_unknown_orders_need_ids_and_have_no_index(name, options, tmp_path):
    """Samples of several workers were counted as they came, so that most rows had the index of another sample."""
    why = name.split(" in batches")[0].split(" from")[0].split(" of single")[0]
    message = rf"keeps the order of its dataset, got a DataLoader with {why}: .*leave shuffle=True.* id='name'"
    for call in (predictor().predict, lambda x: predictor().to_parquet(x, tmp_path / "a.parquet")):
        with pytest.raises(ValueError, match=message):
            call(loader(**options))
    with pytest.raises(ValueError, match=f"a loader in a known order for resume=True, got a DataLoader with {why}"):
        predictor(id="key").to_parquet(loader(**options), tmp_path / "a.parquet", resume=True)
    assert not any(tmp_path.iterdir())
    if options.get("size", 4) is not None:
        table = joined(predictor(id="key").predict(loader(**options)))
        assert "index" not in table
        assert sorted(table["key"].tolist()) == list(range(SAMPLES))


@pytest.mark.parametrize("workers", [0, 1])
def test_an_iterable_dataset_with_one_worker_is_counted(workers):
    table = joined(predictor(id="key").predict(loader(**SHARDS | {"num_workers": workers})))
    assert torch.equal(table["index"], table["key"])


def test_a_collate_fn_that_leaves_samples_out_is_refused():
    dropping = loader(collate_fn=lambda samples: default_collate(samples[1:]))
    with pytest.raises(ValueError, match=r"expected 4 samples in a batch .*, got 3; .*iter\(loader\), whose rows are"):
        list(predictor().predict(dropping))
    assert joined(predictor().predict(iter(dropping)))["index"].tolist() == list(range(17))


def test_a_file_of_one_rank_only_warns(tmp_path):
    with pytest.warns(UserWarning, match=r"process 2 of 2 only; with shard='auto' all") as caught:
        path = predictor().to_parquet(loader(sampler=distributed(1, 2)), tmp_path / "samples.parquet")
    assert [Path(x.filename).name for x in caught] == ["test_indexing.py"]
    assert read(path)["index"].tolist() == list(range(1, SAMPLES, 2))


class Ending(TensorDataset):
    """A dataset whose error ends the loop over it."""

    def __getitem__(self, i):
        if i == 12:
            raise StopIteration
        return super().__getitem__(i)


@pytest.mark.parametrize("options", [{}, {"sampler": distributed(0, 2)}])
def test_a_stop_iteration_in_the_dataset_is_an_error(options):
    with pytest.raises(ValueError, match="expected a batch for all indices, got fewer; a StopIteration"):
        list(predictor().predict(loader(samples=Ending(*DATA.tensors), **options)))


@pytest.mark.parametrize("wrap", [lambda x: {"sampler": x}, lambda x: batches(x, Custom)], ids=["sampler", "batches"])
def test_padding_in_an_unknown_place_is_refused_even_with_an_id(wrap):
    with pytest.raises(ValueError, match=r"each sample once, got .* that repeats samples.*shard='auto'.*drop_last=T"):
        predictor(id="key").predict(loader(samples=KEYED, **wrap(distributed(1, 2, kind=Own))))
    whole = loader(samples=KEYED, **wrap(distributed(1, 2, kind=Own, drop_last=True)))
    assert sorted(joined(predictor(id="key").predict(whole))["key"].tolist()) == list(range(1, SAMPLES - 1, 2))


class Unrelated:
    """A dataset that does not say that it is one."""

    def __getitem__(self, i):
        return torch.zeros(3)


UNSHARED = {
    "a list": ([torch.zeros(2, 3)], "got list over NoneType"),
    "iterable": (Stream(), "got DataLoader over Stream"),
    "unrelated": (Unrelated(), r"got Unrelated; let it inherit from torch\.utils\.data\.Dataset"),
    "shuffled": (loader(shuffle=True), "with RandomSampler; give the dataset itself"),
    "drop_last": (loader(drop_last=True), "drop_last=False"),
    "distributed": (loader(sampler=distributed(0, 2, drop_last=True)), "drop_last=False"),
    "own iteration": (loader(kind=Reversed), "got Reversed over TensorDataset"),
}


@pytest.mark.parametrize(("samples", "message"), UNSHARED.values(), ids=UNSHARED.keys())
def test_samples_that_cannot_be_shared(samples, message, tmp_path):
    with pytest.raises(TypeError, match=message):
        predictor(shard=(0, 2)).to_parquet(samples, tmp_path / "out")
    assert not any(tmp_path.iterdir())


class Processes(Dataset):
    """Each sample tells the process that read it."""

    def __init__(self, thing=None):
        self.thing = thing

    def __len__(self):
        return SAMPLES

    def __getitem__(self, place):
        return data()[0][place], 0 if get_worker_info() is None else 1 + get_worker_info().id


@pytest.mark.parametrize(("workers", "readers"), [(None, {0}), (0, {0}), (2, {1, 2})])
def test_workers_of_a_dataset(workers, readers):
    """By default a model on the CPU needs the cores itself."""
    table = joined(predictor(num_workers=workers, batch_size=5).predict(Processes()))
    assert {*table["target"].tolist()} == readers
    assert table["index"].tolist() == [*range(SAMPLES)]


def test_where_workers_are_safe(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(64), raising=False)
    monkeypatch.setattr(multiprocessing, "get_start_method", lambda allow_none: "fork")
    gpu = torch.device("cuda")
    assert safe_workers(Processes(), gpu) == safe_workers(Processes(torch.ones(3)), gpu) == 4
    assert as_loader(Processes(), 4, None, gpu).pin_memory
    assert safe_workers(Processes(), torch.device("cpu")) == 0
    assert safe_workers(Stream(), gpu) == 0
    with Path(__file__).open() as file:
        assert safe_workers(Processes(file), gpu) == 0, "a place in a file that processes would share"
    assert safe_workers(Processes(torch.ones(3, device="meta")), gpu) == 0, "as a tensor on the GPU"
    assert safe_workers(Processes([f"train/{i:0100}.jpg" for i in range(10**6)]), gpu) == 4, "paths, as of ImageNet"
    with monkeypatch.context() as small:
        small.setattr(indexing, "MOST_BYTES", 1000)
        assert safe_workers(Processes(bytes(1001)), gpu) == 0, "in memory"
    with monkeypatch.context() as notebook:
        notebook.setitem(sys.modules, "ipykernel", sys)
        assert safe_workers(Processes(), gpu) == 0
    for chosen, methods in (("spawn", ["fork"]), (None, ["spawn", "fork"])):
        monkeypatch.setattr(multiprocessing, "get_start_method", lambda allow_none, chosen=chosen: chosen)
        monkeypatch.setattr(multiprocessing, "get_all_start_methods", lambda methods=methods: methods)
        assert safe_workers(Processes(), gpu) == 0


def test_loaders_that_give_each_batch_memory_of_its_own():
    for rows, wanted in zip(as_loader(DATA, 5), DataLoader(DATA, 5), strict=True):
        assert all(map(torch.equal, rows, wanted))
    assert all(map(has_own_memory, (as_loader(DATA, 4), loader(), loader(num_workers=1, collate_fn=list))))
    assert not any(map(has_own_memory, (loader(collate_fn=lambda rows: default_collate(rows)), [data()[0]])))
