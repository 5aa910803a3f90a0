"""Detectors: equal to pytorch-ood and to their formulas, with the sign turned; and the errors."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from pytorch_ood import detector as theirs
from pytorch_ood.api import RequiresFittingException
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from torch_boc.data.logit_set import LogitSet
from torch_boc.evaluation.detectors import detector_scores, mahalanobis_scores, odin_scores

CLASSES = 5


def training(samples=600, *, dtype=torch.float64):
    """Logits around their class, correlated."""
    generator = torch.Generator().manual_seed(0)
    target = torch.arange(samples) % CLASSES
    mixing = torch.eye(CLASSES) + 0.3 * torch.randn(CLASSES, CLASSES, generator=generator)
    logits = 4 * nn.functional.one_hot(target, CLASSES) + torch.randn(samples, CLASSES, generator=generator) @ mixing
    return LogitSet(logits.to(dtype), target, name="training")


def unseen(samples=200):
    """Logits to score, of all sizes."""
    generator = torch.Generator().manual_seed(1)
    scale = 6 * torch.rand(samples, 1, generator=generator, dtype=torch.float64)
    return scale * torch.randn(samples, CLASSES, generator=generator, dtype=torch.float64)


def formula(train, logits, ridge=1e-6):
    """The definition, a distance at a time."""
    z, y, x = train.logits.double().numpy(), train.target.numpy(), logits.double().numpy()
    means = {label: z[y == label].mean(0) for label in np.unique(y)}
    away = z - np.stack([means[label] for label in y])
    inverse = np.linalg.inv(away.T @ away + ridge * np.eye(z.shape[1]))
    return np.array([-0.5 * min((row - mean) @ inverse @ (row - mean) for mean in means.values()) for row in x])


def network():
    """A small classifier whose modes matter: normalisation and dropout."""
    torch.manual_seed(0)
    features = nn.Conv2d(3, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()
    model = nn.Sequential(*features, nn.Dropout(0.5), nn.Linear(6, CLASSES)).double()
    with torch.no_grad():
        model[-1].weight.mul_(10)
        model(torch.randn(64, 3, 8, 8, dtype=torch.float64))  # gives the normalisation its statistics
    return model.eval()


def images(samples=20):
    return torch.randn(samples, 3, 8, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(2))


def test_mahalanobis_is_the_formula_and_pytorch_ood(monkeypatch):
    train = training()
    (scores,) = mahalanobis_scores(train, unseen())
    np.testing.assert_allclose(scores.numpy(), formula(train, unseen()), rtol=1e-9)
    monkeypatch.setattr("torch_boc.core.chunking.CPU_ELEMENTS_PER_THREAD", 7 * CLASSES)
    monkeypatch.setattr("torch_boc.evaluation.inputs.BLOCK_ELEMENTS", 7 * CLASSES)
    torch.testing.assert_close(mahalanobis_scores(train, unseen())[0], scores, rtol=1e-9, atol=1e-14)
    narrow = training(dtype=torch.float32)
    expected = -theirs.Mahalanobis(None).fit_features(narrow.logits, narrow.target).predict_features(unseen().float())
    torch.testing.assert_close(mahalanobis_scores(narrow, unseen().float())[0], expected.double(), rtol=1e-3, atol=1e-5)
    kept = train.target != 2  # a class without samples attracts nothing
    fewer = LogitSet(train.logits[kept], train.target[kept])
    np.testing.assert_allclose(mahalanobis_scores(fewer, unseen())[0].numpy(), formula(fewer, unseen()), rtol=1e-9)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_mahalanobis_of_centred_logits_measures_where_they_vary(dtype):
    """Logits of zero sum have a singular scatter; dropping the last class, which the others determine, has not."""
    train = training()
    rows, logits = ((x - x.mean(1, keepdim=True)).to(dtype) for x in (train.logits, unseen()))
    (scores,) = mahalanobis_scores(LogitSet(rows, train.target), logits)
    expected = formula(SimpleNamespace(logits=rows[:, :-1], target=train.target), logits[:, :-1], ridge=0.0)
    np.testing.assert_allclose(scores.numpy(), expected, rtol=1e-4)
    # A rounding error off the plane is no distance.
    again = mahalanobis_scores(LogitSet(rows, train.target), logits + 1e-3)[0]
    torch.testing.assert_close(again, scores, rtol=1e-3, atol=1e-7)


def test_odin_is_the_formula_and_pytorch_ood():
    model, x = network(), images().requires_grad_()
    logits = model(x) / 1000
    loss = -logits.log_softmax(1).gather(1, logits.argmax(1, keepdim=True)).sum()
    (gradient,) = torch.autograd.grad(loss, x)
    expected = (model((x - 0.0014 * gradient.sign()).detach()) / 1000).softmax(1).amax(1).detach()
    torch.testing.assert_close(odin_scores(model, [images()]), expected, rtol=1e-12, atol=0)
    # The step makes the prediction surer: a wrong sign would show here.
    assert (expected > (model(images()) / 1000).softmax(1).amax(1)).all()
    other = -theirs.ODIN(network(), temperature=10.0, eps=0.05).predict(images())
    torch.testing.assert_close(odin_scores(network(), [images()], temperature=10.0, epsilon=0.05), other)


def test_odin_takes_every_form_of_batches_and_leaves_the_model_as_it_was():
    model, x = network().train(), images()
    model[1].eval()
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with torch.inference_mode():
        whole = odin_scores(model, x)
    for batches in (list(x.split(7)), [[x, torch.zeros(len(x))]], DataLoader(TensorDataset(x), batch_size=6)):
        torch.testing.assert_close(odin_scores(model, batches), whole, rtol=1e-9, atol=0)
    assert odin_scores(model, []).shape == (0,)
    assert (model.training, model[5].training, model[1].training) == (True, True, False)
    assert all((parameter.grad == 1).all() for parameter in model.parameters())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


@pytest.mark.parametrize("name", ["Mahalanobis", "KNN", "EnergyBased"])
def test_detectors_of_pytorch_ood_are_turned(name):
    train, logits = training(dtype=torch.float32), unseen().float()
    detector = getattr(theirs, name)(None)
    on_logits = hasattr(detector, "predict_logits")
    if detector.requires_fit:
        (detector.fit_logits if on_logits else detector.fit_features)(train.logits, train.target)
    expected = -(detector.predict_logits if on_logits else detector.predict_features)(logits).double()
    torch.testing.assert_close(detector_scores(detector, logits.double()), expected, rtol=0, atol=0)


@pytest.mark.parametrize("result", [lambda x: x.amax(1), lambda x: x.amax(1).numpy(), lambda x: x.amax(1).tolist()])
def test_a_callable_keeps_its_sign(result):
    torch.testing.assert_close(detector_scores(result, unseen()), unseen().amax(1), rtol=0, atol=0)


TRAIN, ROWS, BARE = training(), torch.zeros(4, CLASSES), LogitSet(torch.zeros(4, CLASSES), name="t")
MASKED = ROWS.index_fill(0, torch.tensor(1), -torch.inf)
FEATURES = theirs.KNN(None, k=1).fit_features(torch.eye(9, 6), torch.zeros(9))
MAHALANOBIS, ODIN = theirs.Mahalanobis(None), theirs.ODIN(network())
ERRORS = {
    "no targets": (lambda: mahalanobis_scores(BARE, ROWS), ValueError, "t: expected training logits with targets"),
    "classes": (lambda: mahalanobis_scores(TRAIN, ROWS[:, :4]), ValueError, r"\(M, 5\) as in training, got \(4, 4"),
    "masked": (lambda: mahalanobis_scores(TRAIN, MASKED), ValueError, "expected finite logits .* got 1 of 4 rows"),
    "equal": (lambda: mahalanobis_scores(LogitSet(-torch.eye(2), torch.arange(2)), ROWS), ValueError, "differ within"),
    "no model": (lambda: odin_scores(lambda x: x, [images()]), TypeError, "expected model as a torch.nn.Module"),
    "integers": (lambda: odin_scores(network(), [ROWS.long()]), TypeError, "got dtype torch.int64"),
    "a dict": (lambda: odin_scores(network(), [{"x": images()}]), TypeError, "got dict"),
    "T": (lambda: odin_scores(network(), [images()], temperature=0), ValueError, "temperature > 0 .* got 0 and 0.0014"),
    "NaN": (lambda: odin_scores(network(), [images() * torch.nan]), ValueError, "ODIN: expected finite .* in row 0"),
    "too few": (lambda: detector_scores(lambda x: x.amax(1)[1:], ROWS), ValueError, r"shape \(4,\), got \(3,\)"),
    "inf": (lambda: detector_scores(lambda x: x[:, 0] + torch.inf, ROWS), ValueError, "got 4 with NaN or inf, first"),
    "words": (lambda: detector_scores(lambda x: ["a"] * 4, ROWS), TypeError, "expected 4 scores, got a list"),
    "not fitted": (lambda: detector_scores(MAHALANOBIS, ROWS), RequiresFittingException, "fit"),
    "inputs": (lambda: detector_scores(ODIN, ROWS), TypeError, "got ODIN, which needs the model's inputs"),
    "text": (lambda: detector_scores("msp", ROWS), TypeError, "expected a callable on logits .* got str$"),
    "features": (lambda: detector_scores(FEATURES, ROWS), ValueError, "features"),
    "its own": (lambda: detector_scores(lambda x: {}[0], ROWS, "mine"), KeyError, "0"),
}


@pytest.mark.parametrize("case", ERRORS)
def test_errors(case):
    call, kind, message = ERRORS[case]
    with pytest.raises(kind, match=message) as caught:
        call()
    if case == "its own":
        assert caught.value.__notes__ == ["in detector 'mine', on logits of shape (4, 5)"]
    if case in ("not fitted", "features"):
        assert caught.value.__notes__[1].startswith("a detector must be fitted before, and on logits; for one of feat")
