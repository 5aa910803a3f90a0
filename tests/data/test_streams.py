"""A file that is read in parts gives the rows, the errors and the warnings of the file that is read as a whole."""

import warnings

import numpy as np
import pyarrow as pa
import pytest
import safetensors.torch
import torch
from pyarrow import csv, parquet

from tests.cli.test_bad_files import BAD
from tests.data import test_files
from tests.data.test_files import WRITERS
from torch_boc.data.files import read_logits
from torch_boc.data.streams import STREAMED, stream_logits

arrays = test_files.arrays
SIZES = (1, 3, 7, None)  # rows of a block; None is the default, which takes all of a small file


@pytest.fixture(autouse=True)
def few_cells(monkeypatch):
    """Small files of columns are read in several parts too."""
    monkeypatch.setattr("torch_boc.data.sheet_streams.READ_CELLS", 1)


def joined(path, **options):
    """All blocks of a stream together, and the stream."""
    stream = stream_logits(path, **options)
    blocks = list(stream)
    assert [block.start for block in blocks] == [sum(len(x.logits) for x in blocks[:i]) for i in range(len(blocks))]
    target = None if blocks[0].target is None else torch.cat([block.target for block in blocks])
    return torch.cat([block.logits for block in blocks]), target, stream


def outcome(read):
    """The kind of error and its message, if there is one, and all warnings."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            read()
        except Exception as error:
            return type(error), str(error), [str(x.message) for x in said]
    return None, "", [str(x.message) for x in said]


def assert_same(path, **options):
    """What is said of a file, and its rows if it is good, are those of the whole."""
    expected = outcome(lambda: read_logits(path, **options))
    for rows in SIZES:
        assert outcome(lambda rows=rows: list(stream_logits(path, rows=rows, **options))) == expected
    if expected[0] is None:
        with warnings.catch_warnings(action="ignore"):
            whole = read_logits(path, **options)
            for rows in SIZES:
                logits, target, stream = joined(path, rows=rows, **options)
                assert torch.equal(logits, whole.logits)
                assert logits.dtype == whole.logits.dtype
                assert (target is None) if whole.target is None else torch.equal(target, whole.target)
                assert (stream.rows, stream.num_classes, stream.name) == (len(whole), whole.num_classes, whole.name)
    return expected


@pytest.mark.parametrize("file", WRITERS)
def test_every_format(tmp_path, arrays, file):
    WRITERS[file](tmp_path / file, arrays)
    assert assert_same(tmp_path / file) == (None, "", [])


@pytest.mark.parametrize("file", BAD)
def test_bad_files_have_the_same_messages(tmp_path, file):
    BAD[file][0](tmp_path / file)
    kind, message, _ = assert_same(tmp_path / file)
    assert kind is not None
    assert BAD[file][1] in message


def test_which_formats_are_read_in_parts():
    assert set(STREAMED) == {".npz", ".npy", ".safetensors", ".parquet", ".csv"}


LOGITS = 3 * torch.randn(40, 5, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", ">f4", "longdouble", "int16", "uint8"])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("kind", ["a.npy", "a.npz", "packed.npz"])
def test_dtypes_and_orders_of_numpy(tmp_path, dtype, order, kind):
    values = np.asarray(LOGITS.abs().numpy(), dtype=dtype, order=order)
    write = {"a.npy": np.save, "packed.npz": lambda path, x: np.savez_compressed(path, logits=x)}
    write.get(kind, lambda path, x: np.savez(path, logits=x, y=np.arange(40) % 5))(tmp_path / kind, values)
    assert assert_same(tmp_path / kind) == (None, "", [])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.float8_e5m2])
def test_dtypes_of_safetensors(tmp_path, dtype):
    content = {"logits": LOGITS.to(dtype), "zero": torch.tensor(1.0), "y": torch.arange(40, dtype=torch.int32) % 5}
    safetensors.torch.save_file(content, tmp_path / "a.safetensors")
    kind, _, said = assert_same(tmp_path / "a.safetensors")
    assert kind is None
    assert len(said) == 1
    assert "left out zero" in said[0]


@pytest.mark.parametrize("file", ["a.npz", "a.csv", "a.parquet"])
def test_a_wrong_number_of_names_is_found_before_the_rows_are_read(tmp_path, arrays, file):
    WRITERS[file](tmp_path / file, arrays)
    words = "expected logits of 2 classes, one for each name, got"
    assert words in outcome(lambda: read_logits(tmp_path / file, classes=["a", "b"]))[1]
    assert words in outcome(lambda: stream_logits(tmp_path / file, classes=["a", "b"]))[1]


def test_one_row(tmp_path):
    np.save(tmp_path / "a.npy", [[1.0, -2.0]])
    (tmp_path / "a.csv").write_text("logit_0,logit_1\n1,-2")
    for path in tmp_path.iterdir():
        assert assert_same(path) == (None, "", [])


@pytest.mark.parametrize("groups", [3, 40])
def test_groups_of_rows_in_parquet(tmp_path, groups):
    table = pa.table({**{f"logit_{i}": LOGITS[:, i].numpy() for i in range(5)}, "file": ["a"] * 40})
    parquet.write_table(table, tmp_path / "a.parquet", row_group_size=groups)
    kind, _, said = assert_same(tmp_path / "a.parquet")
    assert kind is None
    assert "left out file (text)" in said[0]


class TestWhatOnlyAllRowsTell:
    """Each fault stands in a late row, in each format."""

    def save(self, folder, **arrays):
        np.savez(folder / "a.npz", **arrays)
        if all(x.dtype.kind in "fi" and len(x) == len(arrays["logits"]) for x in arrays.values()):
            safetensors.torch.save_file(
                {k: torch.from_numpy(x.copy()) for k, x in arrays.items()}, folder / "a.safetensors"
            )
            logits = {f"logit_{i}": arrays["logits"][:, i] for i in range(arrays["logits"].shape[1])}
            table = pa.table({**logits, **{k: x for k, x in arrays.items() if k != "logits"}})
            parquet.write_table(table, folder / "a.parquet", row_group_size=4)
            csv.write_csv(table, folder / "a.csv")
        return sorted(folder.iterdir())

    @pytest.mark.parametrize(
        ("change", "words"),
        [
            ({"rows": [5, 8]}, "in 2 of 10 rows, first in row 5"),
            ({"target": 7}, "got 1 outside, such as 7"),
            ({"target": 0.5}, "integer class indices, got shape (10,), dtype torch.float64"),
            ({"knn": np.inf}, "column 'knn' as 10 finite numbers, got shape (10,) with NaN or inf"),
        ],
    )
    def test_faults(self, tmp_path, change, words):
        logits, target, knn = LOGITS[:10].double().numpy().copy(), np.arange(10) % 5, np.arange(10.0)
        logits[change.get("rows", [])] = np.nan
        if "target" in change:
            target = np.where(np.arange(10) == 8, change["target"], target)
        knn[8] = change.get("knn", 1.0)
        for path in self.save(tmp_path, logits=logits, target=target, knn=knn):
            assert words in assert_same(path)[1]

    def test_the_first_fault_in_the_order_of_the_whole(self, tmp_path):
        """A bad target stands before a bad row, but the rows are spoken of first."""
        logits = LOGITS[:10].numpy().copy()
        logits[9] = np.nan
        for path in self.save(tmp_path, logits=logits, target=np.full(10, 99)):
            assert "in 1 of 10 rows, first in row 9" in assert_same(path)[1]

    def test_probabilities(self, tmp_path):
        shares = LOGITS[:10].softmax(1).numpy()
        for path in self.save(tmp_path, logits=shares):
            assert "got probabilities (every row is non-negative" in assert_same(path)[1]
            assert assert_same(path, from_probabilities=True)[0] is None

    def test_logits_whose_first_rows_look_like_probabilities(self, tmp_path):
        logits = torch.cat([LOGITS[:9].softmax(1), LOGITS[9:10]]).numpy()
        for path in self.save(tmp_path, logits=logits):
            assert assert_same(path) == (None, "", [])
            assert "else in 1 of 10 rows, first in row 9 (smallest" in assert_same(path, from_probabilities=True)[1]

    def test_shares_that_are_no_probabilities(self, tmp_path):
        for path in self.save(tmp_path, logits=np.random.default_rng(0).random((10, 5))):
            assert "every value lies in [0, 1], as probabilities do" in assert_same(path)[2][0]

    @pytest.mark.parametrize(
        ("arrays", "words"),
        [
            ({"target": np.arange(9) % 5}, "expected target of shape (10,)"),
            ({"target": np.arange(11.0)}, "expected target of shape (10,)"),
            ({"target": np.array(3)}, "expected target of shape (10,)"),
            ({"knn": np.arange(11)}, "got shape (11,)"),
            ({"y": np.array(["a", "b"] * 5)}, "got text such as 'a'"),
            ({"a\x07": np.ones(10), r"a\x07": np.zeros(10)}, "expected columns whose names differ"),
        ],
    )
    def test_misfits(self, tmp_path, arrays, words):
        np.savez(tmp_path / "a.npz", logits=LOGITS[:10].numpy(), **arrays)
        assert words in assert_same(tmp_path / "a.npz")[1]

    @pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
    def test_names_of_classes(self, tmp_path, save):
        """The header of an array of text was taken for a list of two values, so that there were no rows at all."""
        names = np.array(["cat", "a dog", "bird", "cat", "fish"] * 8)
        save(tmp_path / "a.npz", logits=LOGITS.numpy(), target=names)
        assert assert_same(tmp_path / "a.npz", classes=["cat", "a dog", "bird", "fish", "cow"]) == (None, "", [])
        assert "got 'a dog' in row 1" in assert_same(tmp_path / "a.npz", classes=["cat", "b", "bird", "fish", "c"])[1]
        save(tmp_path / "b.npz", logits=LOGITS.numpy(), target=names[:2])
        words = "expected target of shape (40,)"
        assert words in assert_same(tmp_path / "b.npz", classes=["cat", "a dog", "bird", "fish", "cow"])[1]

    def test_rows_that_get_lost_are_an_error(self, tmp_path, monkeypatch):
        """Even if no check has found a reason."""
        np.savez(tmp_path / "a.npz", logits=LOGITS.numpy(), target=np.arange(40) % 5)
        monkeypatch.setattr("torch_boc.data.inspection.Inspection.good", False)
        with pytest.raises(ValueError, match=r"a\.npz: expected blocks of all 40 rows, got 0; please report"):
            list(stream_logits(tmp_path / "a.npz"))

    def test_lengths_of_lists(self, tmp_path):
        lists = [[1.0, 2.0]] * 5 + [[1.0]] + [[1.0, 2.0]] * 2 + [None, [1.0, 2.0, 3.0]]
        for name, rows in (("a", lists), ("b", lists[::-1]), ("c", lists[8:])):
            parquet.write_table(pa.table({"logits": rows}), tmp_path / f"{name}.parquet", row_group_size=3)
            assert "expected as many logits in every row" in assert_same(tmp_path / f"{name}.parquet")[1]

    def test_an_unused_array_with_a_damaged_byte(self, tmp_path):
        np.savez(tmp_path / "a.npz", logits=LOGITS.numpy(), other=np.full((3, 3), 7, dtype=np.int64))
        content = bytearray((tmp_path / "a.npz").read_bytes())
        content[content.index(np.int64(7).tobytes())] ^= 255
        (tmp_path / "a.npz").write_bytes(bytes(content))
        assert "damaged" in assert_same(tmp_path / "a.npz")[1]

    @pytest.mark.parametrize("lost", [1, 40, 200])
    def test_files_that_are_cut(self, tmp_path, lost):
        np.save(tmp_path / "a.npy", LOGITS.numpy())
        safetensors.torch.save_file({"logits": LOGITS}, tmp_path / "a.safetensors")
        for path in sorted(tmp_path.iterdir()):
            path.write_bytes(path.read_bytes()[:-lost])
            assert "damaged or cut off" in assert_same(path)[1]


class TestText:
    """Cells of CSV that turn out to be text after many that are numbers."""

    def write(self, path, cells, name="note"):
        lines = [f"logit_0,logit_1,{name}", *(f"{i},{-i},{cell}" for i, cell in enumerate(cells))]
        path.write_text("\n".join(lines))
        return path

    def test_a_column_that_is_text_in_the_end(self, tmp_path):
        path = self.write(tmp_path / "a.csv", ["1", "", "2", "nine", "5"])
        assert "left out note (text)" in assert_same(path)[2][0]
        assert assert_same(self.write(tmp_path / "b.csv", "12345")) == (None, "", [])

    def test_names_of_classes_that_may_be_numbers(self, tmp_path):
        path = self.write(tmp_path / "a.csv", [*"5775", "x"], "y")
        assert assert_same(path, classes=["5", "7"])[1].endswith("got 'x' in row 4")
        path = self.write(tmp_path / "b.csv", [*"7777", "x"], "y")
        assert assert_same(path, classes=["x", "7"]) == (None, "", [])
        path = self.write(tmp_path / "c.csv", ["a", "b", "", "a"], "y")
        assert assert_same(path, classes=["a", "b"])[0] is ValueError

    def test_a_word_among_targets(self, tmp_path):
        path = self.write(tmp_path / "a.csv", ["0", "1", "0", "cat"], "y")
        assert "expected a number in line 5, column 'y', got 'cat'" in assert_same(path)[1]

    def test_a_row_longer_than_a_block_of_arrow(self, tmp_path):
        """It comes after blocks that were given away already."""
        long = '"' + "long " * 480_000 + '"'
        path = self.write(tmp_path / "a.csv", [*["word"] * 150_000, long, "word"])
        with pytest.warns(UserWarning, match="left out note"):
            logits, _, stream = joined(path, rows=1000)
        assert stream.rows == 150_002
        assert torch.equal(logits[:, 0], torch.arange(150_002, dtype=torch.float64))


def test_a_stream_can_be_read_twice(tmp_path):
    np.save(tmp_path / "a.npy", LOGITS.numpy())
    stream = stream_logits(tmp_path / "a.npy", rows=7)
    assert [len(block.logits) for block in stream] == [len(block.logits) for block in stream] == [7] * 5 + [5]


def test_the_rows_of_a_csv_file_are_known_at_its_end(tmp_path):
    (tmp_path / "a.csv").write_text("logit_0,logit_1\n1,2\n3,4\n")
    stream = stream_logits(tmp_path / "a.csv")
    assert stream.rows is None
    next(iter(stream))
    assert stream.rows is None
    list(stream)
    assert stream.rows == 2


@pytest.mark.parametrize("rows", [0, -3])
def test_a_block_has_rows(tmp_path, rows):
    with pytest.raises(ValueError, match=f"expected at least 1 row in a block, got {rows}"):
        stream_logits(tmp_path / "a.npy", rows=rows)
