"""A calibrator that is added to the list stands in every output, with what is known of it."""

from io import StringIO

import pytest
from rich.console import Console

from tests.data.cases import labelled, unfamiliar
from torch_boc import calibration
from torch_boc.calibration import Calibrated, Calibrator, Uncalibrated
from torch_boc.cli import render
from torch_boc.evaluation import Comparison, evaluate


class Timid(Calibrator):
    """Half of the confidence, whatever was learnt."""

    name = "timid"
    gives_logits = False

    def _fit(self, logits, target):
        pass

    def _calibrate(self, logits):
        plain = Uncalibrated().calibrate(logits)
        return Calibrated(plain.prediction, plain.confidence / 2, None)


class Eager(Timid):
    """Needs no fit, and calibrates the logits of all classes."""

    name = "eager"
    needs_fit = False
    gives_logits = True
    num_classes = 5

    def _check_fitted(self):
        pass

    def _calibrate(self, logits):
        return Uncalibrated().calibrate(2 * logits)


@pytest.fixture
def report(monkeypatch):
    monkeypatch.setattr(calibration, "CALIBRATORS", (*calibration.CALIBRATORS[:2], Timid, Eager))
    test, split = labelled(300), labelled(200, seed=1)
    return evaluate(test, unfamiliar(100), calibration={"held out": split}, replicates=10, trial_counts=(20,))


def test_in_every_output(report, tmp_path):
    table = report.calibration
    assert table["method"].tolist() == ["MSP", "temperature", "timid", "eager"]
    assert table["split"].tolist() == ["", "held out", "held out", ""]
    assert table["temperature"].notna().tolist() == [False, True, False, False]
    console = Console(width=80, file=StringIO())
    render.show_report(report, console)
    shown = [report.to_markdown(), report._repr_html_(), console.file.getvalue()]
    shown.append(report.to_html(tmp_path / "report.html").read_text(encoding="utf-8"))
    assert all("timid" in text and "eager" in text for text in shown)
    rows = {row[0].text: row[1] for row in Comparison({"model": report}).table().rows}
    assert {"ECE, timid", "ECE, eager"} <= set(rows)


def test_a_method_without_logits_borrows_its_likelihood(report):
    lines = {line.split(" |")[0]: line for line in report.to_markdown().splitlines() if line.startswith("| ")}
    assert "as MSP" in lines["| timid (fitted on held out)"]
    assert "as MSP" not in lines["| eager"]
    assert "Timid gives a confidence only: its NLL is that of MSP." in report.to_markdown()


def test_methods_are_chosen_by_name(monkeypatch):
    monkeypatch.setattr(calibration, "CALIBRATORS", (*calibration.CALIBRATORS, Timid))
    chosen = evaluate(labelled(100), calibration=labelled(100, seed=1), methods=["timid"], replicates=5)
    assert chosen.calibration["method"].tolist() == ["MSP", "timid", "BoC"]
    with pytest.raises(ValueError, match="among temperature, isotonic, vector scaling, timid, got 'eager'"):
        evaluate(labelled(50), methods=["eager"])
