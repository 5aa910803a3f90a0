"""Figures reach the trackers of a Trainer, or become files."""

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from tests.lightning.cases import LIBRARIES, QUIET, classifier, loader, perceptron, points, trainer
from torch_boc.lightning import BoCCallback

pytestmark = QUIET
KNOWN, OTHER = points(40, 1, 3.0), points(20, 2)
TAGS = ("val/boc/coherence", "val/boc/noise/coherence", "val/boc/noise/separation")


def fit(library, folder, logger):
    """Three epochs, of which the second is drawn."""
    callback = BoCCallback(ood={1: "noise"}, plot_every_n_epochs=2)
    run = trainer(library, folder, callback, logger=logger, max_epochs=3)
    run.fit(classifier(library, perceptron()), loader(KNOWN, 10), [loader(KNOWN), loader(OTHER)])


def test_tensorboard(library, tmp_path):
    fit(library, tmp_path, library.loggers.TensorBoardLogger(tmp_path))
    board = EventAccumulator(str(next(tmp_path.rglob("events.*")).parent))
    board.Reload()
    assert set(board.Tags()["images"]) == set(TAGS)
    assert [event.step for event in board.Images(TAGS[0])] == [8]
    assert not list(tmp_path.rglob("*.png"))


def test_wandb_offline(tmp_path, monkeypatch):
    library = LIBRARIES["lightning"]
    monkeypatch.setenv("WANDB_SILENT", "true")
    logger = library.loggers.WandbLogger(save_dir=tmp_path, offline=True, mode="offline")
    fit(library, tmp_path, logger)
    logger.experiment.finish()
    images = list(tmp_path.rglob("media/images/**/*.png"))
    assert len(images) == 3
    assert all(image.stat().st_size > 5000 for image in images)


def test_mlflow(tmp_path, monkeypatch):
    library = LIBRARIES["pytorch_lightning"]
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    logger = library.loggers.MLFlowLogger(tracking_uri=f"file:{tmp_path}/runs", artifact_location=str(tmp_path))
    fit(library, tmp_path, logger)
    found = {str(path.relative_to(tmp_path / logger.run_id / "artifacts")) for path in tmp_path.rglob("*.png")}
    assert found == {f"{tag}-step000008.png" for tag in TAGS}
    assert logger.experiment.get_run(logger.run_id).data.metrics["val/boc/gap"] > 0


def test_files_without_a_tracker(library, tmp_path):
    logger = library.loggers.CSVLogger(tmp_path, name="runs", version="one")
    fit(library, tmp_path, logger)
    folder = tmp_path / "runs/one"
    names = [f"{tag.replace('/', '-')}-step000008.png" for tag in TAGS]
    assert {path.name for path in folder.iterdir() if path.suffix in (".png", ".tmp")} == set(names)
    assert all((folder / name).read_bytes().startswith(b"\x89PNG") for name in names)


def test_validate_and_test_draw_always_but_not_a_fast_dev_run(library, tmp_path):
    module, callback = classifier(library, perceptron()), BoCCallback(plot_every_n_epochs=7)
    trainer(library, tmp_path, callback).validate(module, loader(KNOWN), verbose=False)
    trainer(library, tmp_path, callback).test(module, loader(KNOWN), verbose=False)
    trainer(library, tmp_path / "dev", callback, fast_dev_run=True).validate(module, loader(KNOWN), verbose=False)
    assert {path.name for path in tmp_path.rglob("*.png")} == {
        "val-boc-coherence-step000000.png",
        "test-boc-coherence-step000000.png",
    }
