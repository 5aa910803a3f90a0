"""`torch-boc report`, `compare` and `demo`: tables in 80 columns, only JSON on stdout, and the files."""

import json
import re
from functools import partial

import numpy as np
import pytest
from rich.cells import cell_len

from benchmarks.recipes.entries import save_entry
from tests.arrays import read_arrays
from tests.cli.cases import samples
from tests.data.cases import labelled, ood_logits
from tests.data.tables import logit_table, write_parts
from torch_boc import zoo
from torch_boc.cli import inputs
from torch_boc.evaluation import LogitSet, evaluate
from torch_boc.report.report import Report
from torch_boc.zoo.entry import read_entry

FILES = {"report.html", "report.md", "report.json"}
OPTIONS = ("test.npz", "--ood", "far=noise.npz")


def test_verdict_and_files(run, files):
    code, out, err = run("report", *OPTIONS, "--calibration", "val.npz", "--train", "fit.npz")
    assert (code, err) == (0, "")
    paths = {name: files / f"{name}.npz" for name in ("test", "noise", "val", "fit")}
    report = evaluate(
        paths["test"], {"far": paths["noise"]}, calibration={"val": paths["val"]}, train=paths["fit"], replicates=10
    )
    assert out.startswith("test.npz: ")
    lines = out.splitlines()
    assert all(cell_len(line) <= 80 for line in lines if not line.startswith("    torch"))  # commands are in one line
    assert all(f"    {command}" in lines for _, command in report.story.actions)
    flat = " ".join(out.split())
    story = report.story
    for line in (*story.warnings, *(text for text, _ in story.actions), *(x.note for x in story.numbers)):
        assert " ".join(line.split()) in flat
    written = {path.name for path in (files / "boc-report").iterdir()}
    assert written == FILES | {f"{name}.svg" for name in report.figures()}
    assert "  boc-report/report.html\n" in out
    assert json.loads((files / "boc-report" / "report.json").read_text())["verdict"] == report.verdict


def test_json_is_alone_on_stdout(run, files):
    options = ("report", *OPTIONS, "--calibration", "leak=fit.npz")
    assert run(*options).err == ""  # the report has the warnings
    code, out, err = run(*options, "--json", "--out", "a/b")
    assert code == 0
    content = json.loads(out, parse_constant=pytest.fail)
    assert content["settings"]["samples"] == {"id": 200, "far": 200, "leak": 200}
    assert re.fullmatch(r"(torch-boc: warning: [^\n]*\n)+", err)
    assert "is easier than the test set" in err
    assert json.loads((files / "a" / "b" / "report.json").read_text()) == content


def test_probabilities_and_logits_without_targets(run, files):
    data = read_arrays(files / "test.npz")
    np.save(files / "bare.npy", data["logits"])
    code, out, err = run("report", "bare.npy")
    assert (code, err) == (0, "")
    assert "ECE" not in out
    shares = np.exp(data["logits"].astype(float))
    np.savez(files / "shares.npz", logits=shares / shares.sum(1, keepdims=True), target=data["target"])
    options = ("shares.npz", "--ood", "o=shares.npz", "--probabilities", "--json")
    content = json.loads(run("report", *options).out)
    assert content["settings"]["from_probabilities"] is True
    assert "energy" not in content["tables"]["ood"]["score"]


def test_files_of_several_kinds_and_labels_of_other_classes(run, files):
    """An .npz file next to a folder of Parquet, whose labels are of 14 other classes."""
    parts = write_parts(files / "parts", logit_table(*labelled(150, classes=4)))
    np.savez(files / "other.npz", **{**read_arrays(files / "noise.npz"), "target": np.arange(200) % 14})
    options = ("test.npz", "--ood", parts, "--ood", "other.npz", "--json")
    code, out, _ = run("report", *options)
    assert code == 0
    assert json.loads(out)["settings"]["samples"] == {"id": 200, "parts": 150, "other": 200}


def test_a_gate_for_machines(run, files):
    content = json.loads(run("report", *OPTIONS, "--json").out)
    plain = dict(zip(content["tables"]["ood"]["score"], content["tables"]["ood"]["auroc"], strict=True))["msp"]
    assert content["summary"]["auroc"] == content["summary"]["auroc_far"] == plain
    assert content["summary"]["ece"] == content["tables"]["calibration"]["ece"][0]
    limit = content["summary"]["accuracy"]
    for rule, code in ((f"accuracy<{limit}", 0), (f" accuracy <= {limit}", 1), ("ece>1e-9", 1), ("auroc_far>=2", 0)):
        found = run("report", *OPTIONS, "--fail-if", "accuracy<0", "--fail-if", rule)
        assert (found.code, "holds: " in found.err) == (code, bool(code))
    for rule, message in (("ece=3", "expected a rule such as 'ece>0.03', got 'ece=3'"), ("x>1", "among accuracy, ece")):
        code, _, err = run("report", *OPTIONS, "--fail-if", rule)
        assert code == 2
        assert message in err


