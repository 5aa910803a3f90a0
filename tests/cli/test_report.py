"""`torch-boc report`: both tables in 80 columns, JSON alone on stdout, and the files."""

import json
import os
import re
from io import StringIO

import numpy as np
import pytest
from rich.cells import cell_len
from rich.console import Console

from tests.arrays import read_arrays
from tests.cli.cases import numbers, samples
from torch_boc.cli import inputs, output, render
from torch_boc.evaluation import evaluate
from torch_boc.report import words
from torch_boc.report.report import Report

FILES = {"report.html", "report.md", "report.json", "explore.html"}
OPTIONS = ("--id", "test.npz", "--ood", "far=noise.npz", "--replicates", "10")


def test_tables_verdict_and_files(run, files):
    code, out, err = run("report", *OPTIONS, "--calibration", "val.npz", "--train", "fit.npz")
    assert (code, err) == (0, "")
    report = evaluate(
        files / "test.npz",
        {"far": files / "noise.npz"},
        calibration={"val": files / "val.npz"},
        train=files / "fit.npz",
        replicates=10,
    )
    assert out.startswith("Bag of coins: test.npz\n")
    rows = numbers(out)
    auroc = report.ood.set_index("score")["auroc"]
    assert rows["MSP"][0] == pytest.approx(auroc["msp"], abs=6e-5)
    assert rows["knn"][0] == pytest.approx(auroc["knn"], abs=6e-5)
    assert rows["Mahalanobis"][0] == pytest.approx(auroc["mahalanobis"], abs=6e-5)
    ece = report.calibration.set_index("method")["ece"]
    assert rows["temperature"][0] == pytest.approx(ece["temperature"], abs=6e-5)
    assert rows["vector"][0] == pytest.approx(ece["vector scaling"], abs=6e-5)
    flat = " ".join(out.split())
    assert all(" ".join(sentence.split()) in flat for sentence in report.verdict)
    written = {path.name for path in (files / "boc-report").iterdir()}
    assert written == FILES | {f"{name}.png" for name in report.figures()}
    assert all(f"  boc-report/{name}\n" in out for name in written)
    assert json.loads((files / "boc-report" / "report.json").read_text())["verdict"] == report.verdict


def test_json_is_alone_on_stdout_and_writes_nothing_else(run, files):
    code, out, err = run("report", *OPTIONS, "--calibration", "leak=fit.npz", "--seed", "1", "--trials", "20", "--json")
    assert code == 0
    content = json.loads(out, parse_constant=pytest.fail)
    assert content["settings"]["samples"] == {"id": 200, "far": 200, "leak": 200}
    assert [content["settings"][key] for key in ("replicates", "seed", "trials")] == [10, 1, 20]
    assert "leak" in content["tables"]["calibration"]["split"]
    assert re.fullmatch(r"(torch-boc: warning: [^\n]*\n)+", err)
    assert "looks like training data" in err
    assert not (files / "boc-report").exists()


def test_a_calibration_file_that_is_the_test_file_is_said_aloud(run, files):
    code, out, err = run("report", "--id", "test.npz", "--calibration", "val=test.npz", "--replicates", "10", "--json")
    assert code == 0
    assert "torch-boc: warning: 200 of the 200 rows of 'id' are also in the calibration split 'val'" in err
    content = json.loads(out)
    assert content["verdict"][0].startswith("200 of the 200 rows of “id” are also in the calibration split “val”")
    assert content["tables"]["overlaps"]["suspicious"] == [True]
    code, out, err = run("report", "--id", "test.npz", "--calibration", "val=test.npz", "--replicates", "10")
    assert "† has test samples" in out


def test_json_with_a_folder_and_quiet(run, files, monkeypatch):
    monkeypatch.setattr(Report, "figures", lambda self: {})
    code, out, _ = run("report", *OPTIONS, "--json", "--out", "a/b")
    assert code == 0
    assert json.loads((files / "a" / "b" / "report.json").read_text()) == json.loads(out)
    code, out, err = run("report", *OPTIONS, "--quiet", "--out", "c")
    assert (code, out, err) == (0, "", "")
    assert {path.name for path in (files / "c").iterdir()} == FILES


def test_without_targets_and_without_ood(run, files):
    np.save(files / "bare.npy", read_arrays(files / "test.npz")["logits"])
    code, out, err = run("report", "--id", "bare.npy", "--replicates", "5")
    assert (code, err) == (0, "")
    assert "Calibration:" not in out
    assert "Out of distribution" not in out


