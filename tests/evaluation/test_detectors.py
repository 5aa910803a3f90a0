"""Detectors: equal to pytorch-ood and to their formulas, with the sign turned; and the errors."""

import sys

import numpy as np
import pytest
import torch
from pytorch_ood import detector as theirs
from torch import nn

from torch_boc.data.sets import LogitSet
from torch_boc.evaluation import evaluate
from torch_boc.evaluation.detectors import detector_scores, mahalanobis_scores, odin_scores

CLASSES = 5


def training(samples: int = 600, *, dtype: torch.dtype = torch.float64) -> LogitSet:
    """Logits around their class, correlated."""
    generator = torch.Generator().manual_seed(0)
    target = torch.arange(samples) % CLASSES
    mixing = torch.eye(CLASSES) + 0.3 * torch.randn(CLASSES, CLASSES, generator=generator)
    logits = 4 * nn.functional.one_hot(target, CLASSES) + torch.randn(samples, CLASSES, generator=generator) @ mixing
    return LogitSet(logits.to(dtype), target, name="training")


def unseen(samples: int = 200, seed: int = 1) -> torch.Tensor:
    """Logits to score, of all sizes."""
    generator = torch.Generator().manual_seed(seed)
    scale = 6 * torch.rand(samples, 1, generator=generator, dtype=torch.float64)
    return scale * torch.randn(samples, CLASSES, generator=generator, dtype=torch.float64)


def formula(train: LogitSet, logits: torch.Tensor, ridge: float = 1e-6) -> np.ndarray:
    """The definition, a distance at a time."""
    z, y, x = train.logits.double().numpy(), train.target.numpy(), logits.double().numpy()
    means = [z[y == label].mean(0) for label in np.unique(y)]
    scatter = sum(np.outer(row - z[y == label].mean(0), row - z[y == label].mean(0)) for row, label in zip(z, y))  # noqa: B905
    inverse = np.linalg.inv(scatter + ridge * np.eye(z.shape[1]))
    return np.array([-0.5 * min((row - mean) @ inverse @ (row - mean) for mean in means) for row in x])


class Network(nn.Module):
    """A small classifier whose modes matter: normalisation and dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 6, 3, padding=1), nn.BatchNorm2d(6)
        self.drop, self.head = nn.Dropout(0.5), nn.Linear(6, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The logits."""
        return 10 * self.head(self.drop(self.features(x)))

    def features(self, x: torch.Tensor) -> torch.Tensor:
        """What the last layer is given."""
        return torch.relu(self.norm(self.conv(x))).mean((2, 3))


def network(dtype: torch.dtype = torch.float64) -> nn.Module:
    torch.manual_seed(0)
    model = Network().to(dtype)
    with torch.no_grad():
        model(torch.randn(64, 3, 8, 8, dtype=dtype))  # gives the normalisation its statistics
    return model.eval()


