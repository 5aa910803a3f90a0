"""The measure of the tests itself: which faults it makes, and that it tells found ones from survivors."""

import subprocess
from pathlib import Path

import pytest

from benchmarks.mutants import __main__ as command
from benchmarks.mutants.changes import mutants
from benchmarks.mutants.stages import BEYOND, stages

SOURCE = '''"""A number 1 in a text is no number."""
import math
SIZE = 4096
Pair = int | str

def ρ(x: int = 5, *, flag: bool = True) -> "int | None":
    """Doc 1."""
    if x < 3 and flag:
        raise ValueError(f"expected {x + 1}")
    math.log(x, base=2)
    x += 1
    return -x if flag else x * 2
'''


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A small project under git: one function, of which the test checks a part."""
    files = {
        "torch_boc/__init__.py": "",
        "torch_boc/functional/__init__.py": "",
        "torch_boc/functional/double.py": "def double(x):\n    return x * 2\n\n\ndef seldom(x):\n    return x + 1\n",
        "tests/functional/test_double.py": "from torch_boc.functional.double import double\n\n\n"
        "def test_double():\n    assert double(3) == 6\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # pytest starts six times as fast
    monkeypatch.setattr(command, "ROOT", tmp_path)
    return tmp_path


def changed(tmp_path, source):
    file = tmp_path / "torch_boc" / "file.py"
    file.parent.mkdir()
    file.write_text(source, encoding="utf-8")
    return {(m.before, m.after) for m in mutants(tmp_path, Path("torch_boc/file.py"))}


def test_faults_of_a_file(tmp_path):
    assert changed(tmp_path, SOURCE) == {
        ("5", "(6)"),
        ("True", "(False)"),
        ("x < 3", "(x <= 3)"),
        ("3", "(4)"),
        ("x < 3 and flag", "(x < 3 or flag)"),
        ("x < 3 and flag", "(not (x < 3 and flag))"),
        ('raise ValueError(f"expected {x + 1}")', "pass"),
        ("math.log(x, base=2)", "pass"),
        ("math.log(x, base=2)", "(math.log(x))"),
        ("x += 1", "pass"),
        ("1", "(2)"),
        ("flag", "(not flag)"),
        ("-x", "(x)"),
        ("x * 2", "(x / 2)"),
        ("2", "(3)"),
    }


def test_signals_stay_as_they_are(tmp_path):
    found = changed(tmp_path, "def alive(pid):\n    os.kill(pid, 0)\n    return not pid\n")
    assert found == {("os.kill(pid, 0)", "pass"), ("not pid", "(pid)")}


def test_every_fault_of_the_package_is_python():
    for file in sorted(command.ROOT.glob("torch_boc/functional/*.py")):
        text = file.read_bytes()
        for mutant in mutants(command.ROOT, file.relative_to(command.ROOT)):
            compile(text[: mutant.start] + mutant.after.encode() + text[mutant.end :], str(mutant), "exec")


def test_the_nearest_tests_come_first():
    near, mirror, beyond = stages(command.ROOT, Path("torch_boc/data/files.py"))
    assert near == ["torch_boc/data/files.py", "tests/data/test_files.py"]
    assert mirror == ["tests/data"]
    assert "tests/evaluation" in beyond
    near, mirror, _ = stages(command.ROOT, Path("torch_boc/_optional.py"))
    assert near == ["torch_boc/_optional.py"]
    assert "tests/test_layers.py" in mirror


def test_the_folders_of_tests_exist():
    """A folder that was renamed would be left out in silence."""
    for part, folders in BEYOND.items():
        assert (command.ROOT / "torch_boc" / part).is_dir()
        assert [name for name in folders if not (command.ROOT / "tests" / name).is_dir()] == []


@pytest.mark.parametrize(
    "file", sorted(command.ROOT.glob("torch_boc/*/__init__.py")), ids=lambda file: file.parent.name
)
def test_every_part_of_the_package_has_tests(file):
    _, mirror, *_ = stages(command.ROOT, file.relative_to(command.ROOT))
    assert all((command.ROOT / name).exists() for name in mirror)


def test_found_and_surviving_faults_are_told_apart(project, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["mutants", "--workers", "1"])
    assert command.main() == 1
    printed = capsys.readouterr().out
    assert "found by tests/functional/test_double.py::test_double:  torch_boc/functional/double.py:2: x * 2" in printed
    assert "SURVIVED:  torch_boc/functional/double.py:6: x + 1  ->  (x - 1)" in printed
    assert "2 of 4 faults found" in printed
    assert (project / "torch_boc/functional/double.py").read_text().count("x * 2") == 1


def test_a_test_that_always_fails_finds_nothing(project, monkeypatch, capsys):
    (project / "tests/functional/test_double.py").write_text("def test_double():\n    assert False\n")
    monkeypatch.setattr("sys.argv", ["mutants", "--workers", "1", "--count", "1"])
    assert command.main() == 1
    printed = capsys.readouterr().out
    assert "does not count: tests/functional/test_double.py::test_double" in printed
    assert "0 of 1 faults found" in printed


def test_known_equivalents_are_left_out(project, monkeypatch, tmp_path):
    known = tmp_path / "known.txt"
    known.write_text("torch_boc/functional/double.py: x + 1  ->  (x - 1)  # nobody calls it\n")
    monkeypatch.setattr(command, "KNOWN", known)
    assert {mutant.before for mutant in command.sample(project, 60, 0, "")} == {"x * 2", "2", "1"}
