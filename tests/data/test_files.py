"""Every format gives the same rows: all, in blocks, and by chance. What cannot be logits is a line that says why."""

import os
import pickle
import random
import subprocess
import sys
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
import safetensors.torch
import torch
from pyarrow import csv, parquet

from tests.data.cases import labelled
from tests.data.tables import column_table, logit_table, write_parts
from torch_boc.data import LogitReader, read_logits

ROWS, CLASSES = 7, 3
LOGITS = np.random.default_rng(1).normal(size=(ROWS, CLASSES))
LOGITS[2, 1] = -np.inf
GOOD = {"logits": LOGITS, "target": np.arange(ROWS) % CLASSES, "knn": LOGITS.max(1) / 3}


def tensors(arrays):
    return {name: torch.from_numpy(np.array(x)) for name, x in arrays.items()}


def table(arrays, prefix="logit_"):
    columns = {f"{prefix}{i}": x for i, x in enumerate(arrays["logits"].T)}
    return pa.table({**columns, **{name: x for name, x in arrays.items() if name != "logits"}})


def lists(arrays, kind):
    return pa.table({**arrays, "logits": pa.array(arrays["logits"].tolist(), kind)})


WRITERS = {
    "a.npz": lambda path, x: np.savez(path, **x),
    "foreign.npz": lambda path, x: np.savez(path, **{k: v.astype(v.dtype.newbyteorder(">")) for k, v in x.items()}),
    "fortran.npz": lambda path, x: np.savez(path, **{k: np.asfortranarray(v) for k, v in x.items()}),
    "labels.npz": lambda path, x: np.savez(path, **{{"target": "Labels"}.get(k, k): v for k, v in x.items()}),
    "a.safetensors": lambda path, x: safetensors.torch.save_file(tensors(x), path),
    "a.pt": lambda path, x: torch.save(tensors(x), path),
    "a.parquet": lambda path, x: parquet.write_table(table(x), path, row_group_size=2),
    "pandas.parquet": lambda path, x: table(x).to_pandas().rename(index=lambda i: i + 5).to_parquet(path),
    "lists.parquet": lambda path, x: parquet.write_table(lists(x, pa.list_(pa.float64())), path),
    "fixed.parquet": lambda path, x: parquet.write_table(lists(x, pa.list_(pa.float64(), CLASSES)), path),
    "a.csv": lambda path, x: csv.write_csv(table(x), path),
    "shuffled.csv": lambda path, x: csv.write_csv(table(x).select(table(x).column_names[::-1]), path),
    "pandas.csv": lambda path, x: table(x).to_pandas().to_csv(path, encoding="utf-8-sig"),
    "semicolons.csv": lambda path, x: table(x).to_pandas().to_csv(path, sep=";"),
    "a.tsv": lambda path, x: table(x).to_pandas().to_csv(path, sep="\t"),
    "a.csv.gz": lambda path, x: table(x).to_pandas().to_csv(path),
}


@pytest.mark.parametrize("file", WRITERS)
def test_every_format_gives_the_same_rows(tmp_path, file):
    """All rows, blocks of rows, and random rows in their order, which the seed decides."""
    WRITERS[file](tmp_path / file, GOOD)
    data = read_logits(tmp_path / file)
    assert (data.name, data.total, data.row_numbers, list(data.columns)) == (file.split(".")[0], None, None, ["knn"])
    assert torch.equal(data.logits, torch.from_numpy(LOGITS))
    assert data.target.tolist() == GOOD["target"].tolist()
    assert data.columns["knn"].tolist() == GOOD["knn"].tolist()
    reader = LogitReader(tmp_path / file, "test")
    assert (reader.rows, reader.num_classes, reader.name) == (ROWS, CLASSES, "test")
    blocks = list(reader.blocks(3))
    assert max(len(block.logits) for block in blocks) <= 3
    assert torch.equal(torch.cat([block.logits for block in blocks]), data.logits)
    assert torch.cat([block.row_numbers for block in blocks]).tolist() == list(range(ROWS))
    for seed in range(3):
        some, same = (read_logits(tmp_path / file, max_rows=3, seed=seed) for _ in range(2))
        rows = some.row_numbers.tolist()
        assert (some.total, rows, same.row_numbers.tolist()) == (ROWS, sorted({*rows}), rows)
        assert torch.equal(some.logits, data.logits[rows])
        assert torch.equal(some.target, data.target[rows])
        assert torch.equal(some.columns["knn"], data.columns["knn"][rows])


