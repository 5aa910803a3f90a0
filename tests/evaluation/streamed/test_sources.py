"""Where tables are found, and what is said of those that cannot be used."""

import re

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from tests.evaluation.streamed.tables import column_table, logit_table, some_samples, write_parts
from torch_boc.evaluation import evaluate_tables
from torch_boc.evaluation.streamed.sources import Tables, needs_parts

LOGITS, TARGET = some_samples(120)
HOW = {"replicates": 5, "trial_counts": (20,), "progress": False}


@pytest.fixture
def folder(tmp_path):
    found = write_parts(tmp_path / "out", logit_table(LOGITS, TARGET))
    (found / "_SUCCESS").write_text("")
    (found / ".part-9.parquet").write_bytes(b"unfinished")
    (found / "notes.txt").write_text("")
    write_parts(found / "more", logit_table(LOGITS[:30], TARGET[:30]), parts=1)
    return found


def names(source):
    return [file.path.split("/out/")[-1] for file in Tables(source, "id").files]


def test_files_of_a_folder_a_pattern_a_uri_and_a_list(folder):
    parts = ["part-0.parquet", "part-1.parquet", "part-2.parquet"]
    assert names(folder) == ["more/part-0.parquet", *parts]
    assert names(str(folder / "part-*.parquet")) == parts
    assert names(str(folder / "part-[12].parquet")) == parts[1:]
    assert names(str(folder / "*" / "part-?.parquet")) == ["more/part-0.parquet"]
    assert names(folder / "part-1.parquet") == parts[1:2]
    assert names([folder / "part-2.parquet", folder / "more"]) == ["part-2.parquet", "more/part-0.parquet"]
    assert names(folder.as_uri()) == names(folder)
    assert names(f"{folder.as_uri()}/part-*.parquet") == parts
    assert Tables(folder, "id").rows == 150


def test_wildcards_in_folders_and_in_names_of_files(tmp_path):
    for name in ("run1", "run2", "v [2]"):
        write_parts(tmp_path / name, logit_table(LOGITS, TARGET), parts=1)
    (tmp_path / "run1" / "part-0.parquet").rename(tmp_path / "run1" / "a[1].parquet")
    assert Tables(str(tmp_path / "run?/*.parquet"), "id").rows == 240
    assert Tables(str(tmp_path / "run[12]" / "*.parquet"), "id").rows == 240
    assert Tables(tmp_path / "v [2]", "id").rows == 120
    assert Tables(tmp_path / "run1" / "a[1].parquet", "id").rows == 120


def test_each_file_counts_once(folder):
    with pytest.raises(ValueError, match=r"id: expected each file once, got .*part-1\.parquet twice"):
        Tables([folder, folder / "part-1.parquet"], "id")


def test_what_is_no_path_is_for_evaluate():
    with pytest.raises(TypeError, match=r"id: expected paths of Parquet files, .* got Tensor; use evaluate"):
        evaluate_tables((LOGITS, TARGET), **HOW)


def test_the_row_in_a_message_is_that_of_its_file(tmp_path):
    pq.write_table(logit_table(LOGITS, TARGET), tmp_path / "a.parquet")
    pq.write_table(broken("nan", logit_table(LOGITS, TARGET)), tmp_path / "b.parquet")
    with pytest.raises(ValueError, match=r"b\.parquet: .* first in row 77;"):
        evaluate_tables(tmp_path, **HOW)


def test_relative_paths(folder, monkeypatch):
    monkeypatch.chdir(folder)
    assert names("part-*.parquet") == ["part-0.parquet", "part-1.parquet", "part-2.parquet"]
    assert names(".") == names(folder)


def test_what_is_read_in_parts(folder, tmp_path):
    assert needs_parts(folder)
    assert needs_parts(str(folder / "*.parquet"))
    assert needs_parts("s3://bucket/folder")
    assert not needs_parts(folder / "part-1.parquet")
    assert not needs_parts("missing.npz")
    pq.write_table(column_table(LOGITS), tmp_path / "columns.parquet")
    assert needs_parts(tmp_path / "columns.parquet")
    (tmp_path / "damaged.parquet").write_bytes(b"PAR1")
    assert not needs_parts(tmp_path / "damaged.parquet")


@pytest.mark.parametrize(
    ("source", "message"),
    [("nowhere", "nowhere: no such file or folder"), ("empty", "id: expected Parquet files, got none in")],
)
def test_missing_files(tmp_path, source, message):
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match=message):
        evaluate_tables(tmp_path / source, **HOW)


