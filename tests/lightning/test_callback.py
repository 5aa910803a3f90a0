"""What the callback logs is what `BoCMetric` says of the same logits."""

import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from tests.lightning.cases import (
    QUIET,
    TRAIN,
    VAL,
    chosen,
    classifier,
    csv_rows,
    expected,
    images,
    loader,
    perceptron,
    points,
    resnet,
    trainer,
    vit,
)
from torch_boc import bag_of_coins
from torch_boc.functional.summary import SHORT_KEYS
from torch_boc.lightning import BoCCallback
from torch_boc.lightning.callback import DEFAULT_KEYS

pytestmark = QUIET
MODELS = {"resnet": resnet, "vit": vit}


@pytest.mark.parametrize("name", MODELS)
def test_loggers_hold_what_the_metric_says(library, name, tmp_path):
    module, data = classifier(library, MODELS[name]()), images(21)
    loggers = [library.loggers.CSVLogger(tmp_path / "csv"), library.loggers.TensorBoardLogger(tmp_path / "board")]
    keys = (*SHORT_KEYS, "accuracy", "ece_confidence", "nll")
    run = trainer(library, tmp_path, BoCCallback(keys=keys), logger=loggers, log_every_n_steps=1)
    run.fit(module, loader(images(16, 1)), loader(data))
    want = expected(module, data)
    assert chosen(run.callback_metrics, "val/boc/") == pytest.approx({key: want[key] for key in keys}, rel=1e-6)
    (row,) = [row for row in csv_rows(tmp_path) if row.get("val/boc/gap")]
    assert chosen(row, "val/boc/") == pytest.approx({key: want[key] for key in keys}, rel=1e-6)
    board = EventAccumulator(str(next((tmp_path / "board").rglob("events.*")).parent))
    board.Reload()
    written = {key: board.Scalars(f"val/boc/{key}")[-1].value for key in keys}
    assert written == pytest.approx({key: want[key] for key in keys}, rel=1e-5)


def test_validate_and_test_loops(library, tmp_path):
    module = classifier(library, perceptron())
    run = trainer(library, tmp_path, BoCCallback(trials=50, alpha=0.2))
    for stage, results in (("val", run.validate(module, loader(VAL), verbose=False)), ("test", None)):
        results = results or run.test(module, loader(VAL), verbose=False)
        want = expected(module, VAL, trials=50, alpha=0.2)
        assert chosen(results[0], f"{stage}/boc/") == pytest.approx({key: want[key] for key in DEFAULT_KEYS})


def test_single_callback_is_accepted(library, tmp_path):
    run = library.Trainer(callbacks=BoCCallback(), logger=False, enable_checkpointing=False, accelerator="cpu")
    assert any(isinstance(callback, BoCCallback) for callback in run.callbacks)


def test_nothing_is_logged_while_sanity_checking(library, tmp_path):
    seen = {}

    class Spy(library.Callback):
        def on_sanity_check_end(self, trainer, pl_module):
            seen.update(trainer.callback_metrics)

    module = classifier(library, perceptron())
    run = trainer(library, tmp_path, BoCCallback(plot_every_n_epochs=1), Spy(), num_sanity_val_steps=2)
    run.fit(module, loader(TRAIN), loader(VAL))
    assert seen == {}
    assert run.callback_metrics["val/boc/gap"].item() == pytest.approx(expected(module, VAL)["gap"])
    assert len(list(tmp_path.glob("*.png"))) == 1


