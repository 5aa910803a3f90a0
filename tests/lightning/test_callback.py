"""What the callback logs is what `BoCMetric` says of the same logits, in every loop."""

import math

import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch.utils.data import TensorDataset

from tests.lightning.cases import (
    FAR,
    KNOWN,
    NEAR,
    QUIET,
    TRAIN,
    VAL,
    Classifier,
    chosen,
    csv_rows,
    expected,
    lightning,
    loader,
    trainer,
    validated,
)
from torch_boc import bag_of_coins
from torch_boc.functional.summary import CLASSWISE, DEFAULT_KEYS, RISK_KEYS
from torch_boc.lightning import BoCCallback

pytestmark = QUIET


def three():
    return {"cifar": loader(KNOWN), "svhn": loader(NEAR), "dtd": loader(FAR)}


def test_loggers_monitors_and_checkpoints_see_each_epoch(tmp_path):
    course = []

    class Spy(lightning.Callback):
        def on_sanity_check_end(self, trainer, pl_module):
            assert not trainer.callback_metrics

        def on_validation_end(self, trainer, pl_module):
            if not trainer.sanity_checking:
                course.append(trainer.callback_metrics["val/boc/gap"].item())

    keep = lightning.callbacks.ModelCheckpoint(
        tmp_path, monitor="val/boc/gap", save_top_k=-1, filename="{epoch}", auto_insert_metric_name=False
    )
    stop = lightning.callbacks.EarlyStopping("val/boc/gap", patience=1, min_delta=10.0)  # nothing improves by that much
    loggers = [lightning.loggers.CSVLogger(tmp_path / "csv"), lightning.loggers.TensorBoardLogger(tmp_path / "board")]
    module = Classifier(rate=0.5)
    options = {"max_epochs": 5, "enable_checkpointing": True, "logger": loggers, "log_every_n_steps": 1}
    run = trainer(tmp_path, BoCCallback(), stop, Spy(), keep, **options)
    run.fit(module, loader(TRAIN), loader(VAL))
    want = expected(module, VAL, DEFAULT_KEYS)
    assert chosen(run.callback_metrics, "val/boc/") == pytest.approx(want, rel=1e-6)
    rows = csv_rows(tmp_path, "val/boc/gap")
    assert [float(row["val/boc/gap"]) for row in rows] == pytest.approx(course, abs=0)
    assert chosen(rows[-1], "val/boc/") == pytest.approx(want, rel=1e-6)
    assert len(set(course)) == 2 == run.current_epoch
    assert [keep.best_k_models[str(tmp_path / f"{epoch}.ckpt")].item() for epoch in (0, 1)] == course
    saved = torch.load(tmp_path / "1.ckpt", weights_only=False)
    assert saved["state_dict"].keys() == module.state_dict().keys()
    assert not any("BoCCallback" in key for key in saved["callbacks"])
    board = EventAccumulator(str(next((tmp_path / "board").rglob("events.*")).parent))
    board.Reload()
    assert board.Scalars("val/boc/nll")[-1].value == pytest.approx(want["nll"], rel=1e-5)


@pytest.mark.parametrize("stage", ["validate", "test"])
def test_other_loops_and_samples_without_targets(stage, tmp_path):
    module, prefix = Classifier(), "test/boc/" if stage == "test" else "val/boc/"
    run = trainer(tmp_path, BoCCallback(trials=50, alpha=0.2, bins=7))
    getattr(run, stage)(module, loader(VAL), verbose=False)
    want = expected(module, VAL, DEFAULT_KEYS, trials=50, alpha=0.2, bins=7)
    assert chosen(run.callback_metrics, prefix) == pytest.approx(want)
    module.validation_step = module.test_step = lambda batch, batch_idx: module(batch[0])
    bare = loader(TensorDataset(VAL.tensors[0]))
    for keys in (None, ("nll", *DEFAULT_KEYS[3:])):
        run = trainer(tmp_path, BoCCallback(trials=50, alpha=0.2, keys=keys))
        with pytest.warns(
            UserWarning, match=rf"skips .*nll.* of {prefix[:3]}.*: no batch has a target; give `keys` without"
        ):
            getattr(run, stage)(module, bare, verbose=False)
        assert chosen(run.callback_metrics, prefix) == pytest.approx({key: want[key] for key in DEFAULT_KEYS[3:]})
        assert (f"{prefix}nll" in run.callback_metrics) == (keys is not None)


