"""`torch-boc demo`: all models side by side, one in full, and entries that are new to the zoo."""

import json
import re
from functools import partial
from io import StringIO

import pytest
from rich.cells import cell_len
from rich.console import Console

from benchmarks.recipes.entries import save_entry
from tests.cli.cases import numbers
from tests.data.cases import labelled, unfamiliar
from tests.report.cases import Outline
from torch_boc import zoo
from torch_boc.cli import render
from torch_boc.cli.demo import compare
from torch_boc.evaluation import LogitSet, evaluate
from torch_boc.report.parts import Cell, Table
from torch_boc.report.report import Report
from torch_boc.zoo.entry import read_entry

FILES = {"report.html", "report.md", "report.json", "explore.html"}
SMALL = ("resnet20-cifar10", "roberta-agnews", "vit-cifar10")


@pytest.fixture
def few_replicates(monkeypatch):
    monkeypatch.setattr("torch_boc.evaluation.evaluate", partial(evaluate, replicates=5))


def write_entry(folder, name, classes, splits, columns):
    """A small entry; its training samples are better known to it than others."""

    def data(logits, target, called):
        return LogitSet(logits, target, {column: logits.amax(1) for column in columns}, called)

    calibration = [
        data(*labelled(200, classes, seed=5 + i, signal=5.0 if split.startswith("training") else 3.0), split)
        for i, split in enumerate(splits)
    ]
    test, ood = data(*labelled(300, classes), "test"), data(unfamiliar(300, classes), None, "strange")
    card = {"model": f"a small {name}", "data": "made up"}
    save_entry(folder, name, {"id": [test], "ood": [ood], "calibration": calibration}, card)


@pytest.fixture
def small_zoo(tmp_path_factory, monkeypatch, few_replicates):
    """Three small entries in the place of the real ones: only the first has no split but training samples."""
    folder = tmp_path_factory.mktemp("zoo")
    write_entry(folder, SMALL[0], 10, ["training samples"], ["odin", "mahalanobis"])
    write_entry(folder, SMALL[1], 4, ["validation", "training samples"], ["mahalanobis"])
    write_entry(folder, SMALL[2], 10, ["validation", "training samples"], ["odin", "mahalanobis"])
    monkeypatch.setattr(zoo, "names", lambda: SMALL)
    monkeypatch.setattr(zoo, "load", partial(read_entry, folder))


def rows_of(text):
    """Rows of the table side by side: the cells after a name, with its sign if it has one."""
    lines = (re.split(r"\s{2,}", line.strip()) for line in text[: text.index("looks like training data")].splitlines())
    return {tuple(row[:2]) if row[1:2] in (["†"], ["‡"]) else row[0]: row for row in lines}


@pytest.mark.usefixtures("small_zoo")
def test_all_models_side_by_side(run, tmp_path):
    code, out, err = run("demo")
    assert (code, err) == (0, "")
    assert out.startswith("Bag of coins: real logits of 3 models, side by side\n")
    assert max(map(cell_len, out.splitlines())) <= 80
    rows = rows_of(out)
    assert rows[SMALL[0]] == list(SMALL)
    assert rows["classes"][1:] == ["10", "4", "10"]
    assert rows["calibrated on"][1:] == ["held-out half", "validation", "validation"]
    assert rows["AUROC, ODIN"][2] == "–"
    for name in ("ECE, temperature", "forced by p̂, ID"):
        assert len(rows[name]) == 4
    assert len(rows["ECE, temperature", "†"]) == len(rows["AUROC, s_BoC", "‡"]) == 5
    report = tmp_path / "boc-report"
    assert {path.name for path in report.iterdir()} == {"index.html", *SMALL}
    for name in SMALL:
        assert {path.name for path in (report / name).iterdir()} > FILES
        assert f"boc-report/{name}/report.html and " in out
        assert f"\n{name}\na small {name}: made up\n- " in out
        assert "href='../index.html'" in (report / name / "report.html").read_text(encoding="utf-8")
    source = (report / "index.html").read_text(encoding="utf-8")
    assert "It is biased downwards" in source
    assert out.replace("\n", " ").count("biased") == 3
    assert [f"href='{name}/report.html'" in source for name in SMALL] == [True] * 3
    assert len(Outline(source).all("img")) == 6


