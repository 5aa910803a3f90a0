"""`torch-boc monitor`: the evidence of the library, line by line, over interruptions, with a code of its own."""

import io
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import torch_boc
from tests.arrays import read_arrays
from tests.systems import unix_only
from torch_boc.cli import stream as command
from torch_boc.inference.resume import exclusive_lock
from torch_boc.nn import ConformalTest, DriftMonitor

VAL = ("--calibration", "val.npz")


def logits(path):
    return torch.from_numpy(read_arrays(path)["logits"]).double()


@pytest.fixture
def turned(files):
    """The samples of a stream that turns: 200 of the test set, then 200 of noise."""
    return torch.cat([logits(files / "test.npz"), logits(files / "noise.npz")])


@pytest.fixture
def reference(files, turned):
    """The monitor of the library after that stream, and where the change began, as it said at its alarm."""
    monitor = DriftMonitor(ConformalTest().calibrate(logits(files / "val.npz").float()))
    for row in turned:
        monitor.update(row[None])
        if monitor.alarm and not hasattr(monitor, "began_between"):
            monitor.began_between = monitor.change
    return monitor


def csv_lines(rows):
    return "".join(",".join(map(repr, row)) + "\n" for row in rows.tolist())


def json_lines(rows):
    return "".join(json.dumps(row) + "\n" for row in rows.tolist())


class Slow(io.BytesIO):
    """A stream of which a few bytes come at once, as from a pipe."""

    def __init__(self, content, most):
        super().__init__(content)
        self.most = most

    def read1(self, size=-1):
        return super().read1(min(size, self.most))


@pytest.fixture
def feed(monkeypatch):
    """Puts a text on standard input, of which at most `most` bytes come at once."""

    def put(text, most=2**20):
        content = text if isinstance(text, bytes) else text.encode()
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(Slow(content, most)))

    return put


def events(out):
    return [json.loads(line, parse_constant=pytest.fail) for line in out.splitlines()]


def last(out):
    (found,) = [event for event in events(out) if event["event"] == "end"]
    return found


def test_files_in_order(run, files, reference):
    code, out, err = run("monitor", "test.npz", "noise.npz", *VAL)
    assert (code, err) == (4, "")
    first, alarm, second = out.splitlines()
    at = int(reference.alarm_at)
    assert first.startswith("test: 200 samples, no alarm (threshold 100); evidence 0.")
    assert alarm.startswith(f"ALARM at sample {at}: evidence ")
    assert "has reached 100; the shift probably began after " in alarm
    assert second.startswith(f"noise: 400 samples, alarm at sample {at}; evidence 10^")
    assert 200 < at < 300
    assert run("monitor", "test.npz", *VAL) == (0, f"{first}\n", "")


@pytest.mark.parametrize("write", [csv_lines, json_lines])
@pytest.mark.parametrize("most", [50, 2**20])
def test_standard_input_gives_the_same_in_pieces_of_any_size(run, feed, turned, reference, monkeypatch, write, most):
    monkeypatch.setattr(command, "EVERY", 100)
    feed(write(turned), most)
    code, out, _ = run("monitor", *VAL, "--json")
    assert code == 4
    assert last(out)["log_evidence"] == pytest.approx(float(reference.evidence), rel=1e-9)
    (alarm,) = [event for event in events(out) if event["event"] == "alarm"]
    assert (alarm["sample"], alarm["change"]) == (int(reference.alarm_at), [*reference.began_between])
    assert [event["samples"] for event in events(out) if event["event"] == "progress"] == [100, 200, 300, 400]


def test_a_stream_that_never_ends(run, files, turned):
    monitor = DriftMonitor(ConformalTest().calibrate(logits(files / "val.npz")), run_length=5_000)
    evidence = float(monitor.update(turned)[-1])
    how = (*VAL, "--state", "s.pt", "--json", "--run-length", "5000")
    assert run("monitor", "test.npz", *how).code == 0
    code, out, _ = run("monitor", "noise.npz", *how)
    assert (code, last(out)["alarm_at"]) == (4, int(monitor.alarm_at))
    assert last(out)["log_evidence"] == pytest.approx(evidence)