@pytest.mark.parametrize("options", [{}, {"conformal_test": True, "ood": {1: "svhn"}}], ids=["alone", "compared"])
def test_every_key_of_the_metric_can_be_asked(tmp_path, options):
    module, keys = Classifier(), ("gap", *RISK_KEYS, CLASSWISE)
    loaders = [loader(VAL), loader(NEAR)] if options else loader(VAL)
    found = chosen(validated(tmp_path, module, loaders, keys=keys, **options), "val/boc/")
    assert {key: found[key] for key in keys} == pytest.approx(expected(module, VAL, keys), rel=1e-6)


def test_training_steps(tmp_path):
    module = Classifier(rate=0.0)
    callback = BoCCallback(every_n_train_steps=2, keys=("samples", "gap", "nll"))
    options = {"logger": lightning.loggers.CSVLogger(tmp_path), "log_every_n_steps": 1, "max_epochs": 2}
    trainer(tmp_path, callback, **options).fit(module, loader(TRAIN), loader(VAL))
    rows = csv_rows(tmp_path, "train/boc/gap")
    assert [row["step"] for row in rows] == ["1", "3", "5"]  # none is repeated under another step
    for row, batch in zip(rows, [TRAIN.tensors[0].split(16)[place] for place in (1, 0, 2)], strict=True):
        assert float(row["train/boc/gap"]) == pytest.approx(bag_of_coins(module(batch)).gap.mean().item())
        assert float(row["train/boc/samples"]) == 16
        assert float(row["train/boc/nll"]) > 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"keys": ("gap", "gapp")}, "expected keys as a list of names among samples, .*got .*gapp"),
        ({"every_n_train_steps": 0}, "expected every_n_train_steps"),
        ({"keys": ()}, "expected keys as a list of names among samples"),
        ({"conformal_test": True, "alpha": 0}, r"expected alpha in \(0, 1\), got 0"),
        ({"on_error": "ignore"}, "expected on_error among warn, raise, got 'ignore'"),
        *(({"ood": x}, "expected ood as .* different names") for x in ("svhn", [1], {1: "svhn", 2: "svhn"})),
    ],
)
def test_wrong_arguments_are_refused_at_once(options, message):
    with pytest.raises(ValueError, match=message):
        BoCCallback(**options)


