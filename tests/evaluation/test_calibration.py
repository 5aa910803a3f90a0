"""Calibration errors against NumPy, torch and public records; leaks; the reliability curve."""

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from tests.data.cases import labelled
from torch_boc.calibration import TemperatureScaling, VectorScaling
from torch_boc.evaluation import evaluate
from torch_boc.evaluation.calibration import CalibratedSamples, bin_errors, calibration_rows, chance_error
from torch_boc.evaluation.intervals import random_numbers
from torch_boc.functional import boc_summary
from torch_boc.functional.summary import calibration_error

METHODS = ["MSP", "temperature", "isotonic", "vector scaling", "BoC"]


@pytest.fixture(scope="module")
def report():
    logits, target = labelled(1500)
    return evaluate((logits[:1000], target[:1000]), calibration=(logits[1000:], target[1000:]), replicates=100)


def test_table_of_all_methods(report):
    table = report.calibration
    assert table["method"].tolist() == METHODS
    assert table["split"].tolist() == ["", *["calibration"] * 3, ""]
    assert table["temperature"].notna().tolist() == [name == "temperature" for name in METHODS]
    logits, target = labelled(1500)
    summary = boc_summary(logits[:1000], target[:1000])
    table = table.set_index("method")
    for method, kind in (("MSP", "confidence"), ("BoC", "dominance")):
        ece = "ece" if kind == "confidence" else "ece_dominance"
        assert table.loc[method, "ece"] == pytest.approx(summary[ece].item(), rel=1e-9)
        assert table.loc[method, "brier"] == pytest.approx(summary[f"brier_{kind}"].item(), rel=1e-9)
    for method in ("MSP", "isotonic", "BoC"):
        assert table.loc[method, "nll"] == pytest.approx(summary["nll"].item(), rel=1e-9)
        assert table.loc[method, "accuracy"] == pytest.approx(summary["accuracy"].item())
    for name in ("ece", "nll", "brier"):
        assert (table[f"{name}_low"] < table[name]).all()
        assert (table[f"{name}_high"] > table[name]).all()


@pytest.mark.parametrize("kind", [TemperatureScaling, VectorScaling])
def test_likelihood_and_accuracy_are_those_of_calibrated_logits(report, kind):
    logits, target = labelled(1500)
    method = kind().fit(logits[1000:], target[1000:])
    result = method.calibrate(logits[:1000])
    row = report.calibration.set_index("method").loc[method.name]
    likelihood = cross_entropy(result.logits.double(), target[:1000]).item()
    assert row["nll"] == pytest.approx(likelihood, rel=1e-7)  # its sums over the classes are in float32
    assert row["accuracy"] == (result.prediction == target[:1000]).double().mean().item()
    error = float(calibration_error(result.confidence, result.prediction == target[:1000]))
    assert row["ece"] == pytest.approx(error, rel=1e-12)


def test_the_curve_adds_up_to_the_error(report):
    curves = report.results.reliability
    for _, row in report.calibration.iterrows():
        curve = curves[(curves["method"] == row["method"]) & (curves["split"] == row["split"])]
        assert curve["samples"].sum() == 1000
        assert curve["bin_low"].tolist() == pytest.approx(np.arange(15) / 15)
        filled = curve[curve["samples"] > 0]
        error = (filled["samples"] * (filled["accuracy"] - filled["confidence"]).abs()).sum() / 1000
        assert error == pytest.approx(row["ece"])
        assert ((filled["accuracy_low"] <= filled["accuracy"]) & (filled["accuracy"] <= filled["accuracy_high"])).all()
        empty = curve[curve["samples"] == 0]
        assert empty[["confidence", "accuracy", "accuracy_low", "accuracy_high"]].isna().all(axis=None)


def test_confidences_on_the_edges_of_bins_stay_in_their_bins():
    confidence = torch.arange(0, 31, dtype=torch.float64) / 30
    correct = torch.arange(31) % 3 == 0
    row, curve = calibration_rows(CalibratedSamples(confidence, correct, confidence), 15, 1, random_numbers(0))
    assert row["ece"] == pytest.approx(calibration_error(confidence, correct))
    assert [x["samples"] for x in curve] == [3] + [2] * 14


@pytest.mark.parametrize("samples", [300, 5000])
def test_chance_error_is_that_of_perfect_confidences(samples):
    generator = torch.Generator().manual_seed(samples)
    confidence = 1 - 0.6 * torch.rand(samples, generator=generator, dtype=torch.float64) ** 3
    errors = torch.tensor(
        [calibration_error(confidence, torch.rand(samples, generator=generator) < confidence) for _ in range(600)]
    )
    mean, most = chance_error(bin_errors(CalibratedSamples(confidence, confidence > 0, confidence), 15))
    assert mean == pytest.approx(float(errors.mean()), rel=0.06)
    assert 0.92 < float((errors <= most).double().mean()) < 0.98


def test_a_split_that_cannot_be_fitted_is_left_out_alone():
    generator = torch.Generator().manual_seed(0)
    target = torch.randint(3, (800,), generator=generator)
    logits = 2 * torch.eye(3)[target] + torch.randn(800, 3, generator=generator)
    (logits, more), (target, theirs) = logits.split(400), target.split(400)
    one_class = (more[theirs == 0], theirs[theirs == 0])
    with pytest.warns(UserWarning, match="calibration split 'sorted': .*matrix scaling is left out"):
        report = evaluate(
            (logits, target),
            calibration={"sorted": one_class, "good": (more, theirs)},
            methods=["temperature", "matrix scaling"],
            replicates=20,
        )
    methods = report.calibration.groupby("split")["method"].apply(list).to_dict()
    assert "matrix scaling" not in methods["sorted"]
    assert methods["good"] == ["temperature", "matrix scaling"]


def test_the_interval_of_the_error_is_that_of_right_minus_confidence():
    """In one bin, the sure half is right and the other half wrong, so that both vary together."""
    confidence = torch.linspace(0.5, 0.95, 2000, dtype=torch.float64)
    right = confidence > 0.725
    found, _ = calibration_rows(CalibratedSamples(confidence, right, confidence), 1, 1000, np.random.default_rng(0))
    reach = 1.96 * float((right.double() - confidence).std()) / 2000**0.5
    assert found["ece_high"] - found["ece"] == pytest.approx(reach, rel=0.15)
