"""Results are on their way from a GPU while the next batch runs; nobody reads them before they have arrived."""

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from tests.inference.cases import Counting, Loader, assert_same, data, expected, joined, predictor, read
from torch_boc.inference import loop as module
from torch_boc.inference.device import Landing, land

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
needs_two = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices")


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


def watch_copies(monkeypatch):
    """The log of what is copied, recorded and awaited."""
    log, copy = [], torch.Tensor.to

    def to(self, *args, **options):
        log.append((f"copied from {self.device}", options))
        return copy(self, *args, **options)

    monkeypatch.setattr(torch.cuda, "Event", lambda: Event(log))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: f"stream of {device}")
    monkeypatch.setattr(torch.Tensor, "to", to)
    return log


def test_an_event_behind_the_copies_of_each_device_is_awaited_before_they_are_read(monkeypatch):
    """A model split over two cards has its logits on another card than its inputs."""
    log = watch_copies(monkeypatch)
    with FakeTensorMode():
        columns = {"index": torch.arange(3), "marks": torch.arange(3, device="cuda:0")}
        columns |= {"gap": torch.zeros(3, device="cuda:1"), "energy": torch.zeros(3, device="cuda:1")}
        landing = land(columns)
        late = {"non_blocking": True}
        copies = [("copied from cuda:0", late), ("copied from cuda:1", late), ("copied from cuda:1", late)]
        recorded = [("recorded on", "stream of cuda:0"), ("recorded on", "stream of cuda:1")]
        started = [("copied from cpu", {"non_blocking": False}), *copies, *recorded]
        assert log == started, "nothing is awaited yet"
        assert landing.wait().keys() == columns.keys()
    assert log == [*started, "awaited", "awaited"]


def test_no_pinned_memory_is_handed_out(monkeypatch):
    """What comes from a GPU lands in pinned memory, which the whole machine is short of."""
    watch_copies(monkeypatch)
    with FakeTensorMode():
        landing = land({"index": torch.arange(3), "gap": torch.zeros(3, device="cuda:1")})
    assert landing.pinned == {"gap"}
    there = Landing({"index": torch.arange(3), "gap": torch.zeros(3)}, [], landing.pinned)
    columns = there.wait()
    assert torch.equal(columns["gap"], there.columns["gap"])
    assert columns["gap"].data_ptr() != there.columns["gap"].data_ptr()
    assert columns["index"] is there.columns["index"], "which needs no copy"


def test_without_a_gpu_there_is_nothing_to_wait_for():
    landing = land({"gap": torch.ones(2)})
    assert not landing.events
    assert not landing.pinned


def late(log):
    """A `land` whose columns are zeros until the event has been awaited."""

    def land_late(columns):
        target = {name: torch.zeros_like(x) for name, x in columns.items()}
        arrival = Event(log, lambda: [x.copy_(columns[name]) for name, x in target.items()])
        return Landing(target, [arrival], target.keys())

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


class Split(Counting):
    """Inputs on the first card, logits on the second, after work that takes a while."""

    def __init__(self):
        super().__init__()
        self.layer = self.layer.to("cuda:1")
        self.first = nn.Parameter(torch.zeros(1, device="cuda:0"))  # comes before those of the layer

    def forward(self, x):
        assert x.device == torch.device("cuda:0")
        x = x.to("cuda:1")
        torch.cuda._sleep(200_000_000)  # about a tenth of a second, on the first card
        with torch.cuda.device("cuda:1"):
            torch.cuda._sleep(200_000_000)
        return super().forward(x)


@pytest.mark.gpu
@needs_two
def test_a_model_split_over_two_cards():
    model = Split()
    tables = joined(predictor(model).predict(data()[0].split(5)))
    assert_same(tables, expected(model.layer(data()[0].to("cuda:1")).cpu()))


@pytest.mark.gpu
@needs_gpu
def test_tables_from_a_gpu_are_not_pinned():
    for table in predictor(Counting(), device="cuda").predict(data()[0].split(5)):
        assert not any(x.is_pinned() for x in table.values())
