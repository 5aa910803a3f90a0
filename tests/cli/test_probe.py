"""`torch-boc probe`: the columns are those of the library, in a file that is whole or not there."""

import json

import numpy as np
import pytest
import torch
from pyarrow import csv, parquet

from tests.arrays import read_arrays
from tests.passes import count_passes
from torch_boc.cli.inputs import Files
from torch_boc.data import files as reading
from torch_boc.functional import boc_summary, sample_columns
from torch_boc.functional.table_columns import columns_of

READ = {".parquet": parquet.read_table, ".csv": csv.read_csv}


@pytest.mark.parametrize("kind", READ)
def test_the_columns_are_those_of_the_library(run, files, monkeypatch, kind):
    monkeypatch.setattr(reading, "block_elements", lambda device: 4 * 64)  # 200 rows in four pieces
    assert run("probe", "test.npz", "-o", f"new/out{kind}").code == 0
    table = READ[kind](files / "new" / f"out{kind}")
    data = read_arrays(files / "test.npz")
    expected = sample_columns(torch.from_numpy(data["logits"]))
    assert table.column_names == ["index", "target", *expected]
    assert table["index"].to_pylist() == list(range(200))
    assert table["target"].to_pylist() == data["target"].tolist()
    for name, values in expected.items():
        assert table[name].to_pylist() == pytest.approx(
            values.tolist(), rel=1e-12
        )  # from statistics, not by one kernel
    assert [path.name for path in (files / "new").iterdir()] == [f"out{kind}"]
    out, err = run("probe", "test.npz", "-o", "-")[1:]
    assert (out.count("\n"), out.split(",")[:2]) == (201, ['"index"', '"target"'])
    assert err.startswith("test: 200 samples, 4 classes\n")


@pytest.mark.parametrize("output", [[], ["-o", "out.parquet"]])
def test_a_block_is_passed_over_once(run, files, monkeypatch, output):
    passes = count_passes(monkeypatch)
    assert run("probe", "test.npz", *output).code == 0
    assert passes == [bool(output)]


def test_the_summary_is_that_of_the_library(run, files):
    data = read_arrays(files / "test.npz")
    expected = boc_summary(torch.from_numpy(data["logits"]), torch.from_numpy(data["target"]))
    code, out, err = run("probe", "test.npz", "--json")
    assert (code, err) == (0, "")
    result = json.loads(out, parse_constant=pytest.fail)
    assert (result.pop("name"), result.pop("classes"), result.pop("output")) == ("test", 4, None)
    assert result == pytest.approx({name: value.item() for name, value in expected.items()}, rel=1e-9)
    text = run("probe", "test.npz").out
    assert "200 samples, 4 classes" in text
    for key in ("accuracy", "confidence", "dominance", "gap", "forced_gap", "free_gap", "rejection_rate"):
        assert f" {expected[key].item():.4f}\n" in text


def test_without_targets_there_is_no_accuracy(run, files):
    np.save(files / "bare.npy", read_arrays(files / "test.npz")["logits"])
    result = json.loads(run("probe", "bare.npy", "-o", "a.parquet", "--json").out, parse_constant=pytest.fail)
    assert (result["accuracy"], result["output"]) == (None, "a.parquet")
    assert parquet.read_table(files / "a.parquet").column_names[:2] == ["index", "prediction"]
    out = run("probe", "bare.npy").out
    assert "accuracy" not in out
    np.save(files / "two.npy", read_arrays(files / "test.npz")["logits"][:, :2])
    for name, invalid in (("bare.npy", True), ("two.npy", False)):  # with two classes it holds
        assert ("The paper's test does not hold its level" in run("probe", name).out) is invalid


def test_probabilities_and_names_of_classes(run, files):
    logits = torch.from_numpy(read_arrays(files / "test.npz")["logits"])
    expected = json.loads(run("probe", "test.npz", "--json").out)
    np.savez(files / "shares.npz", logits=logits.double().softmax(1).numpy())
    found = json.loads(run("probe", "shares.npz", "--probabilities", "-o", "out.csv", "--json").out)
    assert [found[key] for key in ("confidence", "gap")] == pytest.approx([expected[x] for x in ("confidence", "gap")])
    assert "energy" not in (files / "out.csv").read_text().splitlines()[0]
    (files / "names.txt").write_text("cat\nship\n\n")
    (files / "a.csv").write_text("ship,cat,target\n1.5,0,1\n0,2.5,0\n3,1,0\n")
    (files / "config.json").write_text('{"id2label": {"1": "ship", "0": "cat"}, "model_type": "vit"}')
    for listed in ("cat, ship", "names.txt", "config.json"):
        found = json.loads(run("probe", "a.csv", "--classes", listed, "--json").out)
        assert (found["classes"], found["accuracy"]) == (2, pytest.approx(2 / 3))


