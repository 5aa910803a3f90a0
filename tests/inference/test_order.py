"""The index of a row is that of the sample in its data set, or the loader is refused."""

from pathlib import Path

import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    DistributedSampler,
    RandomSampler,
    SequentialSampler,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
    default_collate,
)

from tests.inference.cases import SAMPLES, Counting, assert_same, data, expected, joined, predictor, read
from torch_boc.inference.loaders import count_samples

DATA = TensorDataset(*data())


def rows(table, order):
    """The rows of the table of all samples, in some order."""
    return {name: x[torch.tensor(order, dtype=torch.int64)] for name, x in table.items()}


def assert_order(loader, order):
    model = Counting()
    whole = expected(model.layer(data()[0]), data()[1])
    tables = list(predictor(model).predict(loader))
    if order:
        assert_same(joined(tables), rows(whole, order))
    assert sum(len(x["index"]) for x in tables) == len(order) == sum(model.calls)


def distributed(rank, world, shuffle=False, drop_last=False, samples=DATA):
    return DistributedSampler(samples, world, rank, shuffle=shuffle, drop_last=drop_last)


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("world", [1, 2, 3, 5, 23, 30, 60])
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


@pytest.mark.parametrize("shuffle", [False, True])
def test_a_distributed_sampler_that_drops_the_last(shuffle):
    for rank in range(3):
        sampler = distributed(rank, 3, shuffle, drop_last=True)
        assert_order(DataLoader(DATA, 4, sampler=sampler), list(sampler))