def images(samples: int = 20, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.randn(samples, 3, 8, 8, dtype=dtype, generator=torch.Generator().manual_seed(2))


class TestMahalanobis:
    def test_is_the_formula(self):
        (scores,) = mahalanobis_scores(training(), unseen())
        assert scores.dtype == torch.float64
        np.testing.assert_allclose(scores.numpy(), formula(training(), unseen()), rtol=1e-9)

    def test_is_pytorch_ood(self):
        train = training(dtype=torch.float32)
        detector = theirs.Mahalanobis(None).fit_features(train.logits, train.target)
        expected = -detector.predict_features(unseen().float()).double()
        torch.testing.assert_close(mahalanobis_scores(train, unseen().float())[0], expected, rtol=1e-3, atol=1e-7)

    def test_blocks_are_the_whole(self, monkeypatch):
        whole = mahalanobis_scores(training(), unseen())[0]
        monkeypatch.setattr("torch_boc.core.blocks.CPU_ELEMENTS_PER_THREAD", 7 * CLASSES)
        torch.testing.assert_close(mahalanobis_scores(training(), unseen())[0], whole, rtol=1e-9, atol=1e-14)

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_centred_logits_are_measured_where_they_vary(self, dtype):
        """Logits of zero sum have a singular scatter; dropping the last class, which the others determine, has not."""

        def centre(logits: torch.Tensor) -> torch.Tensor:
            return (logits - logits.mean(1, keepdim=True)).to(dtype)

        train, logits = training(), centre(unseen())
        centred = LogitSet(centre(train.logits), train.target)
        (scores,) = mahalanobis_scores(centred, logits)
        y, z = train.target.numpy(), centred.logits[:, :-1].double().numpy()
        means = np.stack([z[y == label].mean(0) for label in range(CLASSES)])
        inverse = np.linalg.inv((z - means[y]).T @ (z - means[y]))
        away = logits[:, None, :-1].double().numpy() - means
        expected = -0.5 * np.einsum("nki,ij,nkj->nk", away, inverse, away).min(1)
        np.testing.assert_allclose(scores.numpy(), expected, rtol=1e-4)
        # A rounding error off the plane is no distance.
        torch.testing.assert_close(mahalanobis_scores(centred, logits + 1e-3)[0], scores, rtol=1e-3, atol=1e-7)

    def test_class_without_samples_attracts_nothing(self):
        train = training()
        kept = train.target != 2
        fewer = LogitSet(train.logits[kept], train.target[kept])
        np.testing.assert_allclose(mahalanobis_scores(fewer, unseen())[0].numpy(), formula(fewer, unseen()), rtol=1e-9)

    def test_errors(self):
        train = training()
        with pytest.raises(ValueError, match=r"training: expected training logits with targets, got none"):
            mahalanobis_scores(LogitSet(train.logits, name="training"), unseen())
        with pytest.raises(ValueError, match=r"expected logits of shape \(M, 5\) as in training, got \(3, 4\)"):
            mahalanobis_scores(train, torch.zeros(3, 4))
        with pytest.raises(ValueError, match=r"logits to score: expected finite logits .* got 1 of 3 rows"):
            mahalanobis_scores(train, torch.zeros(3, 5).index_fill(0, torch.tensor(1), -torch.inf))
        with pytest.raises(ValueError, match=r"expected training logits that differ within a class, got 2 rows"):
            mahalanobis_scores(LogitSet(-torch.eye(2), torch.tensor([0, 1])), torch.zeros(1, 2))


class TestODIN:
    def test_is_the_formula(self):
        model, x = network(), images().requires_grad_()
        logits = model(x) / 1000
        loss = -logits.log_softmax(1).gather(1, logits.argmax(1, keepdim=True)).sum()
        (gradient,) = torch.autograd.grad(loss, x)
        moved = (x - 0.0014 * gradient.sign()).detach()
        expected = (model(moved) / 1000).softmax(1).amax(1).detach()
        torch.testing.assert_close(odin_scores(model, [images()]), expected, rtol=1e-12, atol=0)
        # The step makes the prediction surer: a wrong sign would show here.
        assert (expected > (model(images()) / 1000).softmax(1).amax(1)).all()

    @pytest.mark.parametrize("settings", [{}, {"temperature": 10.0, "epsilon": 0.05}, {"epsilon": 0.0}])
    def test_is_pytorch_ood(self, settings):
        names = {"temperature": "temperature", "epsilon": "eps"}
        detector = theirs.ODIN(network(), **{names[key]: value for key, value in settings.items()})
        expected = -detector.predict(images())
        torch.testing.assert_close(odin_scores(network(), [images()], **settings), expected, rtol=1e-12, atol=0)

    def test_every_form_of_batches(self):
        model, x = network(), images()
        whole = odin_scores(model, x)
        assert whole.shape == (len(x),)
        target, index = torch.zeros(len(x)), torch.arange(len(x))
        for batches in (
            list(x.split(7)),
            list(zip(x.split(7), target.split(7), strict=True)),
            [[x, target, index]],
            torch.utils.data.TensorDataset(x, target),
            torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x), batch_size=6),
        ):
            torch.testing.assert_close(odin_scores(model, batches), whole, rtol=1e-9, atol=0)
        assert odin_scores(model, []).shape == (0,)

    def test_leaves_the_model_as_it_was(self):
        model = network().train()
        model.norm.eval()
        for parameter in model.parameters():
            parameter.grad = torch.ones_like(parameter)
        before = {name: value.clone() for name, value in model.state_dict().items()}
        scores = odin_scores(model, [images()])
        assert model.training
        assert model.drop.training
        assert not model.norm.training
        assert all((parameter.grad == 1).all() for parameter in model.parameters())
        for name, value in model.state_dict().items():
            torch.testing.assert_close(value, before[name], rtol=0, atol=0)
        torch.testing.assert_close(scores, odin_scores(network(), [images()]), rtol=0, atol=0)

    def test_errors(self):
        with pytest.raises(TypeError, match=r"expected model as a torch.nn.Module, got function"):
            odin_scores(lambda x: x, [images()])
        with pytest.raises(TypeError, match=r"floating-point tensors, which ODIN can perturb, got dtype torch.int64"):
            odin_scores(network(), [torch.zeros(2, 4, dtype=torch.long)])
        with pytest.raises(TypeError, match=r"got dict"):
            odin_scores(network(), [{"x": images()}])
        with pytest.raises(ValueError, match=r"expected temperature > 0 and epsilon >= 0, got 0 and 0.0014"):
            odin_scores(network(), [images()], temperature=0)
        with pytest.raises(ValueError, match=r"got 1000.0 and -0.1"):
            odin_scores(network(), [images()], epsilon=-0.1)

    def test_names_the_extra_without_pytorch_ood(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "pytorch_ood", None)  # as if it were not installed, also after it was loaded
        with pytest.raises(ImportError, match=r"ODIN needs pytorch-ood: pip install 'torch-boc\[eval\]'"):
            odin_scores(network(), [images()])