@pytest.mark.usefixtures("small_zoo")
def test_one_entry_in_full(run, tmp_path, monkeypatch):
    monkeypatch.setattr(Report, "figures", lambda self: {})
    content = json.loads(run("demo", "vit-cifar10", "--json", "--out", "one").out)
    assert content["settings"]["samples"] == {"id": 300, "strange": 300, "validation": 200, "training samples": 200}
    assert {path.name for path in (tmp_path / "one").iterdir()} == FILES
    assert "index.html" not in (tmp_path / "one" / "report.html").read_text(encoding="utf-8")


@pytest.mark.usefixtures("small_zoo")
def test_for_machines(run, tmp_path):
    code, out, err = run("demo", "--json")
    assert (code, err) == (0, "")
    content = json.loads(out, parse_constant=pytest.fail)
    assert tuple(content) == SMALL
    assert list(tmp_path.iterdir()) == []
    alone = json.loads(run("demo", SMALL[1], "--json").out)
    assert content[SMALL[1]] == alone


@pytest.mark.filterwarnings("ignore::torch_boc.calibration.LeakWarning")
@pytest.mark.usefixtures("small_zoo")
def test_progress_says_which_model():
    said = []
    compare([zoo.load(name) for name in zoo.names()], said.append)
    starts = [f"{name} ({i} of 3): " for i, name in enumerate(SMALL, start=1)]
    for start in starts:
        assert f"{start}probing id" in said
    assert all(message.startswith(tuple(starts)) for message in said)


@pytest.mark.parametrize("name", ["resnet50", "vit", "../zoo/resnet20-cifar10"])
def test_a_name_that_is_not_there(run, tmp_path, name):
    code, out, err = run("demo", name)
    assert (code, out) == (2, "")
    assert err == f"torch-boc: error: expected an entry among {', '.join(zoo.names())}, got {name!r}\n"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("few_replicates")
def test_every_model_of_the_zoo_is_shown(run, monkeypatch):
    monkeypatch.setattr(Report, "figures", lambda self: {})
    out = run("demo", "--out", "all").out
    assert max(map(cell_len, out.splitlines())) <= 80
    assert all(f"\n{name}\n" in out for name in zoo.names())
    rows = rows_of(out)
    assert rows["minilm-clinc150"] == ["minilm-clinc150", "resnet20-cifar10"]
    assert rows["AUROC, MSP"][1:] == ["0.9709", "0.8910"]
    assert "roberta-agnews  vit-cifar10" in out


@pytest.mark.usefixtures("few_replicates")
def test_the_resnet_in_full(run, tmp_path):
    code, out, err = run("demo", "resnet20-cifar10")
    assert (code, err) == (0, "")
    assert out.startswith("Bag of coins: resnet20-cifar10 (CIFAR-10 test against SVHN test, 20")
    assert out.splitlines()[1] == zoo.load("resnet20-cifar10").card["model"]
    assert max(map(cell_len, out.splitlines())) <= 80
    rows = {line[:37].strip(): line[37:].split() for line in out.splitlines()}
    assert rows["temperature     held-out half"][:2] == ["0.0103", "0.2359"]
    assert rows["temperature     † training samples"][4] == "0.630"
    assert "† looks like training data" in out
    assert numbers(out)["MSP"][:2] == [0.891, 0.7089]
    assert numbers(out)["s_BoC"][0] == 0.1091
    assert {path.name for path in (tmp_path / "boc-report").iterdir()} >= {*FILES, "reliability.png", "roc.png"}


@pytest.mark.parametrize(
    ("names", "width", "parts"),
    [
        (SMALL, 80, [3]),
        (SMALL, 68, [3]),
        (SMALL, 67, [2, 1]),
        (SMALL, 40, [1, 1, 1]),
        (("minilm-clinc150", *SMALL), 80, [2, 2]),
    ],
)
def test_models_that_do_not_fit_go_below(names, width, parts):
    rows = [[Cell(f"AUROC, number {i}", mark="odd" if i else ""), *[Cell("0.1234")] * len(names)] for i in range(2)]
    found = render.cut_to_width(Table("", ["", *names], rows), width)
    assert [title for part in found for title in part.columns if title] == list(names)
    assert [len(part.columns) - 1 for part in found] == parts
    for part in found:
        console = Console(width=width, record=True, file=StringIO())
        console.print(render.terminal_table(part, width))
        text = console.export_text()
        assert max(map(cell_len, text.splitlines())) <= width
        assert text.count("0.1234") == 2 * (len(part.columns) - 1)