def test_random_rows_are_uniform(tmp_path):
    np.save(tmp_path / "a.npy", np.stack([np.arange(20.0), -np.arange(20.0)], 1))
    counts = np.zeros(20)
    for seed in range(500):
        counts[read_logits(tmp_path / "a.npy", max_rows=5, seed=seed).logits[:, 0].long().numpy()] += 1
    assert ((counts - 125) ** 2 / 125).sum() * 20 / 15 < 50  # chi squared with 19 degrees of freedom: one in 10,000


@pytest.mark.parametrize(
    "source", ["parts", "parts/part-*.parquet", "parts/part-[12].parquet", "uri", "uri/part-0.parquet"]
)
def test_folders_patterns_and_uris(tmp_path, monkeypatch, source):
    monkeypatch.chdir(tmp_path)
    logits, target = labelled(400)
    folder = write_parts(tmp_path / "parts", logit_table(logits, target))
    (folder / "_temporary").mkdir()
    (folder / ".hidden.parquet").write_text("half")
    (folder / "_temporary" / "part.parquet").write_text("half")
    data = read_logits(source.replace("uri", folder.as_uri()))
    expected = slice(44, None) if "[12]" in source else slice(44) if "-0" in source else slice(None)
    assert torch.equal(data.logits, logits[expected])
    assert torch.equal(data.target, target[expected])


DIFFERENT = {
    "fewer columns": (lambda x, y: logit_table(x), "'target' has one number a row, got none"),
    "more classes": (lambda x, y: logit_table(torch.hstack([x, x[:, :1]]), y), "'logit_5' has none, got one num"),
    "other kinds": (
        lambda x, y: logit_table(x).append_column("target", [[f"{i}" for i in y]]),
        "'target' .*, got text",
    ),
}


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize(("make", "message"), DIFFERENT.values(), ids=DIFFERENT.keys())
def test_files_of_a_folder_that_differ(tmp_path, make, message, first):
    """The further classes of a later file were dropped, so that half of the predictions were wrong in silence."""
    folder = write_parts(tmp_path / "parts", logit_table(*labelled(100)))
    parquet.write_table(make(*labelled(9)), folder / ("a.parquet" if first else "z.parquet"))
    message = "" if first else message
    with pytest.raises(ValueError, match=rf"\.parquet: expected the columns of .*\.parquet, where {message}"):
        read_logits(folder)
    (folder / "a.parquet").write_bytes(b"noise")
    with pytest.raises(ValueError, match=r"a\.parquet: expected a whole \.parquet file, got one that seems damaged"):
        read_logits(folder)


def random_edit(table, draw):
    """The table with a column less, more, renamed, or of another kind."""
    place = draw.randrange(table.num_columns)
    name = table.column_names[place]
    text = pa.array([f"{x}" for x in table[name].to_pylist()])
    lists = pa.array([[x] for x in table[name].to_pylist()])
    return draw.choice(
        [
            lambda: table.remove_column(place),
            lambda: table.append_column(draw.choice(["logit_5", "knn", "label", "note", " "]), table[name]),
            lambda: table.rename_columns([f"{x}x" if x == name else x for x in table.column_names]),
            lambda: table.set_column(place, name, text),
            lambda: table.set_column(place, name, lists),
            lambda: table.append_column(name, table[name]),
        ]
    )()


@pytest.mark.slow
@pytest.mark.parametrize("lists", [False, True])
def test_folders_with_one_odd_file(tmp_path, lists):
    """Nothing is accepted, and nothing but an error of one line comes: of odd columns, and of files that were cut."""
    draw, logits = random.Random(0), labelled(60)
    table = logit_table(*logits, lists=lists)
    for number in range(150):
        folder = write_parts(tmp_path / f"{number}", table)
        path = draw.choice(sorted(folder.iterdir()))
        if number % 3 == 0:
            path.write_bytes(path.read_bytes()[: draw.randrange(path.stat().st_size)])
        else:
            parquet.write_table(random_edit(parquet.read_table(path), draw), path)
        with pytest.raises(ValueError, match=f"{folder}.*: expected") as found:
            read_logits(folder)
        assert "\n" not in str(found.value), number