@pytest.mark.parametrize("order", [1, -1])
def test_checkpoint_and_early_stopping_see_each_epoch(library, order, tmp_path):
    keep = library.callbacks.ModelCheckpoint(
        tmp_path, monitor="val/boc/gap", save_top_k=-1, filename="{epoch}", auto_insert_metric_name=False
    )
    stop = library.callbacks.EarlyStopping("val/boc/gap", patience=1, min_delta=10.0)  # nothing improves by that much
    course = []

    class Spy(library.Callback):
        def on_validation_end(self, trainer, pl_module):
            if not trainer.sanity_checking:
                course.append(trainer.callback_metrics["val/boc/gap"].item())

    logger = library.loggers.CSVLogger(tmp_path)
    options = {"max_epochs": 5, "enable_checkpointing": True, "logger": logger}
    run = trainer(library, tmp_path, *[BoCCallback(), stop, Spy(), keep][::order], **options)
    module = classifier(library, perceptron(), rate=0.5)
    run.fit(module, loader(TRAIN), loader(VAL))
    rows = [float(row["val/boc/gap"]) for row in csv_rows(tmp_path) if row.get("val/boc/gap")]
    assert len(set(course)) == 2 == run.current_epoch
    assert rows == pytest.approx(course, abs=0)
    assert [keep.best_k_models[str(tmp_path / f"{epoch}.ckpt")].item() for epoch in (0, 1)] == course
    assert keep.best_model_score.item() == min(course)
    saved = torch.load(tmp_path / "1.ckpt", weights_only=False)
    assert saved["state_dict"].keys() == module.state_dict().keys()
    assert not any("BoCCallback" in key for key in saved["callbacks"])


def test_training_steps(library, tmp_path):
    module = classifier(library, perceptron(), rate=0.0)
    logger = library.loggers.CSVLogger(tmp_path)
    callback = BoCCallback(every_n_train_steps=2, keys=("samples", "gap"))
    run = trainer(library, tmp_path, callback, logger=logger, log_every_n_steps=1, max_epochs=2)
    run.fit(module, loader(TRAIN), loader(VAL))
    rows = [row for row in csv_rows(tmp_path) if row.get("train/boc/gap")]
    assert rows[0]["step"] == "1"
    first, last = TRAIN.tensors[0][16:32], TRAIN.tensors[0][32:]
    for row, batch in ((rows[0], first), (rows[-1], last)):  # batches 1, 3 = 0 and 5 = 2 of an epoch
        logits = module(batch).detach()
        assert float(row["train/boc/gap"]) == pytest.approx(bag_of_coins(logits).gap.mean().item())
        assert float(row["train/boc/samples"]) == 16


def test_several_loaders(library, tmp_path):
    module, other = classifier(library, perceptron()), points(20, 5, 3.0)
    run = trainer(library, tmp_path, BoCCallback(keys=("gap", "accuracy")))
    for loaders, name in (
        ([loader(VAL), loader(other)], "dataloader_idx_1"),
        ({"a": loader(VAL), "b": loader(other)}, "b"),
    ):
        run.validate(module, loaders, verbose=False)
        for prefix, data in (("val/boc/", VAL), (f"val/boc/{name}/", other)):
            want = expected(module, data)
            assert chosen(run.callback_metrics, prefix) == pytest.approx({k: want[k] for k in ("gap", "accuracy")})


def test_two_callbacks_with_different_prefixes(library, tmp_path):
    callbacks = BoCCallback(keys=("gap",)), BoCCallback(keys=("gap",), prefix="part", logits="model.2")
    module = classifier(library, perceptron())
    run = trainer(library, tmp_path, *callbacks)
    run.validate(module, loader(VAL), verbose=False)
    values = run.callback_metrics
    assert set(values) == {"val/boc/gap", "val/part/gap"}
    assert values["val/boc/gap"] == values["val/part/gap"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"keys": ("gap", "gapp")}, "expected keys as a list of names among samples, .*got .*gapp"),
        ({"keys": "gap"}, "expected keys as a list of names"),
        ({"scores": ("mps",)}, "expected scores"),
        ({"thresholds": 7}, "expected thresholds"),
        ({"every_n_train_steps": 0}, "expected every_n_train_steps"),
        ({"plot_every_n_epochs": 0}, "expected plot_every_n_epochs"),
        ({"alpha": 2.0}, "expected alpha"),
        ({"trials": 0}, "expected trials"),
    ],
)
def test_wrong_arguments_are_refused_at_once(options, message):
    with pytest.raises(ValueError, match=message):
        BoCCallback(**options)
