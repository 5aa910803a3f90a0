"""Help, version, warnings, progress, encodings, and the process around it all."""

import io
import os
import re
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

import torch_boc
from torch_boc.cli import app, main, output
from torch_boc.cli.options import ENDINGS
from torch_boc.data.files import READERS
from torch_boc.report.report import Report

NAMES = [command.__name__ for command in app.COMMANDS]
EXAMPLES = [
    line.strip()
    for command in app.COMMANDS
    for line in command.__doc__.partition("Examples:\n")[2].strip().splitlines()
]


def process(folder, code, *args, **environment):
    """A command line as a process of its own in `folder`, with this checkout's package."""
    environment = {**os.environ, "PYTHONPATH": str(Path(torch_boc.__file__).parents[1]), **environment}
    return subprocess.run(
        [sys.executable, "-c", code, *args], cwd=folder, env=environment, capture_output=True, text=True
    )


@pytest.mark.parametrize("args", [["--help"], []])
def test_the_commands_are_listed(run, args):
    code, out, err = run(*args)
    assert (code, err) == (0, "")
    assert all(name in out for name in (*NAMES, "--version"))
    assert "3 too little memory" in " ".join(out.split())
    assert out.index(" monitor ") < out.index(" doctor ") < out.index("Exit codes")


@pytest.mark.parametrize("name", NAMES)
def test_help_has_examples_that_fit(run, name):
    code, out, err = run(name, "--help")
    assert (code, err) == (0, "")
    mine = [example for example in EXAMPLES if example.startswith(f"torch-boc {name}")]
    lines = [line.strip() for line in out.splitlines()]
    start = lines.index("Examples") + 1
    assert lines[start : start + len(mine)] == mine != []
    assert max(map(len, out.splitlines())) <= 80
    assert not re.search(r"<(bool|str|list|path)|\{", out)


@pytest.mark.parametrize("example", EXAMPLES)
def test_the_examples_are_understood(run, example):
    """Every option that they use exists; the commands themselves are not run."""
    _, command, *args = example.split(" >")[0].split(" |")[0].split(" <")[0].split()
    code, _, err = run(command, *args, "--no-such-option")
    assert code == 2
    assert "No such option: --no-such-option" in err


def test_help_comes_without_torch(tmp_path):
    code = (
        "import sys, time\nfrom torch_boc.cli import main\n"
        f"for name in {['', *NAMES]}:\n"
        "    try:\n        main([*name.split(), '--help'])\n"
        "    except SystemExit as stop:\n        assert not stop.code\n"
        "loaded = {'torch', 'numpy', 'pandas', 'pyarrow', 'matplotlib'} & {*sys.modules}\n"
        "sys.exit(f'{loaded}, {time.process_time()} s' if loaded or time.process_time() > 5 else 0)"
    )
    done = process(tmp_path, code)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_version_and_the_endings(run):
    assert run("--version") == (0, f"torch-boc {torch_boc.__version__}\n", "")
    assert ENDINGS.replace(" or ", ", ").split(", ") == list(READERS)


def test_what_nobody_expects_is_raised_as_it_is(run, files, monkeypatch):
    def fail(*args, **kwargs):
        raise RuntimeError("a bug")

    monkeypatch.setattr("torch_boc.functional.table_columns.columns_of", fail)
    with pytest.raises(RuntimeError, match="a bug"):
        main(["probe", "test.npz", "-o", "out.csv"])
    assert not [path for path in files.iterdir() if "out.csv" in path.name]


def test_warnings_are_one_line_and_end_with_the_command(run, files, monkeypatch):
    def warn(*args, **kwargs):
        warnings.warn("look\nhere", stacklevel=1)
        return {}

    shown = warnings.showwarning
    monkeypatch.setattr("torch_boc.functional.table_columns.columns_of", warn)
    assert run("probe", "test.npz", "-o", "out.csv").err == "torch-boc: warning: look here\n"
    assert warnings.showwarning is shown


@pytest.mark.parametrize("module", ["typer", "rich"])
def test_without_the_extra(monkeypatch, module):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(SystemExit, match=r"torch-boc needs the 'cli' extra: pip install 'torch-boc\[cli\]'"):
        main([])


def test_an_interruption_while_libraries_are_imported(tmp_path):
    (tmp_path / "rich.py").write_text("raise KeyboardInterrupt\n")
    done = process(tmp_path, "from torch_boc.cli import main; main()", "demo")
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


