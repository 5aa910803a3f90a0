"""The metrics of a loop are those of all logits together, and a batch that cannot be read is said and left out."""

import pytest
import torch
from torch.utils.data import TensorDataset

from tests.dispatch import MemoryMeter, NoHostSync
from tests.lightning.cases import (
    FAR,
    KNOWN,
    NEAR,
    QUIET,
    SAID,
    TRAIN,
    VAL,
    Classifier,
    chosen,
    expected,
    lightning,
    loader,
    logits_of,
    ours,
    trainer,
    validated,
)
from tests.passes import count_passes
from torch_boc import Acceptance, BoCMetric, BoCPredictor, BoCSeparation, ConformalTest
from torch_boc.functional.checks import ProbabilityCheck
from torch_boc.lightning import BoCCallback
from torch_boc.lightning.loader_metrics import LoopConfig, LoopMetrics
from torch_boc.lightning.logit_source import LogitSource
from torch_boc.metrics.error_policy import ErrorPolicy

pytestmark = [*QUIET, pytest.mark.filterwarnings("ignore:nothing can be flagged")]
SCORES = ("msp", "energy", "gap")
ALPHA = 0.1
OPTIONS = [{}, {"score": "entropy"}, {"groups": "prediction"}, {"groups": "confidence"}]


def loop_of(metric=None, separation=None, **options):
    probes = LoopConfig(metric or BoCMetric(), separation or BoCSeparation(SCORES), **{"alpha": ALPHA} | options)
    return LoopMetrics("val", ["", ""], {1: "near"}, probes)