@pytest.mark.parametrize(
    ("value", "name", "path"),
    [
        ("svhn=a/b.npz", "svhn", "a/b.npz"),
        ("a/b.npz", "b", "a/b.npz"),
        ("runs/lr=0.1/b.npz", "b", "runs/lr=0.1/b.npz"),
        ("x=lr=0.1.npz", "x", "lr=0.1.npz"),
        ("there=1.npz", "there=1", "there=1.npz"),
        ("logits.npz", "logits.npz", "logits.npz"),
    ],
)
def test_names_of_sets(tmp_path, monkeypatch, value, name, path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there=1.npz").touch()
    found = inputs.split_name(value)
    assert (found[0], str(found[1])) == (name, path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--ood", "noise.npz", "--ood", "noise=val.npz"], "val.npz: expected another name for it, got 'noise' twice"),
        (["--ood", "id=noise.npz"], "got 'id' which is reserved; use --ood NAME=noise.npz"),
        (["--ood", "=noise.npz"], "expected NAME=PATH or PATH, got '=noise.npz'"),
        (["--ood", "far="], "expected NAME=PATH or PATH, got 'far='"),
        (["--ood", "far=noise.npz", "--calibration", "far=val.npz"], "got 'far' twice"),
        (["--out", "test.npz"], "expected a folder, got the file test.npz; choose another path"),
        (["--trials", "0"], "--trials"),
        (["--seed", "-1"], "Invalid value for '--seed'"),
    ],
)
def test_options_that_are_refused(run, files, options, message):
    code, out, err = run("report", "--id", "test.npz", *options)
    assert (code, out) == (2, "")
    assert err.startswith("torch-boc: error: ")
    assert message in err
    assert err.count("\n") == 1


def test_sets_called_logits(run, files):
    (files / "noise.npz").rename(files / "logits.npz")
    content = json.loads(run("report", "--id", "test.npz", "--ood", "logits.npz", "--replicates", "5", "--json").out)
    assert content["settings"]["samples"] == {"id": 200, "logits.npz": 200}


def test_an_interruption_leaves_no_half_of_a_file(run, files, monkeypatch):
    def interrupted(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(Report, "figures", lambda self: {})
    monkeypatch.setattr(Report, "to_json", interrupted)
    code, out, err = run("report", *OPTIONS)
    assert (code, out, err) == (130, "", "torch-boc: interrupted\n")
    assert {path.name for path in (files / "boc-report").iterdir()} == {"report.html", "report.md"}


def many_names():
    """A report with long names and wide numbers."""
    sets = {
        name: {**samples(60, strength, classes=3), "a score with a name of some length": np.arange(60.0)}
        for name, strength in (
            ("test", 4),
            ("out of distribution, a set with a long name", 0),
            ("trained on for long", 90),
        )
    }
    test, (far, leak) = sets.pop("test"), sets.items()
    test["logits"] = test["logits"] * 40  # NLL of two digits
    with pytest.warns(UserWarning, match="training data"):
        return evaluate(test, dict([far]), calibration=dict([leak]), replicates=5)


def test_the_tables_fit_80_columns_and_no_number_breaks():
    report = many_names()
    console = Console(width=80, record=True, force_terminal=True, color_system="truecolor", file=StringIO())
    render.show_report(report, console)
    styled = console.export_text(styles=True, clear=False)
    text = console.export_text()
    assert max(map(cell_len, text.splitlines())) <= 80
    for _, row in report.calibration.iterrows():
        assert words.number(row["ece"]) in text
        assert words.number(row["brier"]) in text
    for _, row in report.ood.iterrows():
        assert words.number(row["auroc"]) in text
        assert words.number(row["versus_msp"], sign=True) in text or row["score"] == "msp"
    tables = text[: text.index("What this says")]
    assert not re.search(r"\d…", tables)
    backwards = next(line for line in styled.splitlines() if "s_BoC" in line)
    assert "\x1b[2m" in backwards
    assert "† upside down" in text
    best = words.number(report.ood["auroc"].max())
    assert re.search(rf"\x1b\[1m{best}\x1b", styled)


def test_the_sizes_of_files():
    assert [output.size(n) for n in (0, 999, 1000, 999_949, 2.5e6, 7.1e9, 4e12)] == [
        *("0 B", "999 B", "1.0 kB", "999.9 kB", "2.5 MB", "7.1 GB", "4000.0 GB")
    ]


def test_a_narrow_terminal_cuts_names_and_no_numbers(run, files, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    name = "a validation split with a long name"
    code, out, _ = run("report", *OPTIONS, "--calibration", f"{name}=val.npz")
    assert code == 0
    tables = out[: out.index("What this says")]
    assert all(cell_len(line) <= 60 for line in tables.splitlines())
    assert len(numbers(tables)["energy"]) == 4
    assert not re.search(r"\d…", tables)


@pytest.mark.parametrize("args", [("report", "--id", "test.npz", "--out"), ("probe", "test.npz", "-o")])
def test_a_place_that_takes_no_files_is_known_before_the_work(run, files, monkeypatch, args):
    monkeypatch.setattr("torch_boc.data.files.read_logits", None)
    code, out, err = run(*args, "noise.npz/new/out.csv")
    assert (code, out) == (2, "")
    assert "noise.npz/new" in err
    assert "noise.npz, which is a file" in err
    allowed = os.access
    monkeypatch.setattr("os.access", lambda path, mode: mode != os.W_OK | os.X_OK and allowed(path, mode))
    assert "which does not let this user" in run(*args, "new/out.csv").err
