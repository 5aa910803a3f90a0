"""An experiment from its sources to the report."""

from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from ..data.atomic import default_cache
from ..evaluation import LogitSet, Report, evaluate
from .compute import Bar, compute_logits, find_device, no_bar
from .images import fetch_images, read_images
from .models import find_model
from .protocol import CALIBRATION_NAME, Experiment, find_experiment
from .samples import Inputs, Samples, Sets, portions
from .texts import fetch_texts, read_texts

SOURCES: dict[str, tuple[Callable[..., tuple[Inputs, Tensor]], ...]] = {
    "images": (read_images, fetch_images),
    "texts": (read_texts, fetch_texts),
}


def run(
    experiment: str | Experiment,
    *,
    model: str | None = None,
    checkpoint: Path | None = None,
    data_dir: Path | None = None,
    cache: Path | None = None,
    samples: int | None = None,
    train_samples: int | None = None,
    batch_size: int | None = None,
    device: torch.device | str | None = None,
    trials: int = 100,
    replicates: int = 1000,
    seed: int = 42,
    bar: Bar = no_bar,
    progress: Callable[[str], object] | None = None,
) -> Report:
    """Run an experiment of the paper.

    Args:
        experiment: "vit", "resnet" or "roberta".
        model: see `find_model`.
        checkpoint: see `find_model`.
        data_dir: see `load_sets`.
        cache: where downloads and logits are kept; `default_cache()` by default.
        samples: the largest number of samples of each set.
        train_samples: the largest number of training samples for the statistics of Mahalanobis.
        batch_size: by default that of the experiment.
        device: see `compute_logits`.
        trials: the number of coin flips.
        replicates: the number of bootstrap samples.
        seed: the seed of the splits, the bootstrap and the Monte Carlo trials.
        bar: see `compute_logits`.
        progress: called with a few words when a step of the evaluation begins.
    """
    chosen = find_experiment(experiment) if isinstance(experiment, str) else experiment
    place, folder = find_device(device), cache or default_cache()
    path = find_model(chosen, model, checkpoint)
    sets = load_sets(chosen, data_dir, folder, seed=seed, samples=samples, train_samples=train_samples)
    found = compute_logits(chosen, path, sets, folder, batch_size=batch_size, device=place, bar=bar)
    return report(chosen, found, trials=trials, replicates=replicates, seed=seed, progress=progress)


def load_sets(
    experiment: Experiment,
    data_dir: Path | None = None,
    cache: Path | None = None,
    *,
    seed: int = 42,
    samples: int | None = None,
    train_samples: int | None = None,
) -> Sets:
    """The sets of an experiment.

    Args:
        experiment: the experiment to which the data belong.
        data_dir: a folder with local copies, see `read_images` and `read_texts`; then nothing is downloaded.
        cache: where downloads are kept, in `data`.
        seed: see `portions`.
        samples: see `portions`.
        train_samples: see `portions`.
    """
    read, fetch = SOURCES[experiment.kind]
    found = []
    for name in (experiment.train, experiment.test, experiment.ood):
        if data_dir is not None:
            inputs, target = read(data_dir, name)
        else:
            inputs, target = fetch((cache or default_cache()) / "data", name, experiment.local)
        found.append(Samples(name, inputs, target))
        _check(found[-1], None if name == experiment.ood else len(experiment.classes))
    return portions(*found, seed=seed, samples=samples, train_samples=train_samples)


def report(
    experiment: Experiment,
    found: dict[str, LogitSet],
    *,
    trials: int = 100,
    replicates: int = 1000,
    seed: int = 42,
    progress: Callable[[str], object] | None = None,
) -> Report:
    """The paper's tables, from the logits that `compute_logits` gave."""
    return evaluate(
        found["id"],
        {experiment.ood_name: found["ood"]},
        calibration={CALIBRATION_NAME: found["calibration"]},
        train=found["train"],
        trials=trials,
        replicates=replicates,
        seed=seed,
        progress=progress,
    )


def _check(samples: Samples, classes: int | None) -> None:
    if not len(samples):
        raise ValueError(f"{samples.name}: expected samples, got none")
    assert samples.target is not None
    low, high = int(samples.target.min()), int(samples.target.max())
    if classes is not None and (low < 0 or high >= classes):
        raise ValueError(
            f"{samples.name}: expected {classes} classes, labelled 0 to {classes - 1}, got {low} to {high}"
        )
