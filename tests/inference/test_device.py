"""Results are on their way from a GPU while the next batch runs; nobody reads them before they have arrived."""

import torch

from tests.inference.cases import Counting, Loader, assert_same, data, expected, joined, predictor, read
from torch_boc.inference import predictor as module
from torch_boc.inference.device import Landing, land

CUDA = torch.device("cuda", 1)


class Event:
    """Of CUDA, as far as it is used; what happens goes into `log`."""

    def __init__(self, log, fill=None):
        self.log, self.fill = log, fill

    def record(self, stream):
        self.log.append(("recorded on", stream))

    def synchronize(self):
        self.log.append("awaited")
        if self.fill is not None:
            self.fill()


def test_an_event_behind_the_copies_is_awaited_before_they_are_read(monkeypatch):
    log = []
    copy = torch.Tensor.to

    def to(self, *args, **options):
        log.append(("copied", options))
        return copy(self, *args, **options)

    monkeypatch.setattr(torch.cuda, "Event", lambda: Event(log))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: f"stream of {device}")
    monkeypatch.setattr(torch.Tensor, "to", to)
    columns = {"gap": torch.arange(3.0), "index": torch.arange(3)}
    landing = land(columns, CUDA)
    started = [("copied", {"non_blocking": True})] * 2 + [("recorded on", "stream of cuda:1")]
    assert log == started, "nothing is awaited yet"
    assert landing.wait().keys() == columns.keys()
    assert log == [*started, "awaited"]


def test_without_a_gpu_there_is_nothing_to_wait_for():
    assert land({"gap": torch.ones(2)}, torch.device("cpu")).event is None


def late(log):
    """A `land` whose columns are zeros until the event has been awaited."""

    def land_late(columns, device):
        target = {name: torch.zeros_like(x) for name, x in columns.items()}
        return Landing(target, Event(log, lambda: [x.copy_(columns[name]) for name, x in target.items()]))

    return land_late


def test_every_table_is_awaited_before_it_is_handed_out(monkeypatch):
    model, log = Counting(), []
    monkeypatch.setattr(module, "land", late(log))
    ours = predictor(model)
    ours._ahead = 1
    tables = []
    for place, table in enumerate(ours.predict(data()[0].split(5))):
        assert len(log) == place + 1, "no table is awaited before its turn"
        assert len(model.calls) == min(place + 2, 5), "the next batch is under way"
        tables.append({name: x.clone() for name, x in table.items()})
    assert_same(joined(tables), expected(model.layer(data()[0])))


def test_a_file_and_its_marks_get_what_has_arrived(monkeypatch, tmp_path):
    """Marks of samples land with the columns; read too soon, they would not be those of the samples."""
    path = tmp_path / "samples.parquet"
    ours = predictor()
    ours._ahead = 1
    monkeypatch.setattr(module, "land", late([]))
    ours.to_parquet(Loader(), path)
    monkeypatch.undo()
    model = Counting()
    predictor(model).to_parquet(Loader(), path, resume=True)
    assert model.calls == [], "the same run, without a delay"
    assert_same(read(path), expected(model.layer(data()[0]), data()[1]))
