"""Temperature scaling as a module: what survives, what is divided, and what stays."""

import copy
import io
import pickle

import pytest
import torch
from torch import nn

from tests.calibration.cases import drawn_split
from torch_boc.calibration import TemperatureScaling


@pytest.fixture(scope="module")
def scaling():
    return TemperatureScaling().fit(*drawn_split(500, temperature=1.7))


def test_forward_divides(scaling):
    logits = torch.randn(2, 3, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    torch.testing.assert_close(scaling(logits), logits / scaling.temperature, rtol=1e-14, atol=0)
    assert scaling.temperature == pytest.approx(1.7, rel=0.2)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_forward_keeps_float32_and_widens_what_is_narrower(scaling, dtype):
    logits = torch.tensor([[6e4, 1.0, -6e4]]).to(dtype)
    scaled = scaling(logits)
    assert scaled.dtype == torch.float32
    torch.testing.assert_close(scaled, logits.float() / scaling.temperature, rtol=1e-6, atol=0)


def test_temperature_one_changes_nothing(scaling):
    same = copy.deepcopy(scaling)
    same.log_temperature.zero_()
    logits, _ = drawn_split(50)
    assert torch.equal(same(logits), logits)
    assert torch.equal(same.calibrate(logits).logits, logits)


def test_predictions_stay_even_where_quotients_tie():
    logits, target = drawn_split(500, temperature=2.3)
    scaling = TemperatureScaling().fit(logits, target)
    assert torch.equal(scaling.calibrate(logits).prediction, logits.argmax(1))
    # Two neighbouring numbers, as they are in float32 above 8: some of their quotients are the same number.
    second = torch.linspace(8, 16, 4001)
    close = torch.stack([torch.zeros(4001), second, second.nextafter(torch.tensor(20.0)), *torch.zeros(2, 4001)], 1)
    scaled = scaling(close)
    assert bool((scaled[:, 1] == scaled[:, 2]).any())
    assert bool((scaling.calibrate(close).prediction == 2).all())


def test_state_dict_round_trip(scaling):
    file = io.BytesIO()
    torch.save(scaling.state_dict(), file)
    file.seek(0)
    other = TemperatureScaling()
    other.load_state_dict(torch.load(file, weights_only=True))
    assert other.temperature == scaling.temperature
    assert other.num_classes == 5
    fresh = TemperatureScaling()
    fresh.load_state_dict(TemperatureScaling().state_dict())
    with pytest.raises(RuntimeError, match="call fit"):
        fresh(torch.zeros(1, 5))


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_copies(scaling, copied):
    logits, _ = drawn_split(20)
    other = copied(scaling)
    assert other.temperature == scaling.temperature
    assert torch.equal(other(logits), scaling(logits))


@pytest.mark.parametrize("change", [nn.Module.half, nn.Module.bfloat16, nn.Module.float])
def test_narrowing_the_model_leaves_the_temperature(scaling, change):
    model = nn.Sequential(nn.Linear(5, 5), copy.deepcopy(scaling))
    change(model)
    assert model[1].log_temperature.dtype == torch.float64
    assert model[1].temperature == scaling.temperature


def test_moves_with_the_model(scaling):
    moved = nn.Sequential(copy.deepcopy(scaling)).to("meta")[0]
    assert moved.log_temperature.device.type == "meta"
    assert moved.log_temperature.dtype == torch.float64


def test_is_no_parameter_and_says_what_it_is(scaling):
    assert list(scaling.parameters()) == []
    assert repr(scaling) == f"TemperatureScaling(temperature={scaling.temperature:.4g})"
    assert repr(TemperatureScaling()) == "TemperatureScaling(not fitted)"


def test_compiles_and_has_gradients(scaling):
    logits = drawn_split(20)[0].requires_grad_()
    compiled = torch.compile(scaling, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(logits), scaling(logits))
    scaling(logits).sum().backward()
    torch.testing.assert_close(logits.grad, torch.full_like(logits, 1 / scaling.temperature))


def test_a_second_fit_replaces_the_first():
    scaling = TemperatureScaling().fit(*drawn_split(500, temperature=5.0))
    logits, target = drawn_split(400, 3, seed=4)
    scaling.fit(logits, target)
    assert scaling.num_classes == 3
    assert scaling.temperature == TemperatureScaling().fit(logits, target).temperature
