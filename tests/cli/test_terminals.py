"""Output on terminals that know few characters, and of names that would command a terminal."""

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv, parquet

import torch_boc
from tests.cli.cases import numbers, samples
from torch_boc.cli import main
from torch_boc.cli.spelling import spell
from torch_boc.evaluation.report import Report

OPTIONS = ("report", "--id", "test.npz", "--ood", "far=noise.npz", "--calibration", "val.npz", "--replicates", "5")
FORBIDDEN = [chr(i) for i in (*range(32), *range(127, 160)) if chr(i) != "\n"]
EVIL = "\x1b[31mred\x9b2J\u202e"
SHOWN = r"\x1b[31mred\x9b2J\u202e"
NOT_UTF8 = b"\xff\xfe"


@pytest.fixture
def run_in(monkeypatch, tmp_path):
    """Runs a command line with stdout and stderr in an encoding; gives the exit code and what was printed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")

    def call(encoding, *args):
        streams = [io.TextIOWrapper(io.BytesIO(), encoding=encoding) for _ in range(2)]
        monkeypatch.setattr(sys, "stdout", streams[0])
        monkeypatch.setattr(sys, "stderr", streams[1])
        with pytest.raises(SystemExit) as stop:
            main([str(arg) for arg in args])
        for stream in streams:
            stream.flush()
        out, err = (stream.buffer.getvalue().decode(encoding) for stream in streams)
        return stop.value.code or 0, out, err

    return call


def process(folder, *args, **environment):
    """A command line as a process of its own, whose output is bytes."""
    environment = {**os.environ, "PYTHONPATH": str(Path(torch_boc.__file__).parents[1]), **environment}
    command = [sys.executable, "-m", "torch_boc.cli", *args]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, check=False)


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252", "cp437"])
def test_tables_in_few_characters(run_in, files, monkeypatch, encoding):
    monkeypatch.setattr(Report, "figures", lambda self: {})
    code, plain, err = run_in(encoding, *OPTIONS)
    assert (code, err) == (0, "")
    _, rich, _ = run_in("utf-8", *OPTIONS)
    assert numbers(plain).keys() >= {"MSP", "energy", "temperature"}
    assert numbers(plain)["MSP"] == numbers(rich)["MSP"]
    assert max(map(len, plain.splitlines())) <= 80
    assert "\\u" not in plain
    assert "\\x" not in plain
    if encoding == "ascii":
        assert "q_bar" in plain
        assert "-Delta" in plain


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_json_is_json_in_every_encoding(run_in, files, encoding):
    (files / "noise.npz").rename(files / "é\U0001f600.npz")
    code, out, _ = run_in(
        encoding, "report", "--id", "test.npz", "--ood", "é\U0001f600.npz", "--replicates", "5", "--json"
    )
    assert code == 0
    content = json.loads(out)
    assert list(content["settings"]["samples"]) == ["id", "é\U0001f600"]
    assert any("“" in sentence or "p̂" in sentence for sentence in content["verdict"])


def test_errors_and_warnings_in_few_characters(run_in, files):
    code, out, err = run_in("ascii", "probe", "fehlt–é.npz")
    assert (code, out, err) == (2, "", "torch-boc: error: fehlt-\\xe9.npz: no such file\n")


@pytest.mark.parametrize("text", ["q̄ − p̂ · “a” … ≥ ∞ † ‡ § × Δ ρ R² ’ –", "q̄ 日本 é"])
def test_spelling(text):
    for encoding in ("ascii", "latin-1", "utf-8"):
        assert spell(text, encoding).encode(encoding)
    assert spell(text, "utf-8") == text
    assert "q_bar" in spell(text, "ascii")
    assert spell("q̄ − p̂ · R²", "ascii") == "q_bar - p_hat | R^2"
    assert spell("R²", "latin-1") == "R²"


@pytest.mark.parametrize(
    "environment",
    [
        {"PYTHONIOENCODING": "ascii", "TERM": "dumb", "COLUMNS": "40"},
        pytest.param(
            {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "COLUMNS": "10"}, marks=pytest.mark.slow
        ),
    ],
)
def test_as_a_process(files, environment):
    done = process(files, *OPTIONS, "--out", "out", **environment)
    assert (done.returncode, done.stderr) == (0, b"")
    text = done.stdout.decode("ascii")
    assert "What" in text
    assert (files / "out" / "report.html").exists()


class TestNamesThatCommand:
    """Names of files, columns and sets with escape sequences."""

    @pytest.fixture
    def evil(self, files):
        for name in ("test", "noise"):
            data = samples(200, 4 if name == "test" else 0, seed=1)
            np.savez(files / f"{name}{EVIL}.npz", **data, **{EVIL: data["knn"]})
        return files

    def clean(self, text):
        return not any(char in text for char in (*FORBIDDEN, "\u202e"))

    def test_a_report(self, run, evil):
        code, out, err = run(
            *("report", "--id", f"test{EVIL}.npz", "--ood", f"noise{EVIL}.npz", "--replicates", "5", "--out", "out")
        )
        assert (code, err) == (0, "")
        assert SHOWN in out
        assert self.clean(out)
        for name in ("report.html", "report.md", "report.json"):
            text = (evil / "out" / name).read_text(encoding="utf-8")
            assert self.clean(text), name
            assert "[31mred" in text
        content = json.loads((evil / "out" / "report.json").read_text(encoding="utf-8"))
        assert list(content["settings"]["samples"]) == ["id", f"noise{SHOWN}"]
        assert SHOWN in content["tables"]["ood"]["score"]

    def test_json_on_stdout(self, run, evil):
        out = run("report", "--id", f"test{EVIL}.npz", "--ood", f"noise{EVIL}.npz", "--replicates", "5", "--json").out
        assert self.clean(out)
        assert json.loads(out)["settings"]["title"] == f"test{SHOWN}.npz"

    @pytest.mark.parametrize(
        ("name", "content"),
        [
            ("a.csv", f"logit_0,logit_1,y\n1,2,{EVIL}\n"),
            ("b.csv", f"{EVIL},{EVIL}\n1,2\n"),
            ("c.csv", f"logit_0,logit_1,{EVIL}\n1,2,word\n"),
            (f"{EVIL}.csv", "logit_0,logit_1\n1,x\n"),
        ],
    )
    def test_messages(self, run, files, name, content):
        (files / name).write_text(content, encoding="utf-8")
        code, out, err = run("probe", name)
        assert code == (0 if name == "c.csv" else 2)
        assert SHOWN in err
        assert self.clean(out + err)

    def test_what_was_written(self, run, files):
        code, out, err = run("probe", "test.npz", "-o", f"{EVIL}.csv")
        assert (code, err) == (0, "")
        assert f"{SHOWN}.csv" in out
        assert self.clean(out)
        assert (files / f"{EVIL}.csv").exists()


class TestFileNamesThatAreNotUtf8:
    """Linux allows any bytes but 0 and the slash."""

    @pytest.mark.parametrize("kind", [".npz", ".npy", ".pt", ".safetensors", ".parquet", ".csv"])
    def test_input_and_output(self, run, files, kind):
        import safetensors.torch
        import torch

        logits = samples(50, 4)["logits"]
        table = pa.table({f"logit_{i}": logits[:, i] for i in range(4)})
        {
            ".npz": lambda path: np.savez(path, logits=logits),
            ".npy": lambda path: np.save(path, logits),
            ".pt": lambda path: torch.save(torch.from_numpy(logits), path),
            ".safetensors": lambda path: safetensors.torch.save_file({"logits": torch.from_numpy(logits)}, path),
            ".parquet": lambda path: parquet.write_table(table, path),
            ".csv": lambda path: csv.write_csv(table, path),
        }[kind](files / f"plain{kind}")
        name = os.fsdecode(NOT_UTF8)
        try:
            (files / f"plain{kind}").rename(files / f"{name}{kind}")
        except OSError:
            pytest.skip("this file system wants UTF-8")
        for output in (".csv", ".parquet"):
            code, out, err = run("probe", f"{name}{kind}", "-o", f"{name}-out{output}")
            assert (code, err) == (0, "")
            assert r"\xff\xfe: 50 samples, 4 classes" in out
            assert rf"\xff\xfe-out{output}" in out
            assert (files / f"{name}-out{output}").stat().st_size > 100

    def test_a_report(self, run, files, monkeypatch):
        monkeypatch.setattr(Report, "figures", lambda self: {})
        name = os.fsdecode(NOT_UTF8)
        try:
            (files / "test.npz").rename(files / f"{name}.npz")
        except OSError:
            pytest.skip("this file system wants UTF-8")
        code, out, err = run(
            *("report", "--id", f"{name}.npz", "--ood", f"{name}=noise.npz", "--out", name, "--replicates", "5")
        )
        assert (code, err) == (0, "")
        assert r"Bag of coins: \xff\xfe.npz" in out
        content = json.loads((files / name / "report.json").read_text(encoding="utf-8"))
        assert list(content["settings"]["samples"]) == ["id", r"\xff\xfe"]
