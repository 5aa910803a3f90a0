"""A test that is calibrated while the validation loop runs is the one that all logits together give."""

import math
import warnings

import pytest
import torch

from tests.dispatch import MemoryMeter, NoHostSync
from tests.lightning.cases import (
    LIBRARIES,
    QUIET,
    TRAIN,
    chosen,
    classifier,
    loader,
    logits_of,
    ours,
    perceptron,
    points,
    trainer,
)
from tests.passes import count_native_calls, count_passes
from torch_boc import BoCPredictor, ConformalTest
from torch_boc.lightning import BoCCallback
from torch_boc.lightning.loop import LoopMetrics
from torch_boc.metrics import BoCMetric, BoCSeparation

pytestmark = [*QUIET, pytest.mark.filterwarnings("ignore:nothing can be flagged")]
KNOWN, NEAR, FAR = points(61, 1, 3.0), points(25, 2, 0.5), points(33, 3, 9.0)
ALPHA = 0.1
OPTIONS = [{}, {"score": "entropy"}, {"temperature": 3.0}, {"groups": "prediction"}, {"groups": "confidence"}]
lightning = LIBRARIES["lightning"]


def share(test, logits):
    return test.flag(logits, ALPHA).double().mean().item()


def level(known, **options):
    return share(ConformalTest(**options).calibrate(known[::2]), known[1::2])


@pytest.mark.parametrize("batch", [16, 7, 1])
def test_level_power_and_the_test_itself(library, batch, tmp_path):
    module = classifier(library, perceptron())
    callback = BoCCallback(ood={1: "near", 2: "far"}, keys=("gap",), test=True, alpha=ALPHA)
    run = trainer(library, tmp_path, callback)
    run.validate(module, [loader(data, batch) for data in (KNOWN, NEAR, FAR)], verbose=False)
    known = logits_of(module, KNOWN)
    whole = ConformalTest().calibrate(known)
    assert torch.equal(callback.test.counts, whole.counts)
    assert chosen(run.callback_metrics, "val/boc/")["flagged"] == pytest.approx(level(known))
    for name, data in (("near", NEAR), ("far", FAR)):
        found = chosen(run.callback_metrics, f"val/boc/{name}/")["flagged"]
        assert found == pytest.approx(share(whole, logits_of(module, data)))
    assert chosen(run.callback_metrics, "val/boc/near/")["flagged"] > 0.3 > ALPHA


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("stage", ["val", "test"])
def test_tests_of_all_kinds(stage, options, tmp_path):
    module, test = classifier(lightning, perceptron()), ConformalTest(**options)
    callback = BoCCallback(ood={1: "near"}, test=test, alpha=ALPHA)
    run = trainer(lightning, tmp_path, callback)
    loop = run.validate if stage == "val" else run.test
    for _ in range(2):  # a second epoch starts from nothing
        loop(module, [loader(KNOWN), loader(NEAR)], verbose=False)
    known = logits_of(module, KNOWN)
    whole = ConformalTest(**options).calibrate(known)
    assert chosen(run.callback_metrics, f"{stage}/boc/")["flagged"] == pytest.approx(level(known, **options))
    near = chosen(run.callback_metrics, f"{stage}/boc/near/")["flagged"]
    assert near == pytest.approx(share(whole, logits_of(module, NEAR)))
    assert not test.calibrated
    assert callback.test.calibrated == (stage == "val"), "test samples are for testing"


def test_after_fit_the_test_is_that_of_the_last_epoch_and_ready_for_use(library, tmp_path):
    module = classifier(library, perceptron())
    callback = BoCCallback(test=ConformalTest("msp"), alpha=ALPHA)
    trainer(library, tmp_path, callback, max_epochs=3).fit(module, loader(TRAIN), loader(KNOWN))
    want = ConformalTest("msp").calibrate(logits_of(module, KNOWN))
    assert torch.equal(callback.test.counts, want.counts)
    assert not callback.test.counts.is_inference()
    callback.test.update(logits_of(module, NEAR))  # an ordinary test, which can be changed
    restored = ConformalTest("msp")
    restored.load_state_dict(callback.test.state_dict())
    table = next(iter(BoCPredictor(module.model, test=restored, progress=False).predict(FAR.tensors[0])))
    torch.testing.assert_close(table["p_in_distribution"], callback.test(logits_of(module, FAR)))