def test_until_the_alarm(run, files, reference, monkeypatch):
    """It stops after the batch of the alarm; a later call takes the rest."""
    monkeypatch.setattr(command, "BATCH", 20)
    code, out, _ = run("monitor", "test.npz", "noise.npz", *VAL, "--until-alarm", "--state", "s.pt", "--json")
    assert code == 4
    assert int(reference.alarm_at) <= last(out)["samples"] < int(reference.alarm_at) + 20
    code, out, _ = run("monitor", "test.npz", "noise.npz", "--state", "s.pt", "--until-alarm", "--json")
    assert (code, [event["event"] for event in events(out)]) == (4, ["continued", "end"])
    code, out, _ = run("monitor", "test.npz", "noise.npz", "--state", "s.pt", "--json")
    assert last(out)["samples"] == 400
    assert last(out)["log_evidence"] == pytest.approx(float(reference.evidence), rel=1e-9)


BEGAN = "s.pt: expected the held-out samples, the score and the level with which this stream began (alpha=0.01"


class TestState:
    def test_another_day(self, run, files, reference):
        """It needs no held-out file, and leaves out a file that was taken, under any name."""
        assert run("monitor", "test.npz", *VAL, "--state", "new/s.pt").code == 0
        (files / "val.npz").unlink()
        (files / "test.npz").rename(files / "again.npz")
        code, out, err = run("monitor", "again.npz", "noise.npz", "--state", "new/s.pt", "--json")
        assert (code, err, [x["event"] for x in events(out)][:2]) == (4, "", ["continued", "known"])
        assert last(out)["log_evidence"] == pytest.approx(float(reference.evidence), rel=1e-12)
        assert [path.name for path in (files / "new").iterdir()] == ["s.pt"]

    @pytest.mark.parametrize("after", [1, 5])
    def test_an_interruption_loses_nothing(self, run, files, monkeypatch, reference, after):
        """It comes in the middle of a file, when a batch was added and not yet saved."""
        monkeypatch.setattr(command, "BATCH", 70)
        update, calls = DriftMonitor.update, []

        def interrupted(self, logits):
            calls.append(len(logits))
            result = update(self, logits)
            if len(calls) > after:
                raise KeyboardInterrupt
            return result

        monkeypatch.setattr(DriftMonitor, "update", interrupted)
        code, _, err = run("monitor", "test.npz", "noise.npz", *VAL, "--state", "s.pt")
        assert (code, err) == (130, "torch-boc: interrupted\n")
        monkeypatch.setattr(DriftMonitor, "update", update)
        code, out, _ = run("monitor", "test.npz", "noise.npz", *VAL, "--state", "s.pt", "--json")
        assert code == 4
        assert last(out)["samples"] == 400
        assert last(out)["log_evidence"] == pytest.approx(float(reference.evidence), rel=1e-9)

    @pytest.mark.parametrize(
        ("args", "message"),
        [
            (("--alpha", "0.05"), BEGAN),
            (("--run-length", "0"), BEGAN),
            (("--calibration", "fit.npz"), BEGAN),
            ((*VAL, "--score", "energy"), BEGAN),
            (("--probabilities",), "s.pt: expected logits, as at its calibration, got probabilities"),
            (("--score", "energy"), "expected --calibration PATH or --test PATH"),
        ],
    )
    def test_another_stream_is_refused(self, run, files, args, message):
        run("monitor", "test.npz", *VAL, "--state", "s.pt")
        before = (files / "s.pt").read_bytes()
        code, out, err = run("monitor", "noise.npz", "--state", "s.pt", *args)
        assert (code, out) == (2, "")
        assert err.startswith(f"torch-boc: error: {message}")
        assert (files / "s.pt").read_bytes() == before

    @unix_only
    def test_a_second_monitor_is_refused(self, run, files):
        with exclusive_lock(files / "s.pt"):
            code, out, err = run("monitor", "test.npz", *VAL, "--state", "s.pt")
        assert (code, out) == (2, "")
        assert err.startswith("torch-boc: error: expected that nobody else writes s.pt, got another run")
        assert run("monitor", "test.npz", *VAL, "--state", "s.pt").code == 0
        assert not (files / "s.pt.lock").exists()

    def test_a_kept_test(self, run, files, reference):
        assert run("screen", "test.npz", *VAL, "--save-test", "t.pt").code == 0
        code, out, _ = run("monitor", "test.npz", "noise.npz", "--test", "t.pt", "--json")
        assert code == 4
        assert last(out)["log_evidence"] == pytest.approx(float(reference.evidence), rel=1e-12)


