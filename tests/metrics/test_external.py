"""Agreement with torchmetrics and NumPy, where torchmetrics differs and why, and public records."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torchmetrics.classification import MulticlassCalibrationError

from tests import reference
from tests.arrays import read_arrays
from tests.metrics.cases import joined, labelled_batches
from torch_boc import BoCMetric
from torch_boc.functional import bag_of_coins, boc_summary

DATA = Path(__file__).parents[3] / "shared" / "data"
RECORDS = {"netcal_lenet5_cifar10": (0.5308, 0.11926), "netcal_wrn16_cifar100": (0.7543, 0.05832)}


def test_calibration_error_of_dominance_is_that_of_numpy():
    logits, target = joined(labelled_batches(2000))
    coins = bag_of_coins(logits)
    correct = (coins.prediction == target).numpy()
    result = boc_summary(logits, target)
    assert result["ece_dominance"].item() == pytest.approx(
        reference.calibration_error(coins.dominance.numpy(), correct)
    )
    brier = np.mean((coins.dominance.numpy() - correct) ** 2)
    assert result["brier_dominance"].item() == pytest.approx(brier)


def test_torchmetrics_puts_a_confidence_of_one_into_no_bin_of_its_own():
    """Half the samples are right, all have confidence 1, and three quarters of another bin are right.

    With bins closed on the right, 1.0 shares the last bin with 0.99. torchmetrics closes its bins on the left and gives
    1.0 a sixteenth bin, so that errors of opposite sign within the last bin no longer cancel.
    """
    sure, nearly = torch.tensor([200.0, 0.0, 0.0]), torch.tensor([0.99, 0.005, 0.005]).log()
    logits = torch.stack([sure] * 4 + [nearly] * 4)
    target = torch.tensor([0, 0, 0, 1, 0, 0, 0, 0])
    ours = boc_summary(logits, target)["ece_confidence"].item()
    theirs = MulticlassCalibrationError(num_classes=3, n_bins=15)(logits, target).item()
    assert ours == pytest.approx(abs(7 / 8 - (1 + 0.99) / 2), abs=1e-6)
    assert theirs == pytest.approx((abs(3 / 4 - 1) + abs(1 - 0.99)) / 2, abs=1e-6)


def test_torchmetrics_takes_logits_in_the_unit_interval_for_probabilities():
    """Logits of a small head may all lie in [0, 1]; then torchmetrics applies no softmax, and errs."""
    logits = torch.tensor([[0.9, 0.1, 0.2], [0.1, 0.8, 0.3]])
    target = torch.tensor([0, 1])
    confidence = logits.softmax(-1).amax(-1)
    assert boc_summary(logits, target)["ece_confidence"].item() == pytest.approx(1 - confidence.mean().item(), abs=1e-6)
    theirs = MulticlassCalibrationError(num_classes=3, n_bins=15)(logits, target).item()
    assert theirs == pytest.approx(1 - (0.9 + 0.8) / 2, abs=1e-6)


@pytest.mark.skipif(not DATA.exists(), reason="needs the public records")
@pytest.mark.parametrize("name", RECORDS)
def test_public_records(name):
    record = read_arrays(DATA / f"{name}.npz")
    logits = torch.from_numpy(record["predictions"]).clamp_min(1e-30).log()
    target = torch.from_numpy(record["ground_truth"]).long().reshape(-1)
    accuracy, error = RECORDS[name]
    metric = BoCMetric()
    for batch in zip(logits.split(512), target.split(512), strict=True):
        metric.update(*batch)
    assert metric.compute()["accuracy"].item() == pytest.approx(accuracy, abs=5e-5)
    assert boc_summary(logits[5000:], target[5000:])["ece_confidence"].item() == pytest.approx(error, abs=5e-6)