class TestLoaders:
    """Loaders by index and by name, and what is said when one is not there or Lightning wants more."""

    @pytest.mark.parametrize(
        ("ood", "names"),
        [
            ({1: "svhn", 2: "far"}, ("svhn", "far")),
            ({"1": "digits"}, ("digits", None)),  # as a file of LightningCLI gives it
            ({"dtd": "dtd"}, (None, "dtd")),
            ({"svhn": "digits", "dtd": "textures"}, ("digits", "textures")),
            ({"svhn": "dtd", "dtd": "cifar"}, ("dtd", "cifar")),  # the name of the first is in no key
        ],
    )
    def test_of_a_dict(self, ood, names, tmp_path):
        module, callback = Classifier(), BoCCallback(keys=("gap",), scores=("msp",), ood=ood)
        run = trainer(tmp_path, callback)
        run.validate(module, three(), verbose=False)
        for name, other, data in zip(names, ("svhn", "dtd"), (NEAR, FAR), strict=True):
            prefix = f"val/boc/{name or other}/"
            assert run.callback_metrics[f"{prefix}gap"].item() == pytest.approx(expected(module, data)["gap"])
            assert (f"{prefix}msp_auroc" in run.callback_metrics) == (name is not None)

    def test_of_a_list_after_a_fit_with_others(self, tmp_path):
        """Lightning goes on to show the loaders of the fit while others are validated."""
        module, callback = Classifier(), BoCCallback(keys=("gap", "accuracy"), ood={1: "svhn"})
        run = trainer(tmp_path, callback)
        run.fit(module, loader(KNOWN), three())
        run.validate(module, [loader(KNOWN), loader(FAR), loader(NEAR)], verbose=False)
        values = run.callback_metrics
        assert values["val/boc/svhn/gap"].item() == pytest.approx(expected(module, FAR)["gap"])
        last = chosen(values, "val/boc/dataloader_idx_2/")
        assert last == pytest.approx(expected(module, NEAR, ("gap", "accuracy")))

    WRONG = (
        (lambda: loader(KNOWN), {1: "near"}, "got 1 as 'near', and 1 loaders in all: 0 'dataloader_idx_0';"),
        (three, {"svnh": "svhn"}, "got 'svnh' as 'svhn', and 3 loaders in all: 0 'cifar', 1 'svhn', 2 'dtd';"),
        (
            lambda: lightning.utilities.CombinedLoader({"cifar": loader(KNOWN), "svhn": loader(NEAR)}, "min_size"),
            {"svhn": "svhn"},
            "got 'svhn' as 'svhn', and 1 loaders in all: 0 'combined'; .*one after the other",
        ),
        (three, {"cifar": "cifar"}, "after the in-distribution loader, which is the first, .* got 'cifar' as 'cifar'"),
        (three, {0: "cifar", -1: "dtd"}, "got 0 as 'cifar' and -1 as 'dtd'"),
        (three, {1: "dtd"}, "with names of their own, got 1 as 'dtd'"),
    )

    @pytest.mark.parametrize(("loaders", "ood", "message"), WRONG)
    @pytest.mark.parametrize("checks", [2, 0], ids=["sanity check", "no sanity check"])
    def test_wrong_ones_are_an_error_before_training(self, loaders, ood, message, checks, tmp_path):
        run = trainer(tmp_path, BoCCallback(ood=ood), num_sanity_val_steps=checks)
        with pytest.raises(ValueError, match=f"expected ood loaders of val .*{message}"):
            run.fit(Classifier(), loader(KNOWN), loaders())
        assert run.global_step == 0

    @pytest.mark.parametrize("case", [0, 1, 3, 5])
    @pytest.mark.parametrize("stage", ["validate", "test"])
    def test_wrong_ones_of_other_loops_are_said(self, case, stage, tmp_path):
        """The same callback may serve a test without the loaders of the fit."""
        loaders, ood, _ = self.WRONG[case]
        module, prefix = Classifier(), "test/boc/" if stage == "test" else "val/boc/"
        run = trainer(tmp_path, BoCCallback(ood=ood, keys=("gap",)))
        with pytest.warns(UserWarning, match=f"skips some ood loaders of {prefix[:3]}.*: ValueError: expected"):
            getattr(run, stage)(module, loaders(), verbose=False)
        assert run.callback_metrics[f"{prefix}gap"].item() == pytest.approx(expected(module, KNOWN)["gap"])
        if case:
            assert set(run.callback_metrics) == {f"{prefix}{name}gap" for name in ("", "svhn/", "dtd/")}
        run = trainer(tmp_path, BoCCallback(ood=ood, on_error="raise"))
        with pytest.raises(ValueError, match="expected"):
            getattr(run, stage)(module, loaders(), verbose=False)


