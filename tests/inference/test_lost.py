"""No sample of a loader is lost in silence, and none comes twice."""

import pytest
import torch
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from tests.inference.cases import SAMPLES, data, joined, predictor
from tests.inference.test_order import Custom, distributed


class Ending(TensorDataset):
    """A data set whose error ends the loop over it."""

    def __init__(self, *tensors, at=13):
        super().__init__(*tensors)
        self.at = at

    def __getitem__(self, i):
        if i == self.at:
            raise StopIteration
        return super().__getitem__(i)


class Rows(Ending):
    """Each item is a batch."""

    def __getitem__(self, i):
        return tuple(x[None] for x in super().__getitem__(i))


NUMBERS = torch.arange(SAMPLES)
ENDING = {
    "sequential": (lambda at: DataLoader(Ending(*data(), at=at), 4), None),
    "workers": (lambda at: DataLoader(Ending(*data(), at=at), 4, num_workers=1), None),
    "distributed": (lambda at: DataLoader(Ending(*data(), at=at), 4, sampler=distributed(0, 2)), None),
    "shuffled": (lambda at: DataLoader(Ending(*data(), NUMBERS, at=at), 4, shuffle=True), "key"),
    "items": (lambda at: DataLoader(Rows(*data(), at=at), batch_size=None), None),
}


@pytest.mark.parametrize("at", [0, 12, SAMPLES - 1])
@pytest.mark.parametrize(("loader", "id"), ENDING.values(), ids=ENDING.keys())
def test_a_stop_iteration_in_the_data_set_is_an_error(loader, id, at):
    with pytest.raises(ValueError, match="expected a batch for all indices of the sampler, got fewer; a StopIteration"):
        list(predictor(id=id).predict(loader(at)))


@pytest.mark.parametrize("drop_last", [False, True])
def test_all_batches_of_a_shuffled_loader_are_no_error(drop_last):
    loader = DataLoader(TensorDataset(*data(), NUMBERS), 4, shuffle=True, drop_last=drop_last)
    assert len(joined(predictor(id="key").predict(loader))["key"]) == (20 if drop_last else SAMPLES)


KEYED = TensorDataset(*data(), NUMBERS)


class Own(DistributedSampler):
    """A class of the user's own."""


def padded(kind=DistributedSampler, **options):
    return kind(KEYED, 2, 1, shuffle=False, **options)


PADDED = {
    "out of order": lambda sampler: DataLoader(KEYED, 4, sampler=sampler(), num_workers=2, in_order=False),
    "own sampler": lambda sampler: DataLoader(KEYED, 4, sampler=sampler(Own)),
    "own batch sampler": lambda sampler: DataLoader(KEYED, batch_sampler=Custom(sampler(), 4, False)),
    "items": lambda sampler: DataLoader(KEYED, batch_size=None, sampler=Custom(sampler(), 4, False)),
}


@pytest.mark.parametrize("loader", PADDED.values(), ids=PADDED.keys())
def test_padding_in_an_unknown_place_is_refused_also_with_an_id(loader):
    with pytest.raises(ValueError, match=r"each sample once, got .* that repeats 1 samples.*shard='auto'.*drop_last=T"):
        predictor(id="key").predict(loader(padded))
    table = joined(predictor(id="key").predict(loader(lambda *kind: padded(*kind, drop_last=True))))
    assert sorted(table["key"].tolist()) == list(range(1, SAMPLES - 1, 2))