def test_another_epoch_of_a_distributed_sampler():
    sampler = distributed(1, 2, shuffle=True)
    first = list(sampler)
    sampler.set_epoch(3)
    assert list(sampler) != first
    assert_order(DataLoader(DATA, 4, sampler=sampler), list(sampler)[: SAMPLES // 2])


def test_a_loader_that_drops_its_last_batch_and_padding():
    """12 samples with one of padding: batches of 4 keep all three, batches of 5 the first ten samples."""
    sampler = distributed(1, 2)
    for size, count in ((4, 11), (5, 10)):
        loader = DataLoader(DATA, size, sampler=sampler, drop_last=True)
        assert count_samples(loader) == count
        assert_order(loader, list(sampler)[:count])


KNOWN = {
    "sequential": (lambda: DataLoader(DATA, 4), range(SAMPLES)),
    "drop_last": (lambda: DataLoader(DATA, 4, drop_last=True), range(20)),
    "workers": (lambda: DataLoader(DATA, 4, num_workers=2), range(SAMPLES)),
    "batch sampler": (
        lambda: DataLoader(DATA, batch_sampler=BatchSampler(SequentialSampler(DATA), 4, False)),
        range(SAMPLES),
    ),
    "distributed batch sampler": (
        lambda: DataLoader(DATA, batch_sampler=BatchSampler(distributed(1, 2), 4, False)),
        range(1, SAMPLES, 2),
    ),
    "lists of indices to the data set": (
        lambda: DataLoader(DATA, sampler=BatchSampler(SequentialSampler(DATA), 4, False), batch_size=None),
        range(SAMPLES),
    ),
    "list of indices": (lambda: DataLoader(DATA, 4, sampler=[5, 3, 22, 3, 0]), [5, 3, 22, 3, 0]),
    "range of indices": (lambda: DataLoader(DATA, 4, sampler=range(20, 2, -3)), range(20, 2, -3)),
    "one worker out of turn": (lambda: DataLoader(DATA, 4, in_order=False), range(SAMPLES)),
}


@pytest.mark.parametrize(("loader", "order"), KNOWN.values(), ids=KNOWN.keys())
def test_orders_that_are_known(loader, order):
    assert_order(loader(), list(order))


def test_a_subset_counts_its_own_positions():
    table = joined(predictor().predict(DataLoader(Subset(DATA, [7, 2, 9]), 2)))
    assert table["index"].tolist() == [0, 1, 2]
    assert table["target"].tolist() == data()[1][[7, 2, 9]].tolist()


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


def test_a_loader_with_an_iteration_of_its_own_has_ids_and_no_index():
    table = joined(predictor(id="key").predict(Reversed(TensorDataset(*data(), torch.arange(SAMPLES)), 12)))
    assert "index" not in table
    assert table["key"].tolist() == [*range(12, SAMPLES), *range(12)]


UNKNOWN = {
    "shuffled": (lambda: DataLoader(DATA, 4, shuffle=True), "RandomSampler"),
    "subset": (lambda: DataLoader(DATA, 4, sampler=SubsetRandomSampler(range(9))), "SubsetRandomSampler"),
    "custom sampler": (lambda: DataLoader(DATA, 4, sampler=Backwards(DATA)), "Backwards"),
    "batch sampler of a shuffle": (
        lambda: DataLoader(DATA, batch_sampler=BatchSampler(RandomSampler(DATA), 4, False)),
        "RandomSampler",
    ),
    "custom batch sampler": (
        lambda: DataLoader(DATA, batch_sampler=Custom(SequentialSampler(DATA), 4, False)),
        "Custom",
    ),
    "batches out of order": (lambda: DataLoader(DATA, 4, num_workers=2, in_order=False), "in_order=False"),
    "places from the end": (lambda: DataLoader(DATA, 4, sampler=[-1, 0]), "list"),
    "range from the end": (lambda: DataLoader(DATA, 4, sampler=range(3, -3, -1)), "range"),
    "items out of order": (lambda: DataLoader(DATA, batch_size=None, num_workers=2, in_order=False), "in_order=False"),
    "own iteration": (lambda: Reversed(DATA, 4), "an __iter__ of its own"),
    "own iteration over items": (lambda: Reversed(DATA, batch_size=None), "an __iter__ of its own"),
    "batches of a data set, shuffled": (lambda: DataLoader(DATA, batch_size=None, shuffle=True), "RandomSampler"),
}


@pytest.mark.parametrize(("loader", "name"), UNKNOWN.values(), ids=UNKNOWN.keys())
def test_orders_that_are_not_known_are_refused(loader, name, tmp_path):
    model = Counting()
    message = rf"keeps the order of its data set, got a DataLoader with {name}, .*leave shuffle=True.* id='name'"
    with pytest.raises(ValueError, match=message):
        predictor(model).predict(loader())
    with pytest.raises(ValueError, match=message):
        predictor(model).to_frame(loader())
    with pytest.raises(ValueError, match=message):
        predictor(model).to_parquet(loader(), tmp_path / "samples.parquet")
    assert model.calls == []
    assert not any(tmp_path.iterdir())


def without_first(samples):
    return default_collate(samples[1:])


def test_a_collate_fn_that_leaves_samples_out_is_refused():
    loader = DataLoader(DATA, 4, collate_fn=without_first)
    with pytest.raises(ValueError, match=r"expected 4 samples in a batch .*, got 3, .*iter\(loader\), whose rows are"):
        list(predictor().predict(loader))
    assert joined(predictor().predict(iter(loader)))["index"].tolist() == list(range(17))


def test_a_finished_file_of_a_distributed_sampler_is_compared_without_the_padding(tmp_path):
    loader = DataLoader(DATA, 4, sampler=distributed(1, 2))
    with pytest.warns(UserWarning, match=ONE):
        path = predictor().to_parquet(loader, tmp_path / "samples.parquet", resume=True)
    assert read(path)["index"].tolist() == list(range(1, SAMPLES, 2))
    model = Counting()
    with pytest.warns(UserWarning, match=ONE):
        predictor(model).to_parquet(loader, path, resume=True)
    assert model.calls == []


ONE = r"this file has the samples of process \d of 2 only; with shard='auto' all processes write one folder"


def test_one_process_is_not_warned(tmp_path):
    path = predictor().to_parquet(DataLoader(DATA, 4, sampler=distributed(0, 1)), tmp_path / "samples.parquet")
    assert len(read(path)["index"]) == SAMPLES


def test_two_ranks_of_a_distributed_sampler_have_each_sample_once(tmp_path):
    """1,001 samples on two processes: these were 1,002 rows with 501 different indices."""
    samples, indices = TensorDataset(torch.randn(1001, 3)), []
    for rank in range(2):
        loader = DataLoader(samples, 64, sampler=DistributedSampler(samples, 2, rank, shuffle=False))
        with pytest.warns(UserWarning, match=f"process {rank + 1} of 2 only") as said:
            path = predictor().to_parquet(loader, tmp_path / f"{rank}.parquet")
        assert [Path(x.filename).name for x in said] == ["test_order.py"]
        indices.append(read(path)["index"])
    assert [len(x) for x in indices] == [501, 500]
    assert torch.cat(indices).sort().values.tolist() == list(range(1001))