def changed(table, **columns):
    for name, values in columns.items():
        place = table.column_names.index(name)
        table = table.set_column(place, name, pa.array(values))
    return table


def broken(kind, table):
    nan = LOGITS[:, 0].clone()
    nan[77] = torch.nan
    bad = TARGET.clone()
    bad[5] = 11
    columns = column_table(LOGITS)
    gaps = torch.from_numpy(columns["gap"].to_numpy().copy())
    gaps[33] = torch.nan
    return {
        "nan": changed(table, logit_0=nan.numpy()),
        "target": changed(table, target=bad.numpy()),
        "text": changed(table, target=["a"] * 120),
        "neither": pa.table({"a": [1.0], "b": [2.0]}),
        "nan column": changed(columns, gap=gaps.numpy()),
        "nan energy": changed(columns, energy=gaps.numpy()),
        "nan concentration": changed(columns, concentration=gaps.numpy()),
        "few columns": columns.select(["prediction", "confidence", "gap", "concentration"]),
        "no rows": table.slice(0, 0),
    }[kind]


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("nan", r"in 1 rows, first in row 77; leave these rows out"),
        ("target", r"expected targets in \[0, 5\), got 11 in row 5"),
        ("text", r"expected numbers of classes in 'target', got text such as 'a'"),
        ("neither", r"expected columns logit_0, .*; or the columns of a predictor: prediction, confidence, gap"),
        ("nan column", r"first in row 33"),
        ("nan energy", r"in 1 rows, first in row 33"),
        ("nan concentration", r"first in row 33"),
        ("few columns", r"give num_classes"),
        ("no rows", r"id: expected at least one row, got 1 files without rows"),
    ],
)
def test_bad_tables(tmp_path, kind, message):
    pq.write_table(broken(kind, logit_table(LOGITS, TARGET)), tmp_path / "bad.parquet")
    with pytest.raises(ValueError, match=message) as caught:
        evaluate_tables(tmp_path / "bad.parquet", **HOW)
    assert "\n" not in str(caught.value)
    if kind != "no rows":
        assert str(tmp_path / "bad.parquet") in str(caught.value)


def test_few_columns_are_enough_with_the_number_of_classes(tmp_path):
    table = column_table(LOGITS, columns=["prediction", "confidence", "gap", "concentration"])
    pq.write_table(table, tmp_path / "a.parquet")
    report = evaluate_tables(tmp_path / "a.parquet", num_classes=5, **HOW)
    assert report.results.settings["classes"] == 5


def test_a_damaged_file_is_named(folder):
    whole = (folder / "part-2.parquet").read_bytes()
    (folder / "part-2.parquet").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match=re.escape(str(folder / "part-2.parquet"))):
        evaluate_tables(folder, **HOW)


def test_files_of_another_kind_in_one_set(tmp_path):
    pq.write_table(logit_table(LOGITS, TARGET), tmp_path / "a.parquet")
    pq.write_table(logit_table(LOGITS), tmp_path / "b.parquet")
    with pytest.raises(ValueError, match="expected targets in all tables of a set or in none"):
        evaluate_tables(tmp_path, **HOW)


def test_sets_must_agree(tmp_path, folder):
    write_parts(tmp_path / "four", logit_table(LOGITS[:, :4]))
    with pytest.raises(ValueError, match="5 in 'id' and 4 in 'four'"):
        evaluate_tables(folder, {"four": tmp_path / "four"}, **HOW)
    with pytest.raises(ValueError, match="different name for each set, got 'id' twice"):
        evaluate_tables(folder, {"id": folder}, **HOW)
    with pytest.raises(ValueError, match="names of sets as strings"):
        evaluate_tables(folder, {3: folder}, **HOW)
    with pytest.raises(ValueError, match="val: expected logits with targets"):
        evaluate_tables(folder, calibration={"val": LOGITS}, **HOW)


def test_classes_by_name(tmp_path):
    table = logit_table(LOGITS).rename_columns(["a", "b", "c", "d", "e"])
    labels = pa.array([["a", "b", "c", "d", "e"][i] for i in TARGET.tolist()])
    pq.write_table(table.append_column("target", labels), tmp_path / "a.parquet")
    report = evaluate_tables(tmp_path / "a.parquet", classes=["a", "b", "c", "d", "e"], **HOW)
    assert report.results.settings["accuracy"] == pytest.approx(float((LOGITS.argmax(1) == TARGET).double().mean()))