@pytest.mark.parametrize("sizes", [(3, 4), (4, 3)])
def test_lists_of_another_length_in_a_later_file(tmp_path, sizes):
    for number, size in enumerate(sizes):
        parquet.write_table(logit_table(labelled(9, classes=size)[0], lists=True), tmp_path / f"{number}.parquet")
    with pytest.raises(ValueError, match=f"expected {sizes[0]} logits, as in the first row, got {sizes[1]} in row 9"):
        read_logits(tmp_path)


def test_columns_of_a_predictor(tmp_path):
    logits, target = labelled(300)
    table = column_table(logits, target).append_column("knn", [logits.amax(1).numpy()])
    write_parts(tmp_path / "parts", table.append_column("review", [[False] * 300]))
    data, some = read_logits(tmp_path / "parts"), read_logits(tmp_path / "parts", max_rows=50)
    assert (len(data), data.num_classes, data.total, list(data.columns)) == (300, 5, None, ["knn"])
    assert (len(some), some.total) == (50, 300)
    assert some.notes["path"] == [f"{i}.png" for i in some.row_numbers.tolist()]
    assert torch.equal(data.target, target)
    assert torch.equal(data.stats.coins.prediction, logits.argmax(1))
    with pytest.raises(ValueError, match="parts: expected logits, got the columns of a predictor"):
        next(LogitReader(tmp_path / "parts").blocks())


def test_the_number_of_classes_of_columns(tmp_path):
    """In the metadata of the files, or given; no file may differ."""
    one, other = (column_table(labelled(50, classes=classes)[0]) for classes in (4, 5))
    parquet.write_table(one.replace_schema_metadata(None), tmp_path / "a.parquet")
    with pytest.raises(ValueError, match=r"expected the number of classes in the metadata of the file, got none; give"):
        read_logits(tmp_path)
    assert read_logits(tmp_path, classes=4).num_classes == 4
    parquet.write_table(one, tmp_path / "a.parquet")
    assert read_logits(tmp_path).num_classes == 4
    with pytest.raises(ValueError, match="expected logits of 3 classes, got 4"):
        read_logits(tmp_path, classes=["a", "b", "c"])
    parquet.write_table(other, tmp_path / "b.parquet")
    with pytest.raises(ValueError, match=r"b\.parquet: expected rows of 4 classes, as in other files, got 5"):
        read_logits(tmp_path)


