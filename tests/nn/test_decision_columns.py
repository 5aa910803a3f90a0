"""The columns of a test and an acceptance are what these say, of any model, and their state goes with the model."""

import copy
import pickle
import warnings

import pytest
import torch
from torch import nn

from tests.inference.cases import rows_of
from tests.nn.models import linear
from torch_boc import Acceptance, BoCClassifier, BoCPredictor, BoCProbe, ConformalTest
from torch_boc.functional.table_columns import COLUMNS
from torch_boc.nn import ProbeOutput
from torch_boc.nn.decision_columns import SampleColumns

GROUPS = [None, "prediction", "confidence"]
# Groups with few held-out samples are not the point here.
pytestmark = pytest.mark.filterwarnings("ignore:nothing can be flagged", "ignore:far fewer than alpha")


def logits(rows=400, classes=5, seed=0, scale=4.0):
    return scale * torch.randn(rows, classes, generator=torch.Generator().manual_seed(seed))


def calibrated(score="log_odds", classes=5, **options):
    return ConformalTest(score, **options).calibrate(logits(600, classes, seed=9))


@pytest.mark.parametrize("groups", GROUPS)
@pytest.mark.parametrize("score", ["log_odds", "msp", "entropy", "max_logit"])
def test_the_classifier_says_what_probe_and_test_say(score, groups):
    test, x = calibrated(score, groups=groups), logits(50)
    x[3, 1] = torch.nan
    result = BoCClassifier(nn.Identity(), conformal_test=test, alpha=0.1)(x)
    assert [*result.probe] == [*ProbeOutput._fields, "p_in_distribution", "review"]
    torch.testing.assert_close([*result.probe.values()][:9], [*BoCProbe()(x)], rtol=1e-5, atol=1e-9, equal_nan=True)
    torch.testing.assert_close(result.p_in_distribution, test(x), rtol=0, atol=0, equal_nan=True)
    assert torch.equal(result.review, test.flag(x, 0.1))
    assert result.p_in_distribution[3].isnan()
    assert result.review[3]


@pytest.mark.parametrize("dim", [-1, 1])
def test_a_class_axis_in_the_middle(dim):
    """The classifier knows where the classes are, whatever the test was calibrated with."""
    x = logits(2 * 6).reshape(2, 6, 5).movedim(-1, 1).unsqueeze(-1)
    test = ConformalTest(dim=dim).calibrate(logits(300))
    result = BoCClassifier(nn.Identity(), dim=1, conformal_test=test)(x)
    assert result.p_in_distribution.shape == (2, 6, 1)
    want = ConformalTest(dim=-1).calibrate(logits(300))(x.movedim(1, -1))
    torch.testing.assert_close(result.p_in_distribution, want, rtol=0, atol=0)


def test_the_state_dict_has_both_and_the_names_of_the_model_do_not_change():
    first = BoCClassifier(linear(), conformal_test=calibrated(groups="prediction"))
    assert [name for name in first.state_dict() if name.startswith("model.")] == ["model.weight", "model.bias"]
    second = BoCClassifier(nn.Linear(3, 5), conformal_test=ConformalTest("log_odds", groups="prediction"))
    x = torch.randn(30, 3)
    with pytest.raises(ValueError, match=r"expected held-out samples .* call calibrate\(logits\) first"):
        second(x)
    second.load_state_dict(first.state_dict(), strict=True)
    torch.testing.assert_close(second(x).p_in_distribution, first(x).p_in_distribution, rtol=0, atol=0)
    second.load_state_dict(linear().state_dict(), strict=True)  # of the model alone
    assert second.model.weight.equal(linear().weight)
    with pytest.raises(RuntimeError, match="Unexpected key"):
        second.load_state_dict({"weights": torch.zeros(5, 3)})


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_copies(duplicate):
    classifier, x = BoCClassifier(linear(), conformal_test=calibrated(), alpha=0.2), torch.randn(9, 3)
    with torch.no_grad():
        result = classifier(x)
        assert torch.equal(duplicate(classifier)(x).p_in_distribution, result.p_in_distribution)
    assert torch.equal(duplicate(result).review, result.review)


def test_a_level_that_is_too_low_is_said_at_once():
    few = ConformalTest().calibrate(logits(50))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match=r"nothing can be flagged at alpha=0.01, .* samples, got 50"):
            BoCClassifier(linear(), conformal_test=few, alpha=0.01)
        BoCClassifier(linear(), conformal_test=few, alpha=0.05)
        BoCClassifier(linear(), conformal_test=ConformalTest(), alpha=0.01)  # its samples come later


@pytest.mark.parametrize("groups", GROUPS)
@pytest.mark.parametrize("score", ["log_odds", "energy", "entropy"])
@pytest.mark.parametrize("names", [COLUMNS, ("prediction", "gap"), ("energy",), ()])
def test_screened_columns_are_those_of_both(names, score, groups):
    test, x = calibrated(score, groups=groups), logits(70)
    x[2, 2] = torch.inf
    chosen = ("review", *names, "p_in_distribution")
    found = SampleColumns(chosen, trials=20, conformal_test=test, alpha=0.1)(x)
    assert tuple(found) == chosen
    want = {"p_in_distribution": test(x), "review": test.flag(x, 0.1)}
    want |= rows_of(x, trials=20, columns=names) if names else {}
    for name, column in found.items():
        torch.testing.assert_close(column, want[name], rtol=1e-7, atol=0, equal_nan=True, msg=name)


def test_p_values_never_come_from_earlier_counts():
    """A tensor of new counts may have the id and the version of one that was freed."""
    test, x = ConformalTest(), logits(20)
    samples = [logits(200, seed=seed, scale=4.0**seed) for seed in range(3)]
    for _ in range(40):
        test.calibrate(samples[0])(x)
        test.calibrate(samples[1])
        test.calibrate(samples[2])
        torch.testing.assert_close(test(x), ConformalTest().calibrate(samples[2])(x), rtol=0, atol=0)


def test_processes_with_other_classes_fail_together(monkeypatch):
    """If one process alone raised, the other would wait for it; the rest of `gathered` is tested with two processes."""
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda group: 2)
    monkeypatch.setattr(
        torch.distributed, "all_gather_object", lambda x, own, group: x.__setitem__(slice(2), [own, (7, 9)])
    )
    with pytest.raises(ValueError, match=r"expected the same number of classes in all processes, got \[5, 7\]"):
        ConformalTest().calibrate(logits(40)).all_reduced()


def test_acceptance_alongside_the_probe_and_the_test():
    z = logits(800)
    target = torch.where(z.softmax(-1).amax(-1) < 0.8, z.argmin(-1), z.argmax(-1))
    accept, test = Acceptance().calibrate(z, target), calibrated("energy")
    expected = accept.accept(logits(50, seed=3), 0.1)
    assert 0 < expected.sum() < 50
    for options in (
        {},
        {"conformal_test": test},
        {"columns": ["accepted", "gap"]},
    ):
        found = SampleColumns(acceptance=accept, max_error=0.1, **options)(logits(50, seed=3))
        assert torch.equal(found["accepted"], expected)
        result = BoCClassifier(nn.Identity(), acceptance=accept, max_error=0.1, **options)(logits(50, seed=3))
        assert torch.equal(result.accepted, expected)
        assert {*result.probe} <= {*found}
    predictor = BoCPredictor(nn.Identity(), acceptance=accept, max_error=0.1, progress=False)
    (table,) = predictor.predict([logits(50, seed=3)])
    assert torch.equal(table["accepted"], expected)
    assert predictor.settings["max_error"] == 0.1
