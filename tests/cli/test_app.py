"""Help, version, usage errors, warnings, progress and the process around it all."""

import os
import signal
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

import torch_boc
from torch_boc.cli import app, console, main


@pytest.mark.parametrize("args", [["--help"], []])
def test_the_commands_are_listed(run, args):
    code, out, err = run(*args)
    assert (code, err) == (0, "")
    assert all(name in out for name in ("demo", "report", "probe", "--version"))


@pytest.mark.parametrize("command", app.EXAMPLES)
def test_help_has_examples_that_fit(run, command):
    code, out, err = run(command.__name__, "--help")
    assert (code, err) == (0, "")
    lines = [line.strip() for line in out.splitlines()]
    start = lines.index("Examples")
    assert lines[start + 1 : start + 1 + len(app.EXAMPLES[command])] == list(app.EXAMPLES[command])
    assert max(map(len, out.splitlines())) <= 80


@pytest.mark.parametrize("example", [x for examples in app.EXAMPLES.values() for x in examples])
def test_the_examples_are_understood(run, monkeypatch, example):
    """Every option that they use exists; the commands themselves are not run."""
    _, command, *args = example.split(" >")[0].split(" |")[0].split()
    code, _, err = run(command, *args, "--no-such-option")
    assert code == 2
    assert "No such option: --no-such-option" in err


def test_the_version(run):
    assert run("--version") == (0, f"torch-boc {torch_boc.__version__}\n", "")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["prob"], "No such command 'prob'"),
        (["probe"], "Missing argument 'PATH'"),
        (["report"], "Missing option '--id'"),
        (["probe", "a.npz", "--trials", "many"], "Invalid value for '--trials'"),
        (["probe", "a.npz", "--trials", "0"], "Invalid value for '--trials'"),
        (["probe", "a.npz", "--trials", "100000000"], "Invalid value for '--trials'"),
        (["report", "a.npz", "--trials", "9" * 30], "Invalid value for '--trials'"),
        (["probe", "a.npz", "--fast"], "No such option: --fast"),
    ],
)
def test_usage_errors_are_one_line(run, args, message):
    code, out, err = run(*args)
    assert (code, out) == (2, "")
    assert err.startswith(f"torch-boc: error: {message}")
    assert err.endswith("--help)\n")
    assert err.count("\n") == 1


def test_what_nobody_expects_is_raised_as_it_is(run, files, monkeypatch):
    def fail(*args, **kwargs):
        raise RuntimeError("a bug")

    monkeypatch.setattr("torch_boc.cli.probe._columns", fail)
    with pytest.raises(RuntimeError, match="a bug"):
        main(["probe", "test.npz", "-o", "out.csv"])
    assert not [path for path in files.iterdir() if "out.csv" in path.name]


def test_warnings_are_one_line_and_end_with_the_command(run, files, monkeypatch):
    def warn(*args, **kwargs):
        warnings.warn("look\nhere", stacklevel=1)
        return {}

    shown = warnings.showwarning
    monkeypatch.setattr("torch_boc.cli.probe._columns", warn)
    assert run("probe", "test.npz", "-o", "out.csv").err == "torch-boc: warning: look here\n"
    assert warnings.showwarning is shown


@pytest.mark.parametrize("module", ["typer", "rich"])
def test_without_the_extra(monkeypatch, module):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(SystemExit, match=r"torch-boc needs the 'cli' extra: pip install 'torch-boc\[cli\]'"):
        main([])


def test_progress_is_for_terminals_and_goes_to_stderr(capsys, monkeypatch):
    for terminal in (False, True):
        monkeypatch.setenv("FORCE_COLOR", "1") if terminal else monkeypatch.delenv("FORCE_COLOR", raising=False)
        monkeypatch.setenv("TERM", "xterm")
        with console.working("reading [a]") as tell:
            tell("probing [b]")
        with console.counting("counting", 10) as advance:
            advance(10)
        out, err = capsys.readouterr()
        assert out == ""
        assert ("probing [b]" in err, "counting" in err) == (terminal, terminal)


def process(folder, *args):
    """A command line as a process of its own in `folder`, with this checkout's package."""
    environment = {**os.environ, "PYTHONPATH": str(Path(torch_boc.__file__).parents[1])}
    command = [sys.executable, "-m", "torch_boc.cli", *args]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_as_a_process(tmp_path):
    outcome = process(tmp_path, "probe", "absent.npy")
    assert (outcome.returncode, outcome.stdout) == (2, "")
    assert outcome.stderr == "torch-boc: error: absent.npy: no such file\n"


@pytest.mark.parametrize("module", ["rich", "typer", "torch"])
def test_an_interruption_while_libraries_are_imported(tmp_path, module):
    """Even in one that goes on after an exception, as torch does when NumPy cannot be imported."""
    code = "import os, signal\ntry:\n    os.kill(os.getpid(), signal.SIGINT)\nexcept BaseException:\n    pass\n"
    (tmp_path / f"{module}.py").write_text(code)
    outcome = process(tmp_path, "demo")
    assert (outcome.returncode, outcome.stdout, outcome.stderr) == (130, "", "torch-boc: interrupted\n")


def test_interruptions_are_as_before_when_libraries_are_imported(run):
    before = signal.getsignal(signal.SIGINT)
    assert run("--version").code == 0
    assert signal.getsignal(signal.SIGINT) is before
