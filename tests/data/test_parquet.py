"""A Parquet file holds what was written, and stands under its name only when it is whole."""

import threading

import pyarrow.parquet as parquet
import pytest
import torch

from tests.inference.cases import files
from torch_boc.data import parquet as tables
from torch_boc.data.parquet import ParquetFile


def columns(start, stop):
    index = torch.arange(start, stop)
    return {"index": index, "gap": index.double() / 7, "logit": index.float().requires_grad_()}


def test_rows_come_back(tmp_path):
    path = tmp_path / "new" / "folder" / "samples.parquet"
    with ParquetFile(path, {"model": "vit"}) as file:
        file.write(columns(0, 3))
        file.write(columns(3, 10))
        assert not path.exists()
    table = parquet.read_table(path)
    assert table["index"].to_pylist() == list(range(10))
    assert table["gap"].to_pylist() == [i / 7 for i in range(10)]
    assert [str(field.type) for field in table.schema] == ["int64", "double", "float"]
    assert table.schema.metadata[b"model"] == b"vit"
    assert file.rows == 10
    assert files(path.parent) == ["samples.parquet"]


def test_a_thread_writes_the_row_groups(tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "GROUP_ROWS", 4)
    threads, append = [], ParquetFile._append

    def spy(self, *work):
        threads.append(threading.current_thread())
        return append(self, *work)

    monkeypatch.setattr(ParquetFile, "_append", spy)
    path = tmp_path / "samples.parquet"
    with ParquetFile(path) as file:
        for start in range(0, 9, 3):
            file.write(columns(start, start + 3))
    assert len(threads) == 3
    assert threading.current_thread() not in threads
    assert parquet.read_table(path)["index"].to_pylist() == list(range(9))
    assert [parquet.ParquetFile(path).metadata.row_group(i).num_rows for i in range(3)] == [4, 4, 1]


def test_a_failure_of_the_thread_leaves_nothing(tmp_path, monkeypatch):
    """Neither does a file without rows, nor one that is closed twice."""
    monkeypatch.setattr(tables, "GROUP_ROWS", 4)
    monkeypatch.setattr(ParquetFile, "_append", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
    file = ParquetFile(tmp_path / "samples.parquet")
    file.write(columns(0, 4))
    with pytest.raises(OSError, match="disk full"), file:
        file.write(columns(4, 8))
    file.close()
    with ParquetFile(tmp_path / "empty.parquet"):
        pass
    assert files(tmp_path) == []


@pytest.mark.parametrize("other", [{"index": torch.arange(2)}, {**columns(0, 2), "gap": torch.arange(2)}])
def test_other_columns_are_refused(tmp_path, other):
    file = ParquetFile(tmp_path / "samples.parquet")
    file.write(columns(0, 2))
    with (
        pytest.raises(
            ValueError, match=r"expected column 'gap' as in the first batch, torch.float64, got (no|torch.int64)"
        ),
        file,
    ):
        file.write(other)
    assert files(tmp_path) == []


def test_the_file_does_not_depend_on_the_batches(tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "GROUP_ROWS", 8)
    for name, sizes in (("a", [30]), ("b", [1] * 30), ("c", [7, 9, 14]), ("d", [8, 8, 14])):
        start = 0
        with ParquetFile(tmp_path / f"{name}.parquet") as file:
            for size in sizes:
                file.write(columns(start, start + size))
                start += size
    contents = {path.read_bytes() for path in tmp_path.iterdir()}
    assert len(contents) == 1
    groups = parquet.ParquetFile(tmp_path / "b.parquet").metadata
    assert [groups.row_group(i).num_rows for i in range(groups.num_row_groups)] == [8, 8, 8, 6]
    assert parquet.read_table(tmp_path / "b.parquet")["index"].to_pylist() == list(range(30))


def test_other_endings_are_refused(tmp_path):
    """Nobody could read Parquet under the name of another format."""
    for name in ("rows.csv", "rows", "parquet"):
        with pytest.raises(ValueError, match=f"expected the path of a file that ends in .parquet, got .*{name}"):
            ParquetFile(tmp_path / name)
    ParquetFile(tmp_path / "rows.PARQUET")