class TestBadLines:
    @pytest.mark.parametrize(
        ("line", "message"),
        [
            ("1,2,x,4", "expected numbers with commas between them, or an array of JSON, got '1,2,x,4'"),
            ("[1, 2, null, 4]", "expected numbers with commas between them, or an array of JSON"),
            ("[" * 100_000, "expected numbers with commas between them"),
            ("\x1b[31m", r"expected numbers with commas between them, or an array of JSON, got '\x1b[31m'"),
            ("1,2,3", "expected 4 numbers, one for each class, got 3"),
        ],
    )
    def test_the_line_is_named_and_those_before_it_count(self, run, files, feed, turned, line, message):
        text = csv_lines(turned[:50]) + "\n" + line + "\n" + csv_lines(turned[50:])
        feed(text.encode())
        code, out, err = run("monitor", *VAL, "--state", "s.pt")
        assert (code, out) == (2, "")
        assert err.startswith(f"torch-boc: error: standard input, line 52: {message}")
        feed(csv_lines(turned[:1]))
        assert last(run("monitor", "--state", "s.pt", "--json").out)["samples"] == 51

    def test_nothing_at_all_is_an_error(self, run, files, feed):
        feed("\n \n")
        error = "torch-boc: error: standard input: expected a sample in each line, got nothing\n"
        assert run("monitor", *VAL) == (2, "", error)

    def test_rows_that_are_not_finite_are_left_out_and_counted(self, run, files, feed, turned, reference):
        text = csv_lines(turned[:100]) + "nan,1,2,3\n[Infinity, 1, 2, 3]\r\n" + csv_lines(turned[100:]).rstrip("\n")
        feed(b"\xef\xbb\xbf" + text.encode())
        code, out, _ = run("monitor", "-", *VAL)
        assert code == 4
        assert f"400 samples (2 more with NaN or +inf left out), alarm at sample {int(reference.alarm_at)}" in out
        bad = torch.cat([turned[:100], torch.full((2, 4), torch.nan), turned[100:]])
        np.savez(files / "bad.npz", logits=bad.numpy(), target=np.full(len(bad), 17))  # labels of other classes
        code, found, err = run("monitor", "bad.npz", *VAL)
        assert (code, err, found.splitlines()[-1]) == (4, "", f"bad: {out.splitlines()[-1]}")

    def test_probabilities(self, run, files, feed, turned, reference):
        feed(csv_lines(turned.softmax(1)).encode())
        code, out, err = run("monitor", *VAL)
        assert (code, out) == (2, "")
        assert err.startswith("torch-boc: error: standard input: expected logits or log-probabilities, got probabil")
        np.savez(files / "shares.npz", logits=logits(files / "val.npz").softmax(1).numpy())
        feed((csv_lines(turned.softmax(1)) + "0.5,0.2,0,0\n").encode())
        code, out, err = run("monitor", "--calibration", "shares.npz", "--probabilities")
        assert code == 2
        assert f"ALARM at sample {int(reference.alarm_at)}:" in out
        assert "standard input, line 401: expected probabilities" in err


@unix_only
@pytest.mark.parametrize(("stop", "code"), [("SIGINT", 130), pytest.param("SIGKILL", -9, marks=pytest.mark.slow)])
def test_a_live_pipe_that_is_stopped_and_continued(run, files, feed, turned, reference, stop, code):
    """Lines are taken before the input ends. After a stop, the next process resumes with the next line."""
    environment = {**os.environ, "PYTHONPATH": str(Path(torch_boc.__file__).parents[1])}
    line = [sys.executable, "-c", "from torch_boc.cli import main, stream; stream.EVERY = 250; main()", "monitor", *VAL]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    line += ["--state", "s.pt", "--json"]
    process = subprocess.Popen(line, cwd=files, env=environment, text=True, **pipes)
    try:
        process.stdin.write(csv_lines(turned[:250]))
        process.stdin.flush()
        seen = [json.loads(process.stdout.readline())]
        while seen[-1]["event"] != "progress":
            seen.append(json.loads(process.stdout.readline()))
        assert seen[-1]["samples"] == 250
        process.send_signal(getattr(signal, stop))
        _, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == code
    assert err == ("torch-boc: interrupted\n" if stop == "SIGINT" else "")
    feed(csv_lines(turned[250:]).encode())
    code, out, _ = run("monitor", "--state", "s.pt", "--json")
    assert code == 4
    assert last(out)["log_evidence"] == pytest.approx(float(reference.evidence), rel=1e-9)