class TestTargets:
    """Targets that are ignored or no classes, and classifiers with a single logit."""

    def labelled(self, module, *places, value):
        """Samples with other labels, and a loss that knows."""
        module._step = lambda batch: {"logits": module(batch[0])}
        target = VAL.tensors[1].clone()
        target[list(places)] = value
        return loader(TensorDataset(VAL.tensors[0], target))

    def test_those_that_cross_entropy_ignores(self, tmp_path):
        module = Classifier()
        found = validated(tmp_path, module, self.labelled(module, 0, 5, 20, value=-100))
        kept = [place for place in range(37) if place not in (0, 5, 20)]
        want = expected(module, TensorDataset(*(x[kept] for x in VAL.tensors)), DEFAULT_KEYS)
        assert chosen(found, "val/boc/") == pytest.approx(want)

    def test_only_ignored_ones_are_said(self, tmp_path):
        module = Classifier()
        data = self.labelled(module, *range(37), value=-100)
        with pytest.warns(UserWarning, match="skips val: .*every target is ignore_index, -100; ignore_index=None"):
            found = validated(tmp_path, module, data)
        assert found["val/boc/nll"].isnan()
        assert not chosen(found, "val/boc/")
        found = validated(tmp_path, module, data, ignore_index=None, keys=("gap",))
        assert chosen(found, "val/boc/") == pytest.approx(expected(module, VAL, ("gap",)))

    def test_those_that_are_no_classes_leave_what_needs_none(self, tmp_path):
        module = Classifier()
        data = self.labelled(module, 0, 5, value=255)
        found = validated(tmp_path, module, data, keys=("gap", "samples"))  # nobody asks for targets
        assert found["val/boc/samples"] == 37
        with pytest.warns(UserWarning, match="targets in .* got 2 outside; give .* ignore_index"):
            found = validated(tmp_path, module, data)
        want = {key: expected(module, VAL)[key] for key in DEFAULT_KEYS[3:]}
        assert chosen(found, "val/boc/") == pytest.approx(want)
        with pytest.raises(ValueError, match=r"expected targets in \[0, 5\), got 2 outside"):
            trainer(tmp_path, BoCCallback(on_error="raise")).validate(module, data)


def test_what_is_known_before_training_is_an_error(tmp_path):
    module = Classifier()
    with pytest.raises(ValueError, match="expected the name of a submodule"):
        trainer(tmp_path, BoCCallback(logits="modle")).fit(module, loader(TRAIN), loader(VAL))
    assert module.calls == 0
    run = trainer(tmp_path, BoCCallback(logits="no such thing"))
    assert len(run.predict(module, loader(VAL))) == 3  # which needs no logits


def test_a_monitored_value_that_cannot_be_computed_is_nan_and_ends_no_fit(tmp_path):
    """As `val/loss` would be: logits of NaN in the first epoch, and targets that do not fit in the last."""
    module, keep = Classifier(rate=0.0), lightning.callbacks.ModelCheckpoint(tmp_path, monitor="val/boc/nll")
    stop = lightning.callbacks.EarlyStopping("val/boc/nll", check_finite=False, patience=9)
    module.validation_step = lambda batch, batch_idx: {
        "logits": module(batch[0]) * (1.0 if module.current_epoch else math.nan),
        "targets": batch[1] if module.current_epoch < 2 else batch[1][:3],
    }
    callback = BoCCallback(conformal_test=True, alpha=0.1)
    options = {"max_epochs": 3, "enable_checkpointing": True, "num_sanity_val_steps": 0}
    run = trainer(tmp_path, callback, stop, keep, **options)
    few, unfit = "enough held-out samples .* got 0", r"targets of shape \(16,\), .* got targets of shape \(3,\)"
    with pytest.warns(match="rows of logits with NaN"), pytest.warns(match=few), pytest.warns(match=unfit):
        run.fit(module, loader(TRAIN), loader(VAL))
    assert run.current_epoch == 3
    assert keep.best_model_score == pytest.approx(expected(module, VAL)["nll"])
    want = expected(module, VAL, DEFAULT_KEYS[3:])  # what needs no targets, and nothing of an earlier epoch
    want["flagged"] = run.callback_metrics["val/boc/flagged"].item()
    assert chosen(run.callback_metrics, "val/boc/") == pytest.approx(want)
    assert math.isnan(run.callback_metrics["val/boc/nll"])
    assert callback.conformal_test.calibrated
