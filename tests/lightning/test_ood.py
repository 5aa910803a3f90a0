"""Out-of-distribution loaders against the first one."""

import pytest
import torch

from tests.dispatch import NoHostSync
from tests.lightning.cases import (
    LIBRARIES,
    QUIET,
    chosen,
    classifier,
    expected,
    loader,
    logits_of,
    perceptron,
    points,
    trainer,
)
from tests.metrics.test_separation import sklearn_separation
from tests.passes import count_native_calls, count_passes
from torch_boc import BoCSeparation
from torch_boc.functional import compute_scores
from torch_boc.lightning import BoCCallback
from torch_boc.lightning.loop import LoopMetrics
from torch_boc.metrics import BoCMetric

pytestmark = QUIET
KNOWN, NEAR, FAR = points(60, 1, 3.0), points(25, 2, 0.5), points(33, 3, 9.0)
SCORES = ("msp", "energy", "gap")
library = LIBRARIES["lightning"]


def separation(module, data, thresholds):
    metric = BoCSeparation(SCORES, thresholds)
    metric.update(logits_of(module, KNOWN), False)
    metric.update(logits_of(module, data), True)
    found = {key: value.item() for key, value in metric.compute().items()}
    return {key: value for key, value in found.items() if not key.endswith("_error") or value > 0.001}


@pytest.mark.parametrize("thresholds", [2**18, None])
@pytest.mark.parametrize("stage", ["val", "test"])
def test_logged_values_are_those_of_the_metrics(stage, thresholds, tmp_path):
    module = classifier(library, perceptron())
    callback = BoCCallback(ood={1: "near", 2: "far"}, keys=("gap", "accuracy"), thresholds=thresholds)
    run = trainer(library, tmp_path, callback)
    for _ in range(2):  # a second epoch starts from nothing
        loop = run.validate if stage == "val" else run.test
        loop(module, [loader(data) for data in (KNOWN, NEAR, FAR)], verbose=False)
    gap = expected(module, KNOWN)["gap"]
    assert chosen(run.callback_metrics, f"{stage}/boc/")["gap"] == pytest.approx(gap)
    for name, data in (("near", NEAR), ("far", FAR)):
        other = expected(module, data)["gap"]
        want = {"gap": other, "gap_shift": other - gap, **separation(module, data, thresholds)}
        assert chosen(run.callback_metrics, f"{stage}/boc/{name}/") == pytest.approx(want)


def logged(callback, known, near):
    """What the callback would log of logits of two loaders, beside the gap."""
    callback._begin("val", classifier(library, perceptron()), ["", "near"])
    for place, logits in enumerate((known, near)):
        for batch in logits.split(500):
            callback.on_validation_batch_end(None, None, {"logits": batch}, None, 0, place)
    values = callback._loops["val"].compute(("gap",))
    return {key.removeprefix("near/"): value.item() for key, value in values.items() if "auroc" in key or "fpr" in key}


@pytest.mark.parametrize(("scale", "shift"), [(1e-4, 0), (1e-2, 0), (1, 0), (8, 0), (1, 1000)])
def test_logged_separation_is_that_of_sklearn_whatever_the_scale(scale, shift):
    generator = torch.Generator().manual_seed(0)
    draws = scale * torch.randn(2, 2000, 10, generator=generator, dtype=torch.float64)
    known, near = 2 * draws[0] + shift, 1.5 * draws[1] + shift
    found = logged(BoCCallback(ood={1: "near"}, scores=SCORES), known, near)
    assert set(found) == {f"{name}_{what}" for name in SCORES for what in ("auroc", "fpr95")}
    for name in SCORES:
        pair = (compute_scores(logits, [name])[name].numpy() for logits in (known, near))
        assert (found[f"{name}_auroc"], found[f"{name}_fpr95"]) == pytest.approx(sklearn_separation(*pair), abs=1e-3)


def test_errors_are_logged_if_they_matter():
    """With few bins on logits of a small scale, the AUROC may be anything."""
    generator = torch.Generator().manual_seed(0)
    known, near = (scale * torch.randn(1000, 10, generator=generator) for scale in (2e-3, 1e-3))
    coarse = logged(BoCCallback(ood={1: "near"}, scores=("msp", "gap"), thresholds=4096), known, near)
    assert coarse["msp_auroc_error"] > 0.3
    assert coarse["msp_fpr95_error"] > 0.3
    far = logged(BoCCallback(ood={1: "near"}, scores=("msp", "gap"), thresholds=4096), 1e5 * known + 1e3, near)
    assert not [key for key in far if key.endswith("auroc_error")]


def test_targets_of_ood_loaders_do_not_count(tmp_path):
    """Labels of another data set may be out of range, or mean something else."""
    module = classifier(library, perceptron())
    module._step = lambda batch: {"logits": module(batch[0])}
    strange = torch.utils.data.TensorDataset(NEAR.tensors[0], NEAR.tensors[1] + 100)
    run = trainer(library, tmp_path, BoCCallback(ood={1: "near"}, keys=("gap", "accuracy", "nll")))
    run.validate(module, [loader(KNOWN), loader(strange)], verbose=False)
    assert set(chosen(run.callback_metrics, "val/boc/")) == {"gap", "accuracy", "nll"}
    assert {"gap", "gap_shift"} <= set(chosen(run.callback_metrics, "val/boc/near/"))
    assert "val/boc/near/accuracy" not in run.callback_metrics