@pytest.mark.parametrize("kind", READ)
def test_an_interruption_leaves_what_was_there(run, files, monkeypatch, kind):
    """It comes when the first piece is written and the second is not."""
    monkeypatch.setattr(reading, "block_elements", lambda device: 4 * 64)
    monkeypatch.setattr("torch_boc.data.parquet.GROUP_ROWS", 8)
    (files / f"out{kind}").write_text("from before")
    before = sorted(path.name for path in files.iterdir())
    calls = []

    def interrupted(stats):
        calls.append(len(stats.coins.odds))
        if len(calls) == 2:
            assert sorted(path.name for path in files.iterdir()) != before  # something is half-written by now
            raise KeyboardInterrupt
        return columns_of(stats)

    monkeypatch.setattr("torch_boc.functional.table_columns.columns_of", interrupted)
    code, out, err = run("probe", "test.npz", "-o", f"out{kind}")
    assert (code, out, err) == (130, "", "torch-boc: interrupted\n")
    assert calls == [64, 64]
    assert (files / f"out{kind}").read_text() == "from before"
    assert sorted(path.name for path in files.iterdir()) == before


def test_an_error_in_the_last_row_leaves_what_was_there(run, files, monkeypatch):
    monkeypatch.setattr(reading, "block_elements", lambda device: 4 * 64)
    arrays = read_arrays(files / "test.npz")
    arrays["target"][-1] = 17
    np.savez(files / "a.npz", **arrays)
    (files / "out.parquet").write_text("from before")
    code, out, err = run("probe", "a.npz", "-o", "out.parquet")
    assert (code, out) == (2, "")
    assert err.startswith("torch-boc: error: a.npz: expected targets in [0, 4), got 1 outside, such as 17")
    assert (files / "out.parquet").read_text() == "from before"
    assert not [path for path in files.iterdir() if path.name.endswith(".tmp")]


def test_rows_that_do_not_count_keep_their_place(run, files):
    """NaN has no numbers; a target of -100 does not count, as in the callback."""
    arrays = read_arrays(files / "test.npz")
    rest = {name: x[5:] for name, x in arrays.items()}
    arrays["logits"][:2], arrays["target"][2:5] = np.nan, -100
    np.savez(files / "a.npz", **arrays, filename=np.array([f"{i}.png" for i in range(200)]))
    np.savez(files / "rest.npz", **rest)
    expected = json.loads(run("probe", "rest.npz", "--json").out)
    code, out, err = run("probe", "a.npz", "--json", "-o", "out.parquet")
    assert (code, err) == (0, "torch-boc: warning: 2 rows of logits with NaN or +inf were left out of BoCMetric\n")
    found = json.loads(out)
    assert (found["samples"], found["invalid"]) == (195, 2)
    assert [found[key] for key in ("accuracy", "nll", "gap")] == pytest.approx(
        [expected[k] for k in ("accuracy", "nll", "gap")]
    )
    table = parquet.read_table(files / "out.parquet").to_pydict()
    assert (table["index"][4], table["filename"][4], table["target"][4]) == (4, "4.png", -100)
    assert [str(x) == "nan" for x in table["gap"][:4]] == [True, True, False, False]


def test_columns_in_a_text_file_need_the_number_of_classes(run, files):
    """Parquet files have it in their metadata."""
    for name in ("rows.csv", "rows.parquet"):
        assert run("probe", "test.npz", "-o", name).code == 0
    classes = Files(False, None, print).read("rows.parquet").num_classes
    assert Files(False, f"{classes}", print).read("rows.csv").num_classes == classes
    with pytest.raises(ValueError, match=r"rows\.csv: expected the number of classes .*--classes"):
        Files(False, None, print).read("rows.csv")
