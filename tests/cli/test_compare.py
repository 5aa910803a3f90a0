"""`torch-boc compare`: from reports and from logits."""

import json

import numpy as np
import pytest

from tests.cli.cases import samples

FAST = ("--replicates", "20")


@pytest.fixture
def two(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, strength in (("a", 3), ("b", 5)):
        made = samples(120, strength)
        np.savez(f"{name}.npz", logits=made["logits"], target=made["target"])
        np.savez(f"{name}-far.npz", logits=samples(80, 0)["logits"] * strength)
    np.savez("two.npz", logits=samples(80, 0)["logits"][:, :2])
    return tmp_path


def test_logits_with_paired_differences(run, two):
    code, out, err = run("compare", "a.npz", "b.npz", "--ood", "far=a-far.npz,b-far.npz", *FAST, "--out", "both")
    assert (code, err) == (0, "")
    assert "each model minus a, on the same samples" in out
    assert (two / "both" / "index.html").is_file()
    assert (two / "both" / "b" / "explore.html").is_file()


def test_reports_have_the_names_of_their_folders(run, two):
    for name in "ab":
        run("report", "--id", f"{name}.npz", "--ood", f"far={name}-far.npz", *FAST, "--out", f"run-{name}", "-q")
    code, out, _ = run("compare", "run-a/report.json", "run-b/report.json", "--json")
    assert code == 0
    content = json.loads(out)
    assert list(content) == ["run-a", "run-b"]
    for name in "ab":
        written = json.loads((two / f"run-{name}" / "report.json").read_text(encoding="utf-8"))
        assert content[f"run-{name}"]["tables"]["ood"] == written["tables"]["ood"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("a.npz",), "expected at least two models to compare, got 1"),
        (("a.npz", "a.npz"), "got 'a' twice; use NAME=a.npz"),
        (("a.npz", "b.npz", "--ood", "a-far.npz"), "--ood: expected NAME=PATH,PATH, got 'a-far.npz'"),
        (("a.npz", "b.npz", "--ood", "far=a-far.npz"), "expected a file for each of the 2 models"),
        (("a.npz", "none.json"), "none.json"),
        (("a.npz", "b.npz", "--ood", "far=a-far.npz,two.npz"), "two.npz: expected 4 classes, as in the model b, got 2"),
    ],
)
def test_errors_are_one_line(run, two, arguments, words):
    code, out, err = run("compare", *arguments)
    assert (code, out) == (2, "")
    assert words in err
    assert len(err.splitlines()) == 1