def test_ignored_samples_count_nowhere():
    generator = torch.Generator().manual_seed(0)
    batches = [4 * torch.randn(6, 5, 9, generator=generator) for _ in range(2)]
    target = torch.randint(5, (6, 9), generator=generator)
    target[:, 6:] = -100
    loop = LoopMetrics(["", "odd"], {1}, BoCMetric(ignore_index=-100), BoCSeparation(SCORES, nan_strategy="ignore"))
    plain = LoopMetrics(["", "odd"], {1}, BoCMetric(), BoCSeparation(SCORES))
    for place, logits in enumerate(batches):
        loop.update(place, logits, target)
        plain.update(place, logits[:, :, :6], target[:, :6])
    keys = ("samples", "gap", "accuracy")
    torch.testing.assert_close(loop.compute(keys), plain.compute(keys))


def test_loader_that_gives_nothing_has_no_keys():
    loop = LoopMetrics(["", "empty"], set(), BoCMetric(), BoCSeparation())
    loop.update(0, torch.randn(3, 4), None)
    assert set(loop.compute(("gap",))) == {"gap"}


@pytest.mark.parametrize("size", [7, 700])
def test_a_loop_is_its_metrics(size):
    """With targets, without, or both."""
    generator = torch.Generator().manual_seed(size)
    batches = [3 * torch.randn(size, 5, generator=generator) for _ in range(5)]
    target = torch.randint(5, (size,), generator=generator)
    loop = LoopMetrics(["", "odd"], {1}, BoCMetric(), BoCSeparation(SCORES))
    metric, separation = BoCMetric(), BoCSeparation(SCORES)
    for number, logits in enumerate(batches):
        labels = target if number % 3 else None
        loop.update(0, logits, labels)
        metric.update(logits, labels)
        loop.update(1, logits / 2, labels)
        separation.update(logits, False)
        separation.update(logits / 2, True)
    found, expected = loop.compute(("samples", "gap", "nll", "accuracy")), metric.compute()
    for key in ("samples", "gap", "nll", "accuracy"):
        torch.testing.assert_close(found[key], expected[key], rtol=1e-12, atol=0)
    for key, value in separation.compute().items():
        torch.testing.assert_close(found[f"odd/{key}"], value, rtol=1e-12, atol=0)


def test_batches_cost_no_host_sync():
    """After the first batch, which is looked at on a CPU in case it holds probabilities."""
    callback, module = BoCCallback(ood={1: "near"}, ignore_index=-100), classifier(library, perceptron())
    callback._begin("val", module, ["", "near"])
    target = torch.zeros(20, dtype=torch.long)
    for place in (0, 1):
        callback.on_validation_batch_end(None, module, {"logits": torch.randn(20, 5)}, (None, target), 0, place)
    with NoHostSync(), torch.inference_mode():
        for batch_idx in range(1, 103):
            outputs = {"logits": torch.randn(20, 5)}
            callback.on_validation_batch_end(None, module, outputs, (None, target), batch_idx, 0)
            callback.on_validation_batch_end(None, module, outputs, (None, target), batch_idx, 1)
    assert callback._loops["val"].compute(("samples",))["samples"] == 2060


@pytest.mark.parametrize("options", [{}, {"ood": {1: "near"}}])
def test_the_first_batch_costs_none_either_without_validation(options):
    callback = BoCCallback(validate_args=False, **options)
    callback._begin("val", classifier(library, perceptron()), ["", "near"])
    with NoHostSync():
        callback.on_validation_batch_end(None, None, {"logits": torch.randn(20, 5)}, None, 0)


@pytest.mark.parametrize(("scores", "extras"), [(SCORES, False), (("gap", "entropy"), True)])
def test_a_batch_is_passed_over_once(scores, extras, monkeypatch, tmp_path):
    module, passes = classifier(library, perceptron()), count_passes(monkeypatch)
    run = trainer(library, tmp_path, BoCCallback(ood={1: "near"}, scores=scores))
    run.validate(module, [loader(KNOWN), loader(NEAR)], verbose=False)
    batches = len(loader(KNOWN)) + len(loader(NEAR))
    assert passes == [extras] * batches


@pytest.mark.parametrize("options", [{}, {"ood": {1: "near"}}])
def test_a_batch_is_one_native_pass(options, monkeypatch, tmp_path):
    module = classifier(library, perceptron())
    run, calls = trainer(library, tmp_path, BoCCallback(**options)), count_native_calls(monkeypatch)
    run.validate(module, [loader(KNOWN), loader(NEAR)], verbose=False)
    batches = len(loader(KNOWN)) + len(loader(NEAR))
    assert calls == (["evidence", "tally_evidence"] if options else ["tally"]) * batches


def test_the_callback_knows_the_old_name_of_a_score():
    with pytest.warns(FutureWarning, match="'p_value' is called 'log_p_value' now"):
        BoCCallback(ood={1: "near"}, scores=["p_value"])
