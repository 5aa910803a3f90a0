"""Files that were damaged, lost or are in the way are named with a remedy; what an interruption leaves is whole."""

import pyarrow.parquet as parquet
import pytest

from tests.inference.cases import Counting, Loader, assert_same, data, expected, files, predictor, read
from tests.inference.test_resume import Tempered, finished, interrupted
from torch_boc.inference import part_files
from torch_boc.inference.passing import Passing


@pytest.mark.parametrize("resume", [False, True])
def test_a_path_that_cannot_be_a_file_is_refused_before_the_work(resume, tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    (tmp_path / "taken.parquet.parts").touch()
    cases = {"folder": IsADirectoryError, "file/samples.parquet": NotADirectoryError}
    cases |= {"taken.parquet": NotADirectoryError} if resume else {}
    for name, error in cases.items():
        model = Counting()
        with pytest.raises(error, match=name.partition("/")[0]):
            predictor(model).to_parquet(Loader(), tmp_path / name, resume=resume)
        assert model.calls == []


def damage(content):
    return lambda path: path.write_bytes(content)


def truncate(path):
    path.write_bytes(path.read_bytes()[:-40])


def flip(path):
    """A bit of a page, which the footer does not tell."""
    content, column = bytearray(path.read_bytes()), parquet.read_metadata(path).row_group(0).column(0)
    start = min(x for x in (column.dictionary_page_offset, column.data_page_offset) if x is not None)
    content[start + column.total_compressed_size - 1] ^= 1
    path.write_bytes(bytes(content))


def shorten(path):
    """Fewer rows than the record says."""
    metadata = {"torch_boc": parquet.read_metadata(path).metadata[b"torch_boc"]}
    parquet.write_table(parquet.read_table(path).slice(0, 1).replace_schema_metadata(metadata), path)


PART = "000000000000004.parquet"
DAMAGES = {
    "empty record": ("run.json", damage(b""), r"got .*run.json, which is damaged; to start over, delete .*parts"),
    "no record": ("run.json", lambda path: path.unlink(), r"expected .*run.json beside the parts, got none"),
    "other record": ("run.json", damage(b"[]"), r"got .*run.json, which is damaged"),
    "truncated": (PART, truncate, rf"expected a whole Parquet file, got .*{PART} .*delete it and the parts after it"),
    "no part": (PART, lambda path: path.unlink(), "expected a part from row 4 on, got .*8.parquet"),
    "text": (PART, damage(b"hello"), rf"expected a whole Parquet file, got .*{PART}"),
    "fewer rows": (PART, shorten, rf"expected rows 4 to 8 in .*{PART}, got 1 rows"),
    "bit": (PART, flip, rf"expected a whole part, got .*{PART} .*To start over, delete"),
}


@pytest.mark.parametrize(("name", "apply", "message"), DAMAGES.values(), ids=DAMAGES.keys())
def test_damaged_parts_are_named_with_a_remedy(name, apply, message, tmp_path, monkeypatch):
    monkeypatch.setattr(part_files, "PART_ROWS", 4)
    path = tmp_path / "samples.parquet"
    interrupted(path, Counting())
    apply(tmp_path / "samples.parquet.parts" / name)
    with pytest.raises(ValueError, match=message):
        predictor().to_parquet(Loader(), path, resume=True)
    assert not path.exists()
    assert files(tmp_path) == ["samples.parquet.parts"], "no lock stays"


def test_the_remedy_helps(tmp_path, monkeypatch):
    monkeypatch.setattr(part_files, "PART_ROWS", 4)
    path = tmp_path / "samples.parquet"
    interrupted(path, Counting())
    for start in (4, 8):
        (tmp_path / "samples.parquet.parts" / f"{start:015d}.parquet").unlink()
    model = Counting()
    predictor(model).to_parquet(Loader(), path, resume=True)
    assert model.calls == [4, 4, 4, 4, 3]


@pytest.mark.parametrize("place", [(Passing, "add"), (part_files.ParquetFile, "write")], ids=["record", "rows"])
def test_an_interruption_between_the_rows_and_their_record(place, tmp_path, monkeypatch):
    """Ctrl-C can come anywhere; a part whose rows and record do not agree is given up, and not an error later."""
    path, (owner, name), calls = tmp_path / "samples.parquet", place, []
    original = getattr(owner, name)

    def stopping(self, *args):
        result = None if owner is Passing and len(calls) == 2 else original(self, *args)
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return result

    monkeypatch.setattr(owner, name, stopping)
    with pytest.raises(KeyboardInterrupt):
        predictor().to_parquet(Loader(), path, resume=True)
    monkeypatch.undo()
    model = Counting()
    predictor(model).to_parquet(Loader(), path, resume=True)
    assert_same(read(path), expected(model.layer(data()[0]), data()[1]))


def test_a_finished_file_with_other_rows_is_an_error(tmp_path):
    path = tmp_path / "samples.parquet"
    finished(path)
    shorten(path)
    with pytest.raises(ValueError, match=r"expected 23 rows in .*samples.parquet, got 1\. To replace the file"):
        predictor(Tempered()).to_parquet(Loader(), path, resume=True)


def test_a_part_of_another_run_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr(part_files, "PART_ROWS", 4)
    interrupted(tmp_path / "a.parquet", Counting())
    interrupted(tmp_path / "b.parquet", Tempered())
    (tmp_path / "b.parquet.parts" / PART).replace(tmp_path / "a.parquet.parts" / PART)
    with pytest.raises(ValueError, match=f"expected the run that wrote .*{PART}, with .*weights"):
        predictor().to_parquet(Loader(), tmp_path / "a.parquet", resume=True)


def test_parts_that_vanish_while_a_run_writes(tmp_path, monkeypatch):
    """The join looks again: all rows from 0 to the last, or no file."""
    monkeypatch.setattr(part_files, "PART_ROWS", 4)
    path = tmp_path / "samples.parquet"

    def losing(name):
        for i, batch in enumerate(Loader().batches):
            if i == 5:
                (tmp_path / "samples.parquet.parts" / name).unlink()
            yield batch

    for name, message in ((PART, "expected a part from row 4 on"), (f"{16:015d}.parquet", "from row 16 on")):
        with pytest.raises(ValueError, match=message):
            predictor().to_parquet(losing(name), path, resume=True)
        assert not path.exists()
        for part in (tmp_path / "samples.parquet.parts").iterdir():
            part.unlink()