def test_checkpoints_keep_the_test_of_their_weights(library, tmp_path):
    module = classifier(library, perceptron(), rate=0.5)
    keep = library.callbacks.ModelCheckpoint(tmp_path, filename="{epoch}", save_top_k=-1, monitor="val/boc/nll")
    callbacks = (BoCCallback(test=True, alpha=ALPHA), BoCCallback(test=ConformalTest("gap"), prefix="gap", alpha=ALPHA))
    run = trainer(library, tmp_path, *callbacks, keep, max_epochs=2, enable_checkpointing=True)
    run.fit(module, loader(TRAIN), loader(KNOWN))
    for epoch in range(2):
        saved = torch.load(tmp_path / f"epoch={epoch}.ckpt", weights_only=True)
        module.load_state_dict(saved["state_dict"])
        for callback, score in zip(callbacks, ("log_odds", "gap"), strict=True):
            test = ConformalTest(score)
            test.load_state_dict(saved["callbacks"][callback.state_key]["test"])
            assert torch.equal(test.counts, ConformalTest(score).calibrate(logits_of(module, KNOWN)).counts)
    again = BoCCallback(test=True, alpha=ALPHA)
    again.load_state_dict(saved["callbacks"][again.state_key])
    assert torch.equal(again.test.counts, callbacks[0].test.counts)
    assert BoCCallback().state_dict() == BoCCallback(test=True).state_dict() == {}
    with pytest.raises((ValueError, RuntimeError), match=r"more than one stateful callback of type `BoCCallback`"):
        trainer(library, tmp_path, again, BoCCallback(test=True))


def test_the_sanity_check_calibrates_nothing(tmp_path):
    class Stop(lightning.Callback):
        def on_train_start(self, trainer, module):
            raise KeyboardInterrupt

    callback = BoCCallback(test=True, alpha=ALPHA)
    run = trainer(lightning, tmp_path, callback, Stop(), num_sanity_val_steps=2)
    with pytest.raises((KeyboardInterrupt, SystemExit)):
        run.fit(classifier(lightning, perceptron()), loader(TRAIN), loader(KNOWN))
    assert not callback.test.calibrated


def test_pixels_of_a_picture_stay_together():
    generator = torch.Generator().manual_seed(0)
    pictures = 4 * torch.randn(9, 5, 4, 3, generator=generator)
    target = torch.randint(5, (9, 4, 3), generator=generator)
    target[:, 0] = -100
    for options in ({}, {"temperature": 2.0}):
        how = {"test": ConformalTest(**options), "alpha": ALPHA}
        loop = LoopMetrics([""], set(), BoCMetric(ignore_index=-100), BoCSeparation(), **how)
        for start in range(0, 9, 2):
            loop.update(0, pictures[start : start + 2], target[start : start + 2])
        rows = pictures[:, :, 1:].movedim(1, -1)
        even = ConformalTest(**options).calibrate(rows[::2])
        assert loop.compute(("gap",))["flagged"] == pytest.approx(share(even, rows[1::2]))
        assert torch.equal(loop.test.counts, ConformalTest(**options).calibrate(rows).counts)


def test_rows_without_a_score_are_flagged():
    known, near = 4 * torch.randn(200, 5), torch.randn(40, 5)
    near[::4] = torch.nan
    metric, separation = (kind(nan_strategy="ignore") for kind in (BoCMetric, BoCSeparation))
    loop = LoopMetrics(["", "near"], {1}, metric, separation, test=ConformalTest(), alpha=ALPHA)
    loop.update(0, known, None)
    loop.update(1, near, None)
    assert loop.compute(("gap",))["near/flagged"] == pytest.approx(share(ConformalTest().calibrate(known), near))


def test_the_number_of_flips_of_the_metric_is_not_that_of_the_test():
    """A test scores samples in the same way wherever it is calibrated."""
    known = 2 * torch.randn(200, 5, generator=torch.Generator().manual_seed(0))
    how = {"test": ConformalTest("log_p_value"), "alpha": ALPHA}
    loop = LoopMetrics([""], set(), BoCMetric(trials=7), BoCSeparation(), **how)
    loop.update(0, known, None)
    loop.compute(("gap",))
    assert torch.equal(loop.test.counts, ConformalTest("log_p_value").calibrate(known).counts)


def test_a_further_loader_has_its_share_too(tmp_path):
    module = classifier(lightning, perceptron())
    run = trainer(lightning, tmp_path, BoCCallback(test=True, alpha=ALPHA, keys=("gap",)))
    run.validate(module, [loader(KNOWN), loader(NEAR)], verbose=False)
    whole = ConformalTest().calibrate(logits_of(module, KNOWN))
    found = chosen(run.callback_metrics, "val/boc/dataloader_idx_1/")
    assert set(found) == {"gap", "flagged"}
    assert found["flagged"] == pytest.approx(share(whole, logits_of(module, NEAR)))