class TestDetectorScores:
    @pytest.mark.parametrize("result", [lambda x: x.amax(1), lambda x: x.amax(1).numpy(), lambda x: x.amax(1).tolist()])
    def test_callable_keeps_its_sign(self, result):
        scores = detector_scores(result, unseen())
        torch.testing.assert_close(scores, unseen().amax(1), rtol=0, atol=0)

    @pytest.mark.parametrize("name", ["Mahalanobis", "KNN", "EnergyBased", "MaxSoftmax", "TemperatureScaling"])
    def test_pytorch_ood_detectors_are_turned(self, name):
        train, logits = training(dtype=torch.float32), unseen().float()
        detector = getattr(theirs, name)(None)
        on_logits = hasattr(detector, "predict_logits")
        if detector.requires_fit:
            (detector.fit_logits if on_logits else detector.fit_features)(train.logits, train.target)
        expected = -(detector.predict_logits if on_logits else detector.predict_features)(logits).double()
        for dtype in (torch.float32, torch.float64):
            scores = detector_scores(detector, logits.to(dtype))
            torch.testing.assert_close(scores, expected, rtol=0, atol=0)

    def test_errors(self):
        logits = unseen(4)
        with pytest.raises(ValueError, match=r"<lambda>: expected scores of shape \(4,\), got \(3,\)"):
            detector_scores(lambda x: x.amax(1)[1:], logits)
        with pytest.raises(ValueError, match=r"expected scores of shape \(4,\), got \(4, 5\)"):
            detector_scores(lambda x: x, logits)
        with pytest.raises(ValueError, match=r"expected finite scores, got 2 with NaN or inf, first in row 1"):
            detector_scores(lambda x: torch.tensor([0.0, torch.nan, 1.0, torch.inf]), logits)
        with pytest.raises(ValueError, match=r"expected a fitted detector, got Mahalanobis; fit it"):
            detector_scores(theirs.Mahalanobis(None), logits)
        with pytest.raises(
            TypeError, match=r"expected a callable on logits .* got ODIN, which needs the model's inputs"
        ):
            detector_scores(theirs.ODIN(network()), logits)
        with pytest.raises(TypeError, match=r"expected a callable on logits .* got str$"):
            detector_scores("msp", logits)

    @pytest.mark.parametrize("fitted", [True, False])
    def test_a_detector_on_features_says_what_to_do_instead(self, fitted):
        """ViM's weights are of 6 features, and the logits are of 5 classes."""
        model, x = network(torch.float32), images(dtype=torch.float32)
        vim = theirs.ViM(None, 2, model.head.weight, model.head.bias)
        if fitted:
            vim.fit_features(model.features(x).detach(), torch.zeros(20))
        match = r"fitted on logits, here of shape \(4, 5\), got ViM, .*: -detector\(inputs\)}; for ODIN there"
        with pytest.raises(ValueError, match=match):
            detector_scores(vim, unseen(4))
        knn = theirs.KNN(None, k=1).fit_features(torch.randn(9, 6), torch.zeros(9))
        with pytest.raises(ValueError, match=r"got KNN, which cannot take them for its features"):
            detector_scores(knn, unseen(4))

    def test_scores_from_inputs_come_as_columns(self):
        """As the messages and the README say."""
        model, x = network(torch.float32), images(dtype=torch.float32)
        vim = theirs.ViM(model.features, 2, model.head.weight, model.head.bias)
        vim.fit_features(model.features(x).detach(), torch.zeros(20))
        sets = [{"logits": model(x).detach(), "vim": -vim(x), "odin": odin_scores(model, x)} for x in (x, 3 * x)]
        table = evaluate(*sets, replicates=20).ood.set_index("score")
        assert {"vim", "odin"} <= set(table.index)
        with pytest.raises(TypeError, match="got ODIN, which needs the model's inputs"):
            evaluate(*sets, detectors={"ODIN": theirs.ODIN(model)}, replicates=20)
