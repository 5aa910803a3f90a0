"""The measure of the tests: which faults it makes, which tests it asks, and that it tells found ones from survivors."""

import subprocess
from pathlib import Path

import pytest

from benchmarks.mutants import __main__ as command
from benchmarks.mutants.changes import mutants
from benchmarks.mutants.stages import stages

SOURCE = '''"""A number 1 in a text is no number."""
SIZE = 4096

def f(x: int = 5) -> "int | None":
    if x < 3 and flag:
        raise ValueError(f"expected {x + 1}")
    math.log(x, base=2)
    return -x if flag else x * 2
'''


def test_faults_of_a_file(tmp_path):
    (tmp_path / "file.py").write_text(SOURCE, encoding="utf-8")
    assert {(m.before, m.after) for m in mutants(tmp_path, Path("file.py"))} == {
        ("5", "(6)"),
        ("x < 3", "(x <= 3)"),
        ("3", "(4)"),
        ("x < 3 and flag", "(x < 3 or flag)"),
        ("x < 3 and flag", "(not (x < 3 and flag))"),
        ('raise ValueError(f"expected {x + 1}")', "pass"),
        ("math.log(x, base=2)", "pass"),
        ("math.log(x, base=2)", "(math.log(x))"),
        ("flag", "(not flag)"),
        ("-x", "(x)"),
        ("x * 2", "(x / 2)"),
        ("2", "(3)"),
    }


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A small project under git: two functions, of which a test checks one."""
    files = {
        "torch_boc/__init__.py": "",
        "torch_boc/functional/__init__.py": "",
        "torch_boc/functional/double.py": "def double(x):\n    return x * 2\n\n\ndef seldom(x):\n    return x + 1\n",
        "tests/functional/test_all.py": "from torch_boc.functional.double import double\n\n\n"
        "def test_double():\n    assert double(3) == 6\n",
        "tests/functional/test_other.py": "",
        "tests/nn/test_user.py": "# double",
        "tests/nn/test_stranger.py": "",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # pytest starts six times as fast
    monkeypatch.setattr(command, "ROOT", tmp_path)
    return tmp_path


def test_the_nearest_tests_come_first(project, monkeypatch):
    monkeypatch.setattr("benchmarks.mutants.stages.NEAREST", 1)
    path = "torch_boc/functional/double.py"
    near, rest, other = stages(project, Path(path))
    assert near == [path, "tests/functional/test_all.py"]
    assert (rest, other) == (["tests/functional/test_other.py"], ["tests/nn/test_user.py"])


def test_found_and_surviving_faults_are_told_apart(project, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["mutants", "--workers", "1"])
    assert command.main() == 1
    printed = capsys.readouterr().out
    assert "found by tests/functional/test_all.py::test_double:  torch_boc/functional/double.py:2: x * 2" in printed
    assert "SURVIVED:  torch_boc/functional/double.py:6: x + 1  ->  (x - 1)" in printed
    assert "2 of 4 faults found" in printed
    assert (project / "torch_boc/functional/double.py").read_text().count("x * 2") == 1


def test_a_test_that_always_fails_finds_nothing(project, monkeypatch, capsys):
    (project / "tests/functional/test_all.py").write_text("def test_double():\n    assert False\n")
    monkeypatch.setattr("sys.argv", ["mutants", "--workers", "1", "--count", "1"])
    assert command.main() == 1
    assert "0 of 1 faults found" in capsys.readouterr().out