def random(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def share(test, logits):
    return test.flag(logits, ALPHA).double().mean().item()


def level(known, **options):
    return share(ConformalTest(**options).calibrate(known[::2]), known[1::2])


class TestSeparation:
    @pytest.mark.filterwarnings("ignore:.* the scores are counted in bins")
    @pytest.mark.parametrize("scale", [1e-6, 100.0])
    def test_errors_of_bins_are_logged_if_they_matter(self, scale):
        """In bins, the AUROC of logits of a tiny scale may be anything."""
        loop = loop_of(separation=BoCSeparation(("msp",), exact_up_to=0))
        loop.loaders[0].update(2 * scale * random(1000, 10), None)
        loop.loaders[1].update(scale * random(1000, 10, seed=1), None)
        assert (loop.compute(("gap",)).get("near/msp_auroc_error", 0) > 0.3) == (scale < 1)

    def test_ignored_samples_and_targets_of_other_classes_count_nowhere(self):
        target = torch.arange(54).reshape(6, 9) % 5
        target[:, 6:] = -100
        loop, plain = (loop_of(BoCMetric(ignore_index=index, dim=-1)) for index in (-100, None))
        for place in (0, 1):
            logits, labels = 4 * random(6, 9, 5, seed=place), torch.where(target < 0, target, target + 100 * place)
            loop.loaders[place].update(logits, labels)
            plain.loaders[place].update(logits[:, :6], None if place else target[:, :6])
        keys = ("samples", "gap", "accuracy")
        torch.testing.assert_close(loop.compute(keys), plain.compute(keys))

    def test_a_loader_may_use_the_memory_of_its_targets_again(self):
        loop, target = loop_of(), torch.zeros(16, dtype=torch.long)
        for batch in range(5):
            target.fill_(batch)
            loop.loaders[0].update(torch.eye(5)[target] * 4, target)
        found = loop.compute(("accuracy",))
        assert found == {"accuracy": 1}  # and a loader that gives nothing has no keys


class TestConformalTest:
    @pytest.mark.parametrize(("options", "batch"), [*zip(OPTIONS, (16, 7, 1, 16), strict=True)])
    def test_level_power_and_the_test_itself(self, options, batch, tmp_path):
        module, test = Classifier(), ConformalTest(**options)
        callback = BoCCallback(ood={1: "near"}, conformal_test=test, alpha=ALPHA)
        run = trainer(tmp_path, callback)
        known = logits_of(module, KNOWN)
        whole = ConformalTest(**options).calibrate(known)
        with pytest.warns(UserWarning, match=r"skips `test/boc/flagged`: the test has no held-out samples; call tr"):
            run.test(module, [loader(FAR), loader(NEAR)], verbose=False)
        assert not callback.conformal_test.calibrated, "test samples are for testing"
        assert "test/boc/flagged" not in run.callback_metrics
        for stage, first, flagged in (
            ("val", KNOWN, level(known, **options)),
            ("test", FAR, share(whole, logits_of(module, FAR))),  # what the test in service flags
            ("val", KNOWN, level(known, **options)),  # a second epoch starts from nothing
        ):
            loop = run.validate if stage == "val" else run.test
            loop(module, [loader(data, batch) for data in (first, NEAR, FAR)], verbose=False)
            assert chosen(run.callback_metrics, f"{stage}/boc/")["flagged"] == pytest.approx(flagged)
            for name, data in (("near", NEAR), ("dataloader_idx_2", FAR)):
                power = run.callback_metrics[f"{stage}/boc/{name}/flagged"].item()
                assert power == pytest.approx(share(whole, logits_of(module, data)))
            assert torch.equal(callback.conformal_test.counts, whole.counts)
        assert not test.calibrated

    @pytest.mark.parametrize("batch", [16, 7])
    def test_acceptance_of_odd_samples_by_the_even_ones(self, batch, tmp_path):
        module, callback = Classifier(), BoCCallback(ood={1: "near"}, max_error=0.4)
        run = trainer(tmp_path, callback)
        known = logits_of(module, KNOWN)
        target = torch.where(torch.arange(len(known)) % 9 == 0, known.argmin(-1), known.argmax(-1))
        labelled = TensorDataset(KNOWN.tensors[0], target)
        run.validate(module, [loader(labelled, batch), loader(NEAR)], verbose=False)
        even = Acceptance().calibrate(known[::2], target[::2])
        expected = even.accept(known[1::2], 0.4).double().mean().item()
        assert run.callback_metrics["val/boc/accepted"].item() == pytest.approx(expected)
        assert expected > 0
        assert "val/boc/near/accepted" not in run.callback_metrics
        alone = trainer(tmp_path, BoCCallback(max_error=0.4))
        alone.validate(module, loader(labelled, batch), verbose=False)
        assert alone.callback_metrics["val/boc/accepted"].item() == pytest.approx(expected)
        whole = Acceptance().calibrate(known, target)
        assert torch.equal(callback.acceptance.counts, whole.counts)
        loaded = BoCCallback(max_error=0.4)
        loaded.load_state_dict(callback.state_dict())
        assert torch.equal(loaded.acceptance.counts, whole.counts)

    def test_checkpoints_keep_the_test_of_their_weights_and_it_is_ready_for_use(self, tmp_path):
        module = Classifier(rate=0.5)
        keep = lightning.callbacks.ModelCheckpoint(tmp_path, filename="{epoch}", save_top_k=-1, monitor="val/boc/nll")
        tests = {"boc": ConformalTest(), "gap": ConformalTest("gap")}
        callbacks = [BoCCallback(conformal_test=test, prefix=prefix, alpha=ALPHA) for prefix, test in tests.items()]
        run = trainer(tmp_path, *callbacks, keep, max_epochs=2, enable_checkpointing=True)
        run.fit(module, loader(TRAIN), loader(KNOWN))
        for epoch in range(2):
            saved = torch.load(tmp_path / f"epoch={epoch}.ckpt", weights_only=True)
            module.load_state_dict(saved["state_dict"])
            for callback, score in zip(callbacks, ("gen", "gap"), strict=True):
                test = ConformalTest(score)
                test.load_state_dict(saved["callbacks"][callback.state_key]["conformal_test"])
                assert torch.equal(test.counts, ConformalTest(score).calibrate(logits_of(module, KNOWN)).counts)
        again = BoCCallback(conformal_test=True, alpha=ALPHA)
        again.load_state_dict(saved["callbacks"][again.state_key])
        assert torch.equal(again.conformal_test.counts, callbacks[0].conformal_test.counts)
        assert BoCCallback().state_dict() == BoCCallback(conformal_test=True).state_dict() == {}
        table = next(
            iter(
                BoCPredictor(module.model, conformal_test=again.conformal_test, progress=False).predict(FAR.tensors[0])
            )
        )
        torch.testing.assert_close(table["p_in_distribution"], again.conformal_test(logits_of(module, FAR)))
        callbacks[0].conformal_test.update(logits_of(module, NEAR))  # an ordinary test, which can be changed

    def test_pixels_of_a_picture_stay_together(self):
        pictures, target = 4 * random(9, 4, 3, 5), torch.zeros(9, 4, 3, dtype=torch.long)
        target[:, 0] = -100
        loop = loop_of(BoCMetric(ignore_index=-100, dim=-1), blank_test=ConformalTest())
        for start in range(0, 9, 2):
            loop.loaders[0].update(pictures[start : start + 2], target[start : start + 2])
        rows = pictures[:, 1:]
        assert loop.compute(("gap",))["flagged"] == pytest.approx(level(rows, dim=-1))
        assert torch.equal(loop.test.counts, ConformalTest(dim=-1).calibrate(rows).counts)

    def test_rows_without_a_score_are_flagged_and_flips_are_those_of_the_test(self):
        known, near, test = 4 * random(200, 5), random(40, 5, seed=1), ConformalTest("log_p_value")
        near[::4] = torch.nan
        metrics = (BoCMetric(trials=7, nan_strategy="ignore"), BoCSeparation(nan_strategy="ignore"))
        loop = loop_of(*metrics, blank_test=test)
        loop.loaders[0].update(known, None)
        loop.loaders[1].update(near, None)
        found = loop.compute(("gap",))["near/flagged"]
        assert found == pytest.approx(share(ConformalTest("log_p_value").calibrate(known), near))

    def test_too_few_samples_are_said_once_and_have_no_value(self, tmp_path):
        """Of 61 samples, 31 are in the first half: at 2 % all of them can flag a sample, and a half cannot."""
        callback = BoCCallback(ood={1: "near"}, conformal_test=True, alpha=0.02, keys=("gap",))
        for _ in range(2):  # in each run
            run = trainer(tmp_path, callback, max_epochs=2)
            with pytest.warns(UserWarning, match="enough held-out samples to flag one at alpha=0.02, got 31") as said:
                run.fit(Classifier(), loader(TRAIN), [loader(KNOWN), loader(NEAR)])
            assert len(ours(said)) == 1
            assert run.callback_metrics["val/boc/flagged"].isnan()
            assert run.callback_metrics["val/boc/near/flagged"] > 0

    def test_arguments(self):
        with pytest.raises(
            TypeError, match=r"expected conformal_test as True, False or a torch_boc.ConformalTest, got str"
        ):
            BoCCallback(conformal_test="log_odds")
        assert BoCCallback(alpha=0).conformal_test is BoCCallback(conformal_test=False).conformal_test is None
        callback = BoCCallback(conformal_test=ConformalTest("gap").calibrate(torch.randn(9, 4)))
        assert not callback.conformal_test.calibrated
        with pytest.raises(ValueError, match=r"with score='gap'.*with these arguments"):
            callback.load_state_dict({"conformal_test": ConformalTest().calibrate(torch.randn(9, 4)).state_dict()})


@pytest.mark.filterwarnings("ignore:.* the scores are counted in bins")
@pytest.mark.parametrize("options", [None, *OPTIONS])
def test_batches_cost_no_host_sync_and_no_memory(options):
    """After the first batch, which is looked at on a CPU in case it holds probabilities."""
    test = None if options is None else ConformalTest(**options)
    loop, source, module = (
        loop_of(separation=BoCSeparation(SCORES, exact_up_to=10), blank_test=test),
        LogitSource(),
        Classifier(),
    )
    target = torch.zeros(20, dtype=torch.long)

    def step():
        for part in loop.loaders:
            part.add(source, {"logits": torch.randn(20, 5)}, (None, target), module)

    step()
    with NoHostSync(), torch.inference_mode():
        for _ in range(20):
            step()
    with MemoryMeter() as meter:
        step()
        before = meter.live
        for _ in range(20):
            step()
        assert meter.live <= before
    assert loop.compute(("samples",))["samples"] == 20 * 42


def test_probabilities_that_a_gpu_finds_late_are_an_error_at_the_sanity_check(tmp_path, monkeypatch):
    """There `update` does not wait for the device."""
    monkeypatch.setattr(ProbabilityCheck, "check", lambda self, logits, dim=-1: setattr(self, "found", torch.tensor(1)))
    run = trainer(tmp_path, BoCCallback())
    with pytest.raises(TypeError, match="no logits of val: expected logits or log-probabilities, got probabilities"):
        run.fit(Classifier(), loader(TRAIN), loader(VAL))
    assert run.global_step == 0


@pytest.mark.parametrize(
    ("options", "extras"),
    [
        ({}, False),
        ({"ood": {1: "near"}, "scores": SCORES}, False),
        ({"ood": {1: "near"}, "scores": ("gap", "entropy")}, True),
        ({"conformal_test": True, "alpha": ALPHA}, False),
        ({"conformal_test": ConformalTest("entropy"), "alpha": ALPHA}, True),
    ],
)
def test_a_batch_is_passed_over_at_most_once(options, extras, monkeypatch, tmp_path):
    passes = count_passes(monkeypatch)
    validated(tmp_path, Classifier(), [loader(KNOWN), loader(NEAR)], **options)
    assert {*passes} == {extras}
    assert len(passes) <= len(loader(KNOWN)) + len(loader(NEAR))


class TestProblems:
    @pytest.mark.parametrize("first", [0, 1])
    def test_values_beside_skipped_batches_are_those_of_the_others(self, first, tmp_path):
        """Also if the first is skipped: which half of the test a sample is in depends on what was read."""
        module, calls, seen = Classifier(rate=0.0), [], []

        def failing(outputs, batch, module):
            calls.append(batch)
            if len(calls) == first + 1:
                raise KeyError("heatmap")
            return outputs["logits"], batch[1]

        module.on_validation_end = lambda: seen.append(chosen(run.callback_metrics, "val/boc/"))
        callback = BoCCallback(logits=failing, keys=("samples", "gap"), conformal_test=True, alpha=ALPHA)
        run = trainer(tmp_path, callback, max_epochs=2, num_sanity_val_steps=0)
        with pytest.warns(UserWarning, match=f"{SAID} a batch of val: KeyError: 'heatmap'") as said:
            run.fit(module, loader(TRAIN), loader(VAL))
        assert len(ours(said)) == 1
        rest = [place for place in range(37) if place // 16 != first]
        parts = (TensorDataset(*(x[rest] for x in VAL.tensors)), VAL)
        for found, data, skipped in zip(seen, parts, (1, 0), strict=True):
            more = {"flagged": level(logits_of(module, data)), "skipped_batches": skipped}
            assert found == pytest.approx(expected(module, data, ("samples", "gap")) | more)

    def test_interruptions_pass(self):
        with pytest.raises(KeyboardInterrupt), ErrorPolicy("warn").tolerated("a batch"):
            raise KeyboardInterrupt
