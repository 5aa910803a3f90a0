"""All checks together: one that fails stops no other, and the file is whole at any time."""

import json

import pytest
import torch

import torch_boc
from tests.selfcheck.cases import CARD, CPU
from torch_boc.selfcheck import CHECKS, kit, run
from torch_boc.selfcheck.__main__ import main
from torch_boc.selfcheck.outcomes import Finding, SkippedError, check


@check("good", "it is good")
def good(device):
    return Finding(True, f"good on {device}")


@check("bad", "it is good")
def bad(device):
    raise RuntimeError("no")


@check("absent", "it is good")
def absent(device):
    raise SkippedError("not here")


@pytest.fixture
def checks(monkeypatch):
    monkeypatch.setattr(kit, "CHECKS", {one.name: one for one in (good, bad, absent)})


def test_ten_checks():
    assert len(CHECKS) == 10
    assert all(name == one.name and one.expected for name, one in CHECKS.items())


def test_a_failure_stops_no_other(checks, tmp_path):
    lines, seen = [], []

    def tell(line):
        lines.append(line)
        path = tmp_path / "out.json"
        seen.append(len(json.loads(path.read_text())["outcomes"]) if path.exists() else None)

    monitored = run("cpu", tmp_path / "out.json", tell=tell)
    assert [x.status for x in monitored.outcomes] == ["passed", "failed", "skipped"]
    assert [x.name for x in monitored.failed] == ["bad"]
    assert lines == ["1 of 3: good", "2 of 3: bad", "3 of 3: absent"]
    assert seen == [None, 1, 2], "the file is written after every check"
    assert [x.name for x in tmp_path.iterdir()] == ["out.json"]
    content = json.loads((tmp_path / "out.json").read_text())
    assert content["device"] == "cpu"
    assert content["machine"]["torch"] == torch.__version__
    assert [x["status"] for x in content["outcomes"]] == ["passed", "failed", "skipped"]
    assert "RuntimeError: no" in content["outcomes"][1]["note"]


def test_some_checks(checks):
    assert [x.name for x in run("cpu", only=["absent", "good", "absent"]).outcomes] == ["absent", "good"]
    with pytest.raises(ValueError, match="expected checks among good, bad, absent, got x"):
        run("cpu", only=["x"])


def test_a_path_that_cannot_be_written_is_found_first(checks, tmp_path):
    with pytest.raises(IsADirectoryError):
        run("cpu", tmp_path)


@pytest.fixture
def cards(monkeypatch):
    """A machine with two cards, of which the second is the current one."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)


def test_devices(cards):
    assert kit.check_device(None) == kit.check_device("cuda") == torch.device("cuda", 1)
    assert kit.check_device("cuda:0") == CARD
    assert kit.check_device("cpu:0") == CPU
    with pytest.raises(ValueError, match="expected a card below 2, got cuda:2"):
        kit.check_device("cuda:2")
    with pytest.raises(ValueError, match="expected a CUDA device or the CPU, got meta"):
        kit.check_device("meta")


def test_devices_without_a_gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert kit.check_device(None) == CPU
    with pytest.raises(ValueError, match="torch finds no GPU: choose cpu"):
        kit.check_device("cuda")


@pytest.mark.parametrize(("lost", "status"), [(True, "skipped"), (False, "passed")])
def test_a_gpu_that_no_longer_answers(monkeypatch, lost, status):
    def synchronize(device):
        if lost:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")

    monkeypatch.setattr(torch.cuda, "synchronize", synchronize)
    before = kit.Results("cuda:0", {}, (good(CARD),))
    assert kit._perform(good, CARD, before).status == "passed", "nothing failed before"
    outcome = kit._perform(good, CARD, before._replace(outcomes=(bad(CARD),)))
    assert outcome.status == status
    assert ("no longer answers this process after the failure of 'bad'" in outcome.note) is lost


@pytest.mark.parametrize(("names", "code"), [(["good", "absent"], 0), (["good", "bad"], 1), (["none"], 2)])
def test_exit_codes(checks, tmp_path, monkeypatch, capsys, names, code):
    monkeypatch.chdir(tmp_path)
    if code == 2:
        with pytest.raises(SystemExit) as stop:
            main(["--device", "cpu", "--only", *names])
        assert stop.value.code == 2
        assert "expected checks among" in capsys.readouterr().err
        return
    assert main(["--device", "cpu", "--only", *names]) == code
    out, err = capsys.readouterr()
    assert "good on cpu" in out
    assert "1 of 2: good" in err
    assert json.loads((tmp_path / "torch_boc-selfcheck.json").read_text())["outcomes"]


def test_an_interruption_keeps_what_is_done(checks, tmp_path, monkeypatch, capsys):
    def interrupt(device):
        raise KeyboardInterrupt

    monkeypatch.setitem(kit.CHECKS, "bad", check("bad", "")(interrupt))
    assert main(["--device", "cpu", "--out", str(tmp_path / "out.json")]) == 130
    assert "interrupted" in capsys.readouterr().err
    assert [x["name"] for x in json.loads((tmp_path / "out.json").read_text())["outcomes"]] == ["good"]


def test_it_is_an_attribute_of_the_package():
    assert torch_boc.selfcheck.run is run


@pytest.mark.slow
def test_the_whole_kit_on_this_cpu(tmp_path):
    results = run("cpu", tmp_path / "out.json")
    found = {x.name: x.status for x in results.outcomes}
    assert set(found.values()) == {"passed", "skipped"}, results.text()
    assert [name for name in found if found[name] == "skipped"] == ["other cards", "no waiting", "graphs", "memory"]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_the_whole_kit_on_this_gpu(tmp_path):
    results = run("cuda", tmp_path / "out.json")
    assert not results.failed, results.text()
    assert results.seconds < 120
