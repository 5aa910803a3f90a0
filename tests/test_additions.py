"""Each kind of addition that CONTRIBUTING.md describes, made with a dummy: it must appear in all outputs by itself."""

import json

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from tests.data.cases import labelled, unfamiliar
from torch_boc import BoCMetric, BoCSeparation, calibration
from torch_boc.calibration import Calibrated, Calibrator, TemperatureScaling
from torch_boc.calibration.base import coins_of
from torch_boc.cli import main
from torch_boc.data import files, find_logits, logit_set
from torch_boc.data.finding import find_target
from torch_boc.evaluation import evaluate
from torch_boc.functional import boc_summary, compute_scores, registry, scores


def texts(report, folder):
    """Every text that a report gives."""
    report.save(folder)
    written = [(folder / f"report.{kind}").read_text(encoding="utf-8") for kind in ("html", "md", "json")]
    return [*written, report._repr_html_()]


@pytest.fixture
def halved(monkeypatch):
    """What `functional/registry.py` gets: a registered function of the evidence. It is forgotten after the test."""
    monkeypatch.setitem(registry.registered, "halved", None)

    @registry.register("half of the confidence", symbol="p̂/2")
    def halved(evidence):
        return evidence.coins.confidence / 2

    return "halved"


def test_a_score(halved, tmp_path):
    logits, target = labelled()
    expected = logits.double().softmax(1).amax(1) / 2
    torch.testing.assert_close(scores[halved](logits), expected, rtol=1e-6, atol=0)
    assert halved in compute_scores(logits)

    separation = BoCSeparation([halved, "msp"])
    separation.update(logits, torch.zeros(len(logits), dtype=torch.bool))
    separation.update(unfamiliar(), torch.ones(500, dtype=torch.bool))
    found = separation.compute()
    assert found[f"{halved}_auroc"] == found["msp_auroc"]

    report = evaluate((logits, target), unfamiliar(), replicates=20)
    for table in (report.ood, report.results.roc, report.results.histograms):
        assert halved in set(table["score"])
    for text in texts(report, tmp_path):
        assert halved in text


class Halfway(Calibrator):
    """What a file of `calibration/` holds: the mean of the raw confidence and that of temperature scaling."""

    name = "halfway"
    gives_logits = False

    def _fit(self, logits, target):
        self._temperature = TemperatureScaling().fit(logits, target)

    def _calibrate(self, logits):
        scaled = self._temperature.calibrate(logits)
        raw = coins_of(logits).confidence
        return Calibrated(scaled.prediction, (raw + scaled.confidence) / 2, None)


def test_a_calibrator(monkeypatch, tmp_path):
    first, *others = calibration.CALIBRATORS
    monkeypatch.setattr(calibration, "CALIBRATORS", (first, Halfway, *others))

    methods = [Halfway.name, "temperature"]
    report = evaluate(labelled(), calibration={"held out": labelled(seed=2)}, methods=methods, replicates=20)
    table = report.calibration.set_index("method")
    assert table.index.tolist() == ["MSP", "halfway", "temperature", "BoC"]
    assert table.loc["halfway", "split"] == "held out"
    assert table.loc["halfway", "ece"] not in (table.loc["MSP", "ece"], table.loc["temperature", "ece"])
    assert "halfway" in set(report.results.reliability["method"])
    for text in texts(report, tmp_path):
        assert "halfway" in text


def read_json(path):
    """What `data/formats.py` gets: the arrays of a file by name."""
    return {name: torch.tensor(values) for name, values in json.loads(path.read_text()).items()}


def test_a_file_format(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(files, "READERS", {**files.READERS, ".json": read_json})
    logits, target = labelled()
    path = tmp_path / "test.json"
    path.write_text(json.dumps({"logits": logits.tolist(), "target": target.tolist(), "knn": target.tolist()}))

    data = logit_set(path, "test")
    assert torch.equal(data.logits, logits)
    assert torch.equal(data.target, target)
    assert list(data.columns) == ["knn"]
    assert len(evaluate(path, replicates=20).calibration) == 2
    with pytest.raises(ValueError, match=r"\.json, got '\.txt'"):
        files.read_logits(tmp_path / "test.txt")

    with pytest.raises(SystemExit) as stop:
        main(["probe", str(path), "--json"])
    assert not stop.value.code
    assert json.loads(capsys.readouterr().out)["samples"] == len(logits)


class Recorder:
    """What a file for another trainer holds: hooks by the trainer's names around a metric. It does no arithmetic."""

    def __init__(self, **options):
        self.metric = BoCMetric(**options)

    def on_batch_end(self, output, batch):
        logits = find_logits(output).detach()
        self.metric.update(logits, find_target(output, batch, logits.shape[:1]))

    def on_epoch_end(self):
        results = {f"boc_{key}": value.item() for key, value in self.metric.compute().items()}
        self.metric.reset()
        return results


def test_another_trainer():
    torch.manual_seed(0)
    model, recorder, seen = nn.Linear(4, 3), Recorder(trials=50), []
    inputs, target = torch.randn(90, 4), torch.arange(90) % 3
    for x, y in zip(inputs.split(32), target.split(32), strict=True):
        logits = model(x)
        recorder.on_batch_end({"loss": cross_entropy(logits, y), "logits": logits}, (x, y))
        seen.append(logits.detach())
    logged = recorder.on_epoch_end()
    for key, value in boc_summary(torch.cat(seen), target, trials=50).items():
        torch.testing.assert_close(logged[f"boc_{key}"], value.item(), rtol=1e-12, atol=1e-12, equal_nan=True)