@pytest.mark.parametrize("first", [0, 1])
def test_skipped_batches_are_left_out(first, tmp_path):
    """Also the first: which half a sample is in depends on the samples that were read."""
    module, calls = classifier(lightning, perceptron()), []

    def logits(outputs, batch, module):
        calls.append(batch)
        if len(calls) - 1 == first:
            raise KeyError("heatmap")
        return outputs["logits"], batch[1]

    callback = BoCCallback(logits=logits, test=True, alpha=ALPHA, keys=("gap",))
    run = trainer(lightning, tmp_path, callback)
    with pytest.warns(UserWarning, match="goes on without a batch of val"):
        run.validate(module, loader(KNOWN), verbose=False)
    known = logits_of(module, KNOWN)
    known = torch.cat([known[: 16 * first], known[16 * (first + 1) :]])
    assert torch.equal(callback.test.counts, ConformalTest().calibrate(known).counts)
    assert run.callback_metrics["val/boc/flagged"] == pytest.approx(level(known))


def test_too_few_samples_are_said_once_and_have_no_value(tmp_path):
    """Of 61 samples, 31 are in the first half: at 2 % all of them can flag a sample, and a half cannot."""
    module = classifier(lightning, perceptron())
    run = trainer(lightning, tmp_path, BoCCallback(ood={1: "near"}, test=True, alpha=0.02, keys=("gap",)))
    with warnings.catch_warnings(record=True, action="always") as said:
        for _ in range(2):
            run.validate(module, [loader(KNOWN), loader(NEAR)], verbose=False)
    (message,) = ours(said)
    assert "expected enough held-out samples to flag one at alpha=0.02, got 31" in message
    assert "val/boc/flagged" not in run.callback_metrics
    assert "val/boc/near/flagged" in run.callback_metrics


def test_an_epoch_without_values_leaves_no_earlier_test(tmp_path):
    module = classifier(lightning, perceptron())
    callback = BoCCallback(test=True, alpha=ALPHA)
    run = trainer(lightning, tmp_path, callback)
    run.validate(module, loader(KNOWN), verbose=False)
    assert callback.test.calibrated
    module.validation_step = lambda batch, batch_idx: None
    with pytest.warns(UserWarning, match="goes on without"):
        run.validate(module, loader(KNOWN), verbose=False)
    assert not callback.test.calibrated
    assert math.isnan(run.callback_metrics["val/boc/flagged"])


def test_bad_arguments():
    with pytest.raises(TypeError, match=r"expected test as True, False or a torch_boc.ConformalTest, got str"):
        BoCCallback(test="log_odds")
    with pytest.raises(ValueError, match=r"expected alpha in \(0, 1\), got 0"):
        BoCCallback(test=True, alpha=0)
    assert BoCCallback(alpha=0).test is BoCCallback(test=False).test is None
    callback = BoCCallback(test=ConformalTest("gap").calibrate(torch.randn(9, 4)))
    assert not callback.test.calibrated
    with pytest.raises(ValueError, match="expected the state of a test with score='gap'"):
        callback.load_state_dict({"test": ConformalTest().calibrate(torch.randn(9, 4)).state_dict()})


@pytest.mark.parametrize("options", OPTIONS)
def test_batches_cost_no_host_sync_and_no_memory(options):
    callback = BoCCallback(ood={1: "near"}, test=ConformalTest(**options), thresholds=4096)
    module = classifier(lightning, perceptron())
    callback._begin("val", module, ["", "near"])

    def step(place):
        callback.on_validation_batch_end(None, module, {"logits": torch.randn(20, 5)}, None, 0, place)

    for place in (0, 1):
        step(place)
    with NoHostSync(), torch.inference_mode():
        for _ in range(20):
            step(0)
            step(1)
    with MemoryMeter() as meter:
        step(0)
        before = meter.live
        for _ in range(20):
            step(0)
            step(1)
        assert meter.live <= before
    assert callback._loops["val"].compute(("samples",))["samples"] == 20 * 42


@pytest.mark.parametrize(("options", "extras"), [({}, False), ({"test": ConformalTest("entropy")}, True)])
def test_a_batch_is_passed_over_once(options, extras, monkeypatch, tmp_path):
    module = classifier(lightning, perceptron())
    callback = BoCCallback(ood={1: "near"}, **{"test": True, "alpha": ALPHA} | options)
    calls = count_native_calls(monkeypatch)
    trainer(lightning, tmp_path, callback).validate(module, [loader(KNOWN), loader(NEAR)], verbose=False)
    assert calls == ["evidence", "tally_evidence"] * (len(loader(KNOWN)) + len(loader(NEAR)))
    passes = count_passes(monkeypatch)
    trainer(lightning, tmp_path, callback).validate(module, [loader(KNOWN), loader(NEAR)], verbose=False)
    assert passes == [extras] * (len(loader(KNOWN)) + len(loader(NEAR)))