@pytest.mark.slow
def test_memory_does_not_grow_with_the_rows(tmp_path):
    """Files of 80 MB, Parquet in one row group, of which a few rows are read, and blocks."""
    logits = np.random.default_rng(0).normal(size=(200_000, 50))
    parquet.write_table(
        table({"logits": logits}), tmp_path / "a.parquet", row_group_size=len(logits), compression="none"
    )
    np.save(tmp_path / "a.npy", logits)
    code = """
import resource, sys
from torch_boc.data import LogitReader
for path in sys.argv[1:]:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert len(LogitReader(path).read(max_rows=1000)) == 1000
    if path.endswith("parquet"):
        assert sum(len(block.logits) for block in LogitReader(path)) >= 5000
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
    warm = tmp_path / "warm.parquet"
    parquet.write_table(table({"logits": logits[:5000]}), warm)
    done = subprocess.run(
        [sys.executable, "-c", code, warm, *tmp_path.glob("a.*")], capture_output=True, text=True, check=True
    )
    assert max(map(int, done.stdout.split()[1:])) < 60_000  # KB


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_the_precision_stays(tmp_path, dtype):
    logits = torch.from_numpy(LOGITS).to(dtype)
    np.save(tmp_path / "a.npy", logits.numpy())
    torch.save(logits.requires_grad_(), tmp_path / "a.pt")
    parquet.write_table(table({"logits": logits.detach().numpy()}), tmp_path / "a.parquet")
    for path in tmp_path.iterdir():
        found = read_logits(path).logits
        assert torch.equal(found, logits)
        assert (found.dtype, found.requires_grad) == (dtype, False)


def test_pairs_small_floats_and_whole_numbers(tmp_path):
    logits = torch.tensor([[1.0, 2.0], [3.0, 0.5]])
    torch.save((logits, torch.tensor([0, 1])), tmp_path / "pair.pt")
    np.savez(tmp_path / "whole.npz", logits=logits.numpy().astype("longdouble"), target=np.array([0.0, 1.0]))
    for path in tmp_path.iterdir():
        assert torch.equal(read_logits(path).logits.float(), logits)
        assert read_logits(path).target.tolist() == [0, 1]
    torch.save(logits.to(torch.float8_e5m2), tmp_path / "byte.pt")
    assert torch.equal(read_logits(tmp_path / "byte.pt").logits, logits)


def test_texts_are_kept_and_what_is_neither_is_left_out(tmp_path):
    more = {"index": np.arange(ROWS), "prediction": GOOD["target"], "features": LOGITS, "ok": np.ones(ROWS, bool)}
    names = np.array([f"{i}.png" for i in range(ROWS)])
    np.savez(tmp_path / "a.npz", **GOOD, **more, filename=names)
    with pytest.warns(UserWarning, match=r"a\.npz: left out features, ok: neither one number nor one text a row"):
        data = read_logits(tmp_path / "a.npz")
    assert (list(data.columns), data.notes) == (["knn"], {"filename": names.tolist()})
    (tmp_path / "a.csv").write_text('index, logit_0,logit_1,energy,note\n0,1,2, 3.5,"a\nb"\n1,2,1,4,c\n')
    data = read_logits(tmp_path / "a.csv")
    assert {k: v.tolist() for k, v in data.columns.items()} == {"energy": [3.5, 4.0]}
    assert data.notes == {"note": ["a\nb", "c"]}


def test_rows_that_do_not_count_are_left_out_and_counted(tmp_path):
    """NaN, +inf, only -inf, and the target -100, which means that a sample has no label."""
    bad = LOGITS.copy()
    bad[1, 0], bad[4, 2], bad[6] = np.nan, np.inf, -np.inf
    names = np.array([f"{i}.png" for i in range(ROWS)])
    target = np.where(np.arange(ROWS) == 5, -100, GOOD["target"])
    np.savez(tmp_path / "a.npz", logits=bad, target=target, filename=names, knn=GOOD["knn"])
    with pytest.warns(UserWarning, match=r"a\.npz: left out 4 of 7 rows: their logits are NaN, .* target is -100"):
        data = read_logits(tmp_path / "a.npz")
    assert data.row_numbers.tolist() == [0, 2, 3]
    assert torch.equal(data.logits, torch.from_numpy(LOGITS[[0, 2, 3]]))
    assert data.notes == {"filename": ["0.png", "2.png", "3.png"]}
    assert len(next(LogitReader(tmp_path / "a.npz").blocks()).logits) == ROWS


@pytest.mark.parametrize(
    "target", [np.full(ROWS, 17), np.full(ROWS, -100), np.full(ROWS, np.nan), np.array(["x"] * ROWS)]
)
def test_targets_that_are_not_used_are_not_checked(tmp_path, target):
    np.savez(tmp_path / "a.npz", logits=LOGITS, target=target)
    data = read_logits(tmp_path / "a.npz", targets=False)
    assert (len(data), data.target) == (ROWS, None)
    assert list(data.notes) == ["target"]
    if target.dtype.kind != "U":
        assert read_logits((LOGITS, target), "a", targets=False).target is None


def test_whole_numbers_that_turn_into_fractions_late_in_a_csv_file(tmp_path):
    """Arrow would guess integers from the first megabyte."""
    lines = ["logit_0,logit_1,score,target"] + ["1,-3,2,1"] * 200_000 + ["0.5,0,0.25,0"]
    (tmp_path / "long.csv").write_text("\n".join(lines))
    data = read_logits(tmp_path / "long.csv")
    assert data.logits[-1].tolist() == [0.5, 0.0]
    assert data.columns["score"][-1].item() == 0.25


NAMES = ["cat", "dog", "sea lion"]


@pytest.mark.parametrize(("kind", "write"), [("csv", csv.write_csv), ("parquet", parquet.write_table)])
def test_columns_and_targets_under_the_names_of_the_classes(tmp_path, kind, write):
    columns = {name: LOGITS[3:, i] for i, name in enumerate(NAMES)}
    write(pa.table({**columns, "y": ["cat", "dog", "sea lion", "cat"], "knn": np.ones(4)}), tmp_path / f"a.{kind}")
    data = read_logits(tmp_path / f"a.{kind}", classes=NAMES)
    assert data.logits.tolist() == LOGITS[3:].tolist()
    assert (data.target.tolist(), list(data.columns)) == ([0, 1, 2, 0], ["knn"])
    with pytest.raises(ValueError, match="expected one number a row in 'bird', got no such column"):
        read_logits(tmp_path / f"a.{kind}", classes=["cat", "dog", "bird"])


@pytest.mark.parametrize("classes", [["a"], ["a", "b", "a"], ["a", "b"], "abc", [1, 2, 3]])
def test_names_that_do_not_fit(tmp_path, classes):
    np.savez(tmp_path / "a.npz", **GOOD)
    with pytest.raises(ValueError, match=r"two different names of classes|expected logits of 2 classes, got 3"):
        read_logits(tmp_path / "a.npz", classes=classes)


NUMBERED = {
    "from 1 on": (["1", "2", "3"], [1, 2, 3, 1, -100], [0, 1, 2, 0, -100]),
    "in another order": (["2", "0", "1"], [0, 1, 2, 2, 0], [1, 2, 0, 0, 1]),
    "with a point": (["1.0", "2.0", "3.0"], [1, 2, 3, 1, -100], [0, 1, 2, 0, -100]),
    "with zeros": (["01", "02", "03"], [1, 2, 3, 1, -100], [0, 1, 2, 0, -100]),
    "indices": (["0", "1", "2"], [2, 1, 0, -100, 2], [2, 1, 0, -100, 2]),
    "some are indices": (["0", "1", "many"], [2, 1, 0, -100, 2], [2, 1, 0, -100, 2]),
}


@pytest.mark.parametrize("dtype", ["int64", "float64", "U4"])
@pytest.mark.parametrize(("classes", "target", "expected"), NUMBERED.values(), ids=NUMBERED.keys())
def test_names_of_classes_that_are_numbers(tmp_path, classes, target, expected, dtype):
    """Targets 1 and 2 of the classes 1, 2 and 3 were taken for indices, so that no prediction was correct."""
    if dtype == "U4":
        target = [*map(str, target)] if "many" not in classes and -100 not in target else classes[1:2] * 5
        expected = [classes.index(x) for x in target]
    np.savez(tmp_path / "a.npz", logits=LOGITS[:5], target=np.array(target, dtype))
    (block,) = LogitReader(tmp_path / "a.npz", classes=classes)
    assert block.target.tolist() == expected


@pytest.mark.parametrize(
    "classes", [["1", "2", "3"], ["1", "2", "many"], ["01", "02", "03"], ["1.0", "2.0", "many"], ["0", "00", "1"]]
)
def test_numbers_that_may_be_names_or_indices_are_refused(tmp_path, classes):
    np.savez(tmp_path / "a.npz", logits=LOGITS[:2], target=np.array([1, 0]))
    with pytest.raises(
        ValueError, match=r"expected class indices or known names of classes as targets, got [01] in row"
    ):
        read_logits(tmp_path / "a.npz", classes=classes)


def test_the_targets_of_a_predictor_are_indices(tmp_path):
    logits, target = labelled(300)
    parquet.write_table(column_table(logits, target), tmp_path / "a.parquet")
    assert torch.equal(read_logits(tmp_path / "a.parquet", classes=["5", "4", "3", "2", "1"]).target, target)


def npz(**arrays):
    return lambda path: np.savez(path, **{**GOOD, **arrays})


def text(content):
    return lambda path: path.write_text(content)


def sheet(**columns):
    return lambda path: parquet.write_table(pa.table(columns), path)


def saved(value):
    return lambda path: torch.save(value, path)


def cut(file):
    """The beginning of a good file."""

    def write(path):
        WRITERS[file](path, {name: np.repeat(x, 50, 0) for name, x in GOOD.items()})
        path.write_bytes(path.read_bytes()[: int(path.stat().st_size * 0.6)])

    return write


def flipped(path):
    """One bit of the logits is another."""
    WRITERS["a.npz"](path, GOOD)
    content = bytearray(path.read_bytes())
    content[content.index(LOGITS.tobytes()[:8])] ^= 1
    path.write_bytes(content)


def without_ten_bytes(path):
    """The first array is then expected at a place before the beginning of the file."""
    WRITERS["a.npz"](path, GOOD)
    content = path.read_bytes()
    path.write_bytes(content[:100] + content[110:])


def raw(content):
    return lambda path: path.write_bytes(content)


BAD = {
    "single.npy": (lambda path: np.save(path, np.ones((5, 1))), "at least 2 classes"),
    "no_label.npz": (npz(target=np.where(GOOD["target"] == 1, np.nan, 0)), "got nan in 2 of 7 rows; leave"),
    "half.npz": (npz(target=np.full(ROWS, 0.5)), "expected targets that are class indices, got 0.5 in 7 of 7"),
    "short.npz": (npz(target=np.array([0, 1])), "expected 'target' with 7 rows, got 2"),
    "complex.npz": (npz(logits=np.ones((7, 3), complex)), "expected several numbers a row in 'logits', got complex128"),
    "nothing.npz": (lambda path: np.savez(path), "expected 'logits' (in tables: columns logit_0"),
    "two_targets.npz": (npz(y=GOOD["target"]), "got target and y"),
    "onehot.npz": (npz(target=np.eye(3)[GOOD["target"]]), "expected one class a row in 'target', got several"),
    "list.pt": (saved([torch.ones(3)] * 5), "expected several numbers a row in 'logits', got list"),
    "weights.pt": (saved({f"w{i}": torch.ones(2, 2) for i in range(99)}), "w7, ...; if columns"),
    "a.pkl": (raw(pickle.dumps(GOOD)), "pickles are refused"),
    **{f"renamed{x}": (raw(pickle.dumps(1)), "pickles are refused") for x in (".npy", ".pt", ".csv", ".parquet")},
    "meta.pt": (saved({"logits": torch.ones(2, 3, device="meta")}), "'logits', got torch.float32 of shape (2, 3)"),
    "model.pt": (saved({"logits": torch.ones(2, 3), "model": torch.nn.ReLU()}), "save tensors: torch.save("),
    **{f"cut_{x}": (cut(x), "damaged") for x in ("a.npz", "a.safetensors", "a.pt", "a.parquet")},
    "cut.npy": (raw(b"\x93NUMPY\x01\x00v\x00{'descr': '<f8', 'fortran_order': False"), "EOF: reading array header"),
    "noise.pt": (raw(b"noise"), "it was not written by torch.save"),
    "noise.csv": (raw(bytes(range(128, 256))), "'utf-8' codec can't decode byte"),
    "flipped.npz": (flipped, "damaged: Bad CRC-32"),
    "short_of_bytes.npz": (without_ten_bytes, "damaged"),
    **{f"empty{x}": (text(""), "got an empty file") for x in (".npz", ".pt", ".parquet", ".csv")},
    "header.csv": (text("logit_0,logit_1\n"), "at least one row"),
    "word.csv": (text("logit_0,logit_1\n1,2\n3,x\n"), "expected one number a row in 'logit_1', got text"),
    "word_target.csv": (text("logit_0,logit_1,y\n1,2,cat\n"), "names of classes as targets, got 'cat' in row 0"),
    "hole_score.csv": (text("logit_0,logit_1,knn\n1,2,3\n3,4,\n"), "column 'knn' as 2 finite numbers"),
    "ragged.csv": (text("logit_0,logit_1\n1,2\n3\n"), "Expected 2 columns, got 1"),
    "headless.csv": (text("1.5,2.5,0\n3.5,4,1\n"), "got 1.5, 2.5, 0; if columns have the names of the classes"),
    "gaps.csv": (text("logit_0,logit_2,logit_5\n1,2,3\n"), "in 'logit_1', got no such column"),
    "twice.csv": (text("logit_0,logit_1,logit_1\n1,2,3\n"), "got 'logit_1' twice"),
    "zeros.csv": (text("logit_0,logit_00,logit_1\n1,2,3\n"), "in 'logit_2', got no such column"),
    "cells.csv": (text("logits,target\n1,2\n"), "expected several numbers a row in 'logits', got one number a row"),
    "classes.csv": (text("cat,dog,label\n1,2,0\n"), "if columns have the names of the classes, name the classes in"),
    "hole_id.parquet": (
        sheet(logits=[[1.0, 2.0]] * 2, id=pa.array([None, 2**60 + 1], pa.int64())),
        "expected column 'id' as 2 finite numbers, got shape",
    ),
    "none.parquet": (sheet(logits=[[1.0, 2.0], None]), "got lists of length 2, none"),
    "no_lists.parquet": (
        sheet(logits=pa.array([[]] * 3, pa.list_(pa.float64()))),
        "expected logits of at least 2 classes, got 0",
    ),
    "rowless.parquet": (sheet(logits=pa.array([], pa.list_(pa.float64()))), "at least one row of logits, got none"),
    "no_ending": (text("1 2 3"), "got 'no ending'"),
    "pipe.csv": (os.mkfifo if os.name == "posix" else text(""), "got a"),
    "folder": (lambda path: path.mkdir(), "expected Parquet files, got none"),
    "absent-*.parquet": (lambda path: None, "expected Parquet files, got none"),
}


@pytest.mark.parametrize("file", BAD)
def test_a_bad_file_is_one_line_that_begins_with_its_path(tmp_path, file):
    write, reason = BAD[file]
    write(tmp_path / file)
    with pytest.raises((ValueError, FileNotFoundError)) as raised:
        read_logits(tmp_path / file)
    assert str(raised.value).startswith(f"{tmp_path / file}: ")
    assert reason in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_pickle_is_not_opened(tmp_path):
    """Each of these would create a file if it were."""

    class Trap:
        def __reduce__(self):
            return (open, (str(tmp_path / "sprung"), "w"))

    for file in ("a.pkl", "a.npy", "a.npz", "a.safetensors", "a.pt"):
        (tmp_path / file).write_bytes(pickle.dumps({"logits": Trap()}, protocol=2))
    np.savez(tmp_path / "objects.npz", logits=np.array([Trap()], dtype=object))
    np.savez_compressed(tmp_path / "packed.npz", logits=np.array([Trap()], dtype=object))
    np.save(tmp_path / "objects.npy", np.array([Trap()], dtype=object))
    torch.save({"logits": Trap()}, tmp_path / "objects.pt")
    for path in sorted(tmp_path.iterdir()):
        with pytest.raises(ValueError, match=r"pickle|damaged"):
            read_logits(path)
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize(
    ("file", "module"), [("a.npz", "numpy"), ("a.safetensors", "safetensors.torch"), ("a.csv", "pyarrow")]
)
def test_a_missing_library_is_named_with_the_file(tmp_path, monkeypatch, file, module):
    WRITERS[file](tmp_path / file, GOOD)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=rf"{file}: .*torch-boc\[eval\]"):
        read_logits(tmp_path / file)


def test_too_little_memory_and_refusals_of_the_system(tmp_path, monkeypatch):
    WRITERS["a.npz"](tmp_path / "a.npz", GOOD)
    for error, found in (
        (MemoryError(), r"a\.npz: too little memory to read it"),
        (PermissionError(13, "no", "a.npz"), "no"),
    ):
        monkeypatch.setattr(np, "load", mock.Mock(side_effect=error))
        with pytest.raises(type(error), match=found):
            read_logits(tmp_path / "a.npz")
