"""The page of a training: what it shows, how a resumed run continues it, and how it looks in a browser."""

import re

import pytest
import torch
from torch.utils.data import TensorDataset

from tests.browser import Watched, browser  # noqa: F401
from tests.lightning.cases import FAR, KNOWN, NEAR, QUIET, TRAIN, VAL, Classifier, chosen, lightning, loader, trainer
from tests.report.cases import Outline
from torch_boc import BoCMetric
from torch_boc.lightning import BoCCallback
from torch_boc.report.format import percent

pytestmark = QUIET
HOSTILE = "<i>noise</i> & 5 %"


def fit(folder, *, epochs=3, loaders=None, module=None, ckpt_path=None, trainer_options=(), **options):
    callback = BoCCallback(page=True, **options)
    run = trainer(folder, callback, max_epochs=epochs, **dict(trainer_options))
    run.fit(module or Classifier(rate=0.5), loader(TRAIN), loaders or loader(VAL), ckpt_path=ckpt_path)
    return run, callback


def read(folder):
    """The text of a page, with plain spaces."""
    return Outline((folder / "boc.html").read_text(encoding="utf-8")).text.replace("\u00a0", " ")


def test_the_page_has_the_logged_values_of_each_epoch_and_loads_nothing(tmp_path):
    logged = []

    class Spy(lightning.Callback):
        def on_validation_end(self, trainer, pl_module):
            if not trainer.sanity_checking:
                logged.append({key: float(value) for key, value in trainer.callback_metrics.items()})

    callback = BoCCallback(page=True, ood={1: HOSTILE}, scores=("msp", "gap"), keys=("gap", "nll", "accuracy", "ece"))
    run = trainer(tmp_path, callback, Spy(), max_epochs=3)
    run.fit(Classifier(rate=0.5), loader(TRAIN), [loader(KNOWN), loader(NEAR)])
    source = (tmp_path / "boc.html").read_text(encoding="utf-8")
    text = read(tmp_path)
    last = chosen(logged[-1], "val/boc/")
    assert f"Epoch 3 of 3: {percent(last['accuracy'])} accuracy, ECE {percent(last['ece'])}" in text
    assert HOSTILE in text
    assert "<i>" not in source
    for number, values in enumerate(logged, 1):
        for key, form in (("accuracy", percent), ("ece", percent), ("nll", "{:.3f}".format), ("gap", "{:.3f}".format)):
            assert f"validation: {form(values[f'val/boc/{key}'])} in epoch {number}" in text
        area = values[f"val/boc/{HOSTILE}/msp_auroc"]
        assert f"{HOSTILE}: {area:.2f} in epoch {number}" in text
    assert not re.search(r"(src|href)=|url\(|@import|https?://(?!www\.w3\.org/2000/svg)", source)
    assert [path.name for path in tmp_path.glob("*boc.html*")] == ["boc.html"]


def test_a_resumed_run_continues_the_page_and_another_fit_begins_anew(tmp_path):
    first, callback = fit(tmp_path / "first")
    first.save_checkpoint(tmp_path / "two.ckpt")
    fit(tmp_path / "second", epochs=5, ckpt_path=tmp_path / "two.ckpt")
    before, after = (read(tmp_path / name) for name in ("first", "second"))
    points = re.findall(r"validation: [\d.]+(?: %)? in epoch \d", before)
    assert len(points) >= 12
    assert all(point in after for point in points)
    assert "Epoch 5 of 5" in after
    assert "in epoch 4" in after
    run = trainer(tmp_path / "third", callback, max_epochs=1)
    run.fit(Classifier(), loader(TRAIN), loader(VAL))
    text = read(tmp_path / "third")
    assert "Epoch 1 of 1" in text
    assert "epoch 2" not in text
    assert torch.load(tmp_path / "two.ckpt", weights_only=True)["callbacks"][callback.state_key]["page"].keys() == {
        3,
        6,
        9,
    }


