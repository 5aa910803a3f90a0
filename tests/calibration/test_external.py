"""Public records, against figures of an independent implementation."""

import pytest
import torch

from tests.arrays import read_arrays
from tests.calibration.cases import DATA, mean_nll
from tests.reference import calibration_error
from torch_boc.calibration import IsotonicCalibration, TemperatureScaling, Uncalibrated, VectorScaling

# Temperature fitted on the first half; calibration error of the second half before and after.
RECORDS = {
    "netcal_lenet5_cifar10": (1.3736, 0.11926, 0.02243),
    "netcal_wrn16_cifar100": (1.1099, 0.05832, 0.04358),
}
pytestmark = pytest.mark.skipif(not DATA.exists(), reason="needs the public records")


def halves(name):
    record = read_arrays(DATA / f"{name}.npz")
    logits = torch.from_numpy(record["predictions"]).clamp_min(1e-30).log()
    target = torch.from_numpy(record["ground_truth"]).long().reshape(-1)
    return (logits[:5000], target[:5000]), (logits[5000:], target[5000:])


def error_of(result, target):
    return calibration_error(result.confidence.numpy(), (result.prediction == target).numpy())


@pytest.mark.parametrize("name", RECORDS)
def test_temperature_and_calibration_error(name):
    split, (logits, target) = halves(name)
    temperature, before, after = RECORDS[name]
    scaling = TemperatureScaling().fit(*split)
    assert scaling.temperature == pytest.approx(temperature, abs=1e-4)
    assert error_of(Uncalibrated().calibrate(logits), target) == pytest.approx(before, abs=1e-5)
    assert error_of(scaling.calibrate(logits), target) == pytest.approx(after, abs=1e-5)


def test_held_out_calibration_helps():
    split, (logits, target) = halves("netcal_lenet5_cifar10")
    before = error_of(Uncalibrated().calibrate(logits), target)
    vector = VectorScaling().fit(*split).calibrate(logits)
    assert error_of(vector, target) < before / 3
    assert error_of(IsotonicCalibration().fit(*split).calibrate(logits), target) < before / 3
    assert mean_nll(vector.logits, target) < mean_nll(logits, target)