def test_names_of_sets(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there=1.npz").touch()
    assert inputs.split_name("x=lr=0.1.npz") == ("x", "lr=0.1.npz")
    assert inputs.split_name("there=1.npz") == ("there=1", "there=1.npz")
    assert inputs.split_name("https://host/lr=0.1/a.npz") == ("a", "https://host/lr=0.1/a.npz")
    assert inputs.split_name("report.json") == ("report", "report.json")


def test_an_interruption_leaves_no_half_of_a_file(run, files, monkeypatch):
    def interrupted(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(Report, "to_json", interrupted)
    assert run("report", *OPTIONS) == (130, "", "torch-boc: interrupted\n")
    assert not list((files / "boc-report").glob("*"))


def test_compare(run, tmp_path):
    """Logits have paired differences; reports have the names of their folders."""
    for name, strength in (("a", 3), ("b", 5)):
        made = samples(120, strength)
        np.savez(tmp_path / f"{name}.npz", logits=made["logits"], target=made["target"])
        np.savez(tmp_path / f"{name}-far.npz", logits=samples(80, 0)["logits"] * strength)
        options = ("--ood", f"far={name}-far.npz", "--out", f"run-{name}")
        run("report", f"{name}.npz", *options)
    code, out, err = run("compare", "a.npz", "b.npz", "--ood", "far=a-far.npz,b-far.npz", "--out", "both")
    assert (code, err) == (0, "")
    assert "b against a, on the same samples: accuracy better, +" in out
    assert (tmp_path / "both" / "index.html").is_file()
    assert (tmp_path / "both" / "b" / "roc.svg").is_file()
    content = json.loads(run("compare", "run-a/report.json", "run-b/report.json", "--json").out)
    assert list(content) == ["run-a", "run-b"]
    for name in "ab":
        written = json.loads((tmp_path / f"run-{name}" / "report.json").read_text(encoding="utf-8"))
        assert content[f"run-{name}"]["tables"]["ood"] == written["tables"]["ood"]


class TestDemo:
    SMALL = ("resnet20-cifar10", "roberta-agnews", "vit-cifar10")

    @pytest.fixture
    def small_zoo(self, tmp_path_factory, monkeypatch):
        """Three small entries instead of the real ones: only the first has no split but training samples."""
        folder = tmp_path_factory.mktemp("zoo")
        for name, classes in zip(self.SMALL, (10, 4, 10), strict=True):
            columns = {"mahalanobis": 1} | ({} if classes == 4 else {"odin": 1})

            def data(logits, target, called, columns=columns):
                return LogitSet(logits, target, {column: logits.amax(1) for column in columns}, called)

            splits = [data(*labelled(200, classes, seed=5, signal=5.0), "training samples")]
            if name != self.SMALL[0]:
                splits.insert(0, data(*labelled(200, classes, seed=6, signal=3.0), "validation"))
            test, ood = data(*labelled(300, classes), "test"), data(ood_logits(300, classes), None, "strange")
            card = {"model": f"a small {name}", "data": "made up"}
            save_entry(folder, name, {"id": [test], "ood": [ood], "calibration": splits}, card)
        monkeypatch.setattr("torch_boc.evaluation.evaluate", partial(evaluate, replicates=5))
        monkeypatch.setattr(zoo, "names", lambda: self.SMALL)
        monkeypatch.setattr(zoo, "load", partial(read_entry, folder))

    @pytest.mark.usefixtures("small_zoo")
    def test_all_models_side_by_side(self, run, tmp_path):
        code, out, err = run("demo")
        assert (code, err) == (0, "")
        assert out.startswith("3 models side by side\n")
        assert max(map(cell_len, out.splitlines())) <= 80
        assert {path.name for path in (tmp_path / "boc-report").iterdir()} == {"index.html", *self.SMALL}
        for name in self.SMALL:
            written = {path.name for path in (tmp_path / "boc-report" / name).iterdir()}
            assert written > FILES
            (line,) = (line for line in out.splitlines() if line.strip().startswith(name))
            assert line.count(" %") >= 3
        assert f"Reading row 2, {self.SMALL[1]}: " in out
        assert "\n    torch-boc report test.npz --calibration val.npz --ood other.npz\n" in out
        assert "boc-report/index.html" in out

    @pytest.mark.usefixtures("small_zoo")
    def test_for_machines_and_one_in_full(self, run, tmp_path):
        code, out, err = run("demo", "--json")
        assert (code, err) == (0, "")
        content = json.loads(out, parse_constant=pytest.fail)
        assert tuple(content) == self.SMALL
        assert list(tmp_path.iterdir()) == []
        one = json.loads(run("demo", "vit-cifar10", "--json", "--out", "one").out)
        assert one == content["vit-cifar10"]
        assert one["settings"]["samples"] == {"id": 300, "strange": 300, "validation": 200, "training samples": 200}
        assert {path.name for path in (tmp_path / "one").iterdir()} > FILES