def test_reliability_and_coverage_are_those_of_the_metric_and_the_callback(tmp_path):
    module, data = (
        Classifier(rate=0.0),
        TensorDataset(KNOWN.tensors[0].repeat(20, 1), KNOWN.tensors[1].repeat(20)),
    )
    with torch.no_grad():
        data = TensorDataset(data.tensors[0], module(data.tensors[0]).argmax(1))  # every prediction is right
    run, _ = fit(tmp_path, epochs=1, loaders=loader(data), module=module, max_error=0.02)
    text = read(tmp_path)
    accepted = percent(run.callback_metrics["val/boc/accepted"].item())
    assert run.callback_metrics["val/boc/accepted"] > 0.5
    assert f"ECE {percent(run.callback_metrics['val/boc/ece'].item())}, {accepted} could be automated" in text
    assert "coverage at error ≤ 2 %with 95 % probability, if inputs resemble the validation set" in text
    metric = BoCMetric()
    with torch.no_grad():
        metric.update(module(data.tensors[0]), data.tensors[1])
    counts = metric.total().bin_counts
    samples = [int(n) for n in re.findall(r"accuracy 100.0 %, (\S+) samples", text.replace(",0", "0"))]
    assert sum(samples) == len(data) == counts[0].sum()
    assert len(samples) == int((counts[0] >= 10).sum())


def test_pages_without_targets_with_failing_epochs_and_with_many_loaders(tmp_path):
    bare = Classifier()
    bare.validation_step = lambda batch, batch_idx, dataloader_idx=0: bare(batch[0])
    with pytest.warns(UserWarning, match="no batch has a target"):
        fit(tmp_path / "bare", loaders=loader(TensorDataset(VAL.tensors[0])), module=bare)
    text = read(tmp_path / "bare")
    assert "Epoch 3 of 3: mean coherence gap" in text
    assert "Accuracy" not in text
    assert "nan" not in (tmp_path / "bare" / "boc.html").read_text()

    calls = []

    def failing(outputs, batch, module):
        calls.append(batch)
        logits = outputs["logits"]
        if module.current_epoch == 1 and not module.training and not module.trainer.sanity_checking:
            raise KeyError("heatmap")
        return logits, batch[1]

    with pytest.warns(UserWarning, match="heatmap"):
        fit(tmp_path / "gaps", logits=failing)
    text = read(tmp_path / "gaps")
    assert "in epoch 1" in text
    assert "in epoch 2" not in text
    assert "nan" not in (tmp_path / "gaps" / "boc.html").read_text()

    loaders = {f"set {place}": loader(data) for place, data in enumerate([KNOWN, *[NEAR, FAR] * 4])}
    fit(tmp_path / "many", epochs=1, loaders=loaders, ood={f"set {place}": f"far {place}" for place in range(1, 7)})
    text = read(tmp_path / "many")
    assert "set 0: " in text
    assert "far 5: " in text
    assert "the lowest of 5" in text  # with loader 0 that is a colour for each


def test_validations_within_an_epoch_are_shown_by_step_and_no_page_of_other_runs(tmp_path):
    fit(tmp_path, epochs=1, trainer_options={"val_check_interval": 1})
    assert "in step 2" in read(tmp_path)
    for options in ({"fast_dev_run": True}, {"max_epochs": 0}):
        run = trainer(tmp_path / "none", BoCCallback(page=True), **options)
        run.fit(Classifier(), loader(TRAIN), loader(VAL))
        run.validate(Classifier(), loader(VAL), verbose=False)
    assert not list((tmp_path / "none").rglob("*.html"))


@pytest.mark.slow
def test_trackers_get_the_page(tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("WANDB_SILENT", "true")
    sent = []
    board = lightning.loggers.WandbLogger(save_dir=tmp_path / "wandb", offline=True, mode="offline")
    monkeypatch.setattr(board.experiment, "log_artifact", lambda path, type: sent.append((path, type)))
    runs = lightning.loggers.MLFlowLogger(
        tracking_uri=f"file:{tmp_path}/runs", artifact_location=str(tmp_path / "kept")
    )
    fit(tmp_path, trainer_options={"logger": [board, runs]})
    board.experiment.finish()
    (kept,) = (tmp_path / "kept").rglob("boc.html")
    assert "Epoch 3 of 3" in kept.read_text(encoding="utf-8")
    assert len(sent) == 3
    assert sent[0][0].endswith("boc.html")


@pytest.mark.parametrize("dark", [False, True])
def test_axe_finds_nothing_and_nothing_is_wider_than_a_phone(browser, tmp_path, dark):  # noqa: F811
    fit(tmp_path, loaders=[loader(KNOWN), loader(NEAR)], ood={1: HOSTILE}, max_error=0.05, conformal_test=True)
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="no axe")
    with Watched(browser, tmp_path / "boc.html", dark=dark, width=400) as watched:
        found = axe.Axe().run(watched.page).response["violations"]
        assert [(rule["id"], rule["nodes"][0]["html"][:200]) for rule in found] == []
        assert watched.page.evaluate("document.documentElement.scrollWidth") <= 400
        assert watched.said == watched.asked == []
