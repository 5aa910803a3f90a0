"""A Parquet file appears when it is whole; an interrupted run goes on where it stopped."""

import pyarrow.parquet as parquet
import pytest
from torch.utils.data import DataLoader, TensorDataset

from tests.inference.cases import Counting, Loader, assert_same, data, expected, files, predictor, read
from torch_boc.functional.columns import COLUMNS
from torch_boc.inference import part_files


@pytest.mark.parametrize("resume", [False, True])
def test_the_file_holds_every_sample(tmp_path, resume):
    model, path = Counting(), tmp_path / "deep" / "samples.parquet"
    assert predictor(model).to_parquet(Loader(), str(path), resume=resume) == path
    assert_same(read(path), expected(model.layer(data()[0]), data()[1]))
    assert files(path.parent) == ["samples.parquet"]
    schema = parquet.read_schema(path)
    assert schema.names == ["index", "target", *COLUMNS]
    assert {str(schema.field(name).type) for name in ("index", "target", "prediction")} == {"int64"}


def test_an_interrupted_run_leaves_what_was_there(tmp_path):
    path = tmp_path / "samples.parquet"
    path.write_text("from before")
    with pytest.raises(KeyboardInterrupt):
        predictor().to_parquet(Loader(healthy=3), path)
    assert path.read_text() == "from before"
    assert files(tmp_path) == ["samples.parquet"]


def test_a_resumed_run_gives_the_same_bytes_and_repeats_nothing(tmp_path):
    whole, path = tmp_path / "whole.parquet", tmp_path / "samples.parquet"
    predictor().to_parquet(Loader(), whole)
    for healthy, calls in ((3, [4, 4, 4]), (3, []), (4, [4]), (None, [4, 3])):
        model = Counting()
        if healthy is None:
            predictor(model).to_parquet(Loader(), path, resume=True)
        else:
            with pytest.raises(KeyboardInterrupt):
                predictor(model).to_parquet(Loader(healthy), path, resume=True)
            assert files(tmp_path) == ["samples.parquet.parts", "whole.parquet"]
        assert model.calls == calls
    assert path.read_bytes() == whole.read_bytes()
    assert files(tmp_path) == ["samples.parquet", "whole.parquet"]


ROOM = {"calls": 99}


class Stopping(Counting):
    """Is interrupted after as many calls as there is room for; the room is no part of the model."""

    def forward(self, x):
        if len(self.calls) == ROOM["calls"]:
            raise KeyboardInterrupt
        return super().forward(x)


def test_an_interruption_of_the_model(tmp_path, monkeypatch):
    path, stopping = tmp_path / "samples.parquet", Stopping()
    stopping.train()
    monkeypatch.setitem(ROOM, "calls", 2)
    with pytest.raises(KeyboardInterrupt):
        predictor(stopping).to_parquet(Loader(), path, resume=True)
    assert stopping.training
    monkeypatch.undo()
    model = Stopping()
    predictor(model).to_parquet(Loader(), path, resume=True)
    assert model.calls == [4, 4, 4, 3]
    assert_same(read(path), expected(model.layer(data()[0]), data()[1]))


def test_small_parts_and_a_process_that_is_killed(tmp_path, monkeypatch):
    """A part under way when the process dies is a temporary file, and is not counted."""
    monkeypatch.setattr(part_files, "PART_ROWS", 8)
    path = tmp_path / "samples.parquet"
    with pytest.raises(KeyboardInterrupt):
        predictor().to_parquet(Loader(healthy=5), path, resume=True)
    folder = tmp_path / "samples.parquet.parts"
    assert [p.name for p in sorted(folder.glob("0*"))] == [f"{row:015d}.parquet" for row in (0, 8, 16)]
    last = folder / f"{16:015d}.parquet"
    last.rename(folder / f".{last.name}.99.tmp")
    model = Counting()
    predictor(model).to_parquet(Loader(), path, resume=True)
    assert model.calls == [4, 3]
    assert_same(read(path), expected(model.layer(data()[0]), data()[1]))


def test_parts_are_closed_as_time_goes_by(tmp_path, monkeypatch):
    monkeypatch.setattr(part_files, "PART_SECONDS", 0.0)
    with pytest.raises(KeyboardInterrupt):
        predictor().to_parquet(Loader(healthy=3), tmp_path / "samples.parquet", resume=True)
    assert len(list((tmp_path / "samples.parquet.parts").glob("0*"))) == 3


def test_resuming_with_another_batch_size(tmp_path):
    class Breaking(TensorDataset):
        healthy = 11

        def __getitem__(self, i):
            if i == self.healthy:
                raise KeyboardInterrupt
            return super().__getitem__(i)

    path, samples = tmp_path / "samples.parquet", Breaking(*data())
    with pytest.raises(KeyboardInterrupt):
        predictor().to_parquet(DataLoader(samples, 4), path, resume=True)
    model, samples.healthy = Counting(), None
    predictor(model).to_parquet(DataLoader(samples, 5), path, resume=True)
    assert model.calls == [2, 5, 5, 3]
    assert_same(read(path), expected(model.layer(data()[0]), data()[1]))


def test_a_loader_of_unknown_length_that_ends_too_soon(tmp_path):
    path = tmp_path / "samples.parquet"
    with pytest.raises(KeyboardInterrupt):
        predictor().to_parquet(iter(Loader(healthy=3)), path, resume=True)
    with pytest.raises(ValueError, match="expected a loader with at least the 12 samples that are already done, got 8"):
        predictor().to_parquet(iter(Loader().batches[:2]), path, resume=True)
    assert not path.exists()


@pytest.mark.parametrize("resume", [False, True])
def test_no_samples(tmp_path, resume):
    path = predictor().to_parquet([], tmp_path / "samples.parquet", resume=resume)
    table = parquet.read_table(path)
    assert table.column_names == ["index", *COLUMNS]
    assert table.num_rows == 0
    assert files(tmp_path) == ["samples.parquet"]


def test_without_pyarrow(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    model = Counting()
    with pytest.raises(ImportError, match=r"torch-boc\[eval\]"):
        predictor(model).to_parquet(Loader(), tmp_path / "samples.parquet")
    assert model.calls == []