@pytest.mark.parametrize("terminal", [False, True])
def test_progress_is_for_terminals_and_goes_to_stderr(capsys, monkeypatch, terminal):
    monkeypatch.setenv("FORCE_COLOR", "1") if terminal else monkeypatch.delenv("FORCE_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    with output.spinner("reading [a]") as tell:
        tell("probing [b]")
    out, err = capsys.readouterr()
    assert (out, "probing [b]" in err) == ("", terminal)


class TestEncodings:
    """Output on terminals that know few characters: the others are escapes."""

    @pytest.fixture
    def run_in(self, monkeypatch, files):
        """Runs a command line with stdout and stderr in an encoding; gives the exit code and what was printed."""
        monkeypatch.chdir(files)
        monkeypatch.setenv("COLUMNS", "80")
        monkeypatch.setattr(Report, "figures", lambda self: {})

        def call(encoding, *args):
            streams = [io.TextIOWrapper(io.BytesIO(), encoding=encoding) for _ in range(2)]
            monkeypatch.setattr(sys, "stdout", streams[0])
            monkeypatch.setattr(sys, "stderr", streams[1])
            with pytest.raises(SystemExit) as stop:
                main(args)
            for stream in streams:
                stream.flush()
            out, err = (stream.buffer.getvalue().decode(encoding) for stream in streams)
            return stop.value.code or 0, out, err

        return call

    def test_tables_help_and_messages(self, run_in):
        options = ("report", "test.npz", "--ood", "far=noise.npz", "--calibration", "val.npz")
        _, rich, _ = run_in("utf-8", *options)
        code, plain, err = run_in("ascii", *options)
        assert (code, err) == (0, "")
        assert re.findall(r"\d+\.\d+", plain) == re.findall(r"\d+\.\d+", rich)
        assert run_in("ascii", "report", "--help")[0] == 0
        assert run_in("ascii", "probe", "é.npz") == (2, "", "torch-boc: error: \\xe9.npz: no such file\n")

    def test_json_is_json(self, run_in, files):
        (files / "noise.npz").rename(files / "é\U0001f600.npz")
        code, out, _ = run_in("ascii", "report", "test.npz", "--ood", "é\U0001f600.npz", "--json")
        assert code == 0
        assert "é\U0001f600" in output.json.loads(out)["settings"]["samples"]

    @pytest.mark.parametrize("width", ["1", "10"])
    def test_narrow_terminals(self, run_in, monkeypatch, width):
        monkeypatch.setenv("COLUMNS", width)
        assert run_in("ascii", "report", "test.npz", "--ood", "noise.npz")[0] == 0


class TestNames:
    """Names of files, columns and sets that would command a terminal, or are not UTF-8, which Linux allows."""

    EVIL, SHOWN = "\x1b[31mred\x9b2J\u202e", r"\x1b[31mred\x9b2J\u202e"
    NOT_UTF8 = os.fsdecode(b"\xff\xfe")

    @pytest.mark.parametrize(("name", "shown"), [(EVIL, SHOWN), (NOT_UTF8, r"\udcff\udcfe")])
    def test_everywhere(self, run, files, monkeypatch, name, shown):
        monkeypatch.setattr(Report, "figures", lambda self: {})
        try:
            (files / "test.npz").rename(files / f"{name}.npz")
        except OSError:
            pytest.skip("this file system wants UTF-8")
        options = (f"{name}.npz", "--ood", f"{name}=noise.npz", "--out", name)
        probed = run("probe", f"{name}.npz", "-o", f"{name}.csv")
        reported = run("report", *options)
        written = [(files / name / file).read_text(encoding="utf-8") for file in ("report.html", "report.json")]
        for code, out, err in (probed, reported):
            assert (code, err) == (0, "")
            assert shown in out
        forbidden = {*map(chr, (*range(10), *range(11, 32), *range(127, 160))), "\u202e"}
        assert not forbidden & {*probed.out, *reported.out, *"".join(written)}
        assert list(output.json.loads(written[1])["settings"]["samples"]) == ["id", shown]
        assert (files / f"{name}.csv").stat().st_size > 100
        (files / f"{name}.csv").write_text(f"logit_0,logit_1,{self.EVIL}\n1,2,x\n3,{self.EVIL},y\n", encoding="utf-8")
        code, _, err = run("probe", f"{name}.csv")
        assert code == 2
        assert shown in err
        assert not forbidden & {*err}
