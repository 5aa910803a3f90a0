"""The table and the file of results, and what they say of the machine."""

import json
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch

from torch_boc.selfcheck import machine
from torch_boc.selfcheck.outcomes import Outcome
from torch_boc.selfcheck.results import Results

RESULTS = Results(
    "cuda:0",
    {"torch": "2.9"},
    (
        Outcome("results", "passed", "they agree", "error 1e-7", 2.0, "one card"),
        Outcome(
            "speed", "failed", "it is fast", "KeyError: \x1b[31m", 1.0, "a.py:1 in f\nKeyError", {}, ("slow path",)
        ),
        Outcome("graphs", "skipped", "it counts", "", 0.0, "needs a CUDA device"),
    ),
)


def test_plain_text(capsys):
    RESULTS.show()
    assert capsys.readouterr().out == (
        "passed   results  error 1e-7 (2.0 s)\n"
        "                  one card\n"
        "                  expected: they agree\n"
        "failed   speed    KeyError: \\x1b[31m (1.0 s)\n"
        "                  expected: it is fast\n"
        "skipped  graphs   needs a CUDA device (0.0 s)\n"
        "                  expected: it counts\n"
        "1 passed, 1 failed, 1 skipped, in 3.0 s on cuda:0\n"
        "speed:\n"
        "    a.py:1 in f\n"
        "    KeyError\n"
        "    warned: slow path\n"
    )


def test_a_table_in_a_terminal(capsys, monkeypatch):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "120")
    RESULTS.show()
    out = capsys.readouterr().out
    assert "│" in out
    assert "error 1e-7; one card" in out
    assert "1 passed, 1 failed, 1 skipped" in out
    assert "\x1b[31m:" not in out


def test_a_terminal_without_rich(capsys, monkeypatch):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setitem(sys.modules, "rich", None)
    RESULTS.show()
    assert capsys.readouterr().out.startswith("passed   results  error 1e-7")


def test_the_file(tmp_path):
    odd = RESULTS.outcomes[0]._replace(details={"x": [float("inf"), float("nan"), 1.5], 2: None})
    path = RESULTS._replace(outcomes=(odd,)).save(tmp_path / "folder" / "out.json")
    content = json.loads(path.read_text(), parse_constant=pytest.fail)
    assert content["outcomes"][0]["details"] == {"x": ["inf", "nan", 1.5], "2": None}
    assert content["seconds"] == 2.0
    assert list(content) == ["device", "machine", "seconds", "outcomes"]


def test_no_results():
    assert Results("cpu", {}, ()).text() == "0 passed, 0 failed, 0 skipped, in 0.0 s on cpu"


def test_the_machine(monkeypatch):
    card = SimpleNamespace(
        name="A100", major=8, minor=0, total_memory=80 * 2**30, multi_processor_count=108,
        memory_clock_rate=1_593_000, memory_bus_width=5120,
    )  # fmt: skip
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: card)
    monkeypatch.setattr(machine, "driver", lambda: "570.1")
    found = machine.describe_machine()
    assert found["driver"] == "570.1"
    (first,) = found["cards"]
    assert first["capability"] == "8.0"
    assert first["peak GB/s"] == 2039
    del card.memory_clock_rate
    assert "peak GB/s" not in machine.card(0)
    assert json.dumps(found)


def test_the_driver(monkeypatch):
    monkeypatch.setattr(machine.shutil, "which", lambda name: None)
    assert machine.driver() is None
    monkeypatch.setattr(machine.shutil, "which", lambda name: "/bin/nvidia-smi")
    monkeypatch.setattr(machine.subprocess, "run", lambda *_, **__: SimpleNamespace(stdout="570.1\n570.1\n"))
    assert machine.driver() == "570.1"

    def fail(*_, **__):
        raise subprocess.TimeoutExpired("nvidia-smi", 20)

    monkeypatch.setattr(machine.subprocess, "run", fail)
    assert machine.driver() is None
