"""The logits of all sets of an experiment; only missing pieces are computed."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor

from ..evaluation import LogitSet, odin_scores
from ..inference.batches import Batch
from ..inference.fitting import FittingPieces
from ..nn import find_logits
from .cache import PieceCache
from .models import Classifier, digest_model, load_model
from .protocol import ODIN_EPSILON, ODIN_TEMPERATURE, Experiment
from .samples import Samples, Sets

# The version of the computation from inputs to logits. A new number makes all cached logits invalid.
VERSION = 1

Bar = Callable[[str, int], AbstractContextManager[Callable[[int], object]]]


@contextmanager
def no_bar(what: str, total: int) -> Iterator[Callable[[int], object]]:
    """A progress bar that nobody sees."""
    yield lambda amount: None


def compute_logits(
    experiment: Experiment,
    model: Path,
    sets: Sets,
    cache: Path,
    *,
    batch_size: int | None = None,
    device: torch.device | str = "cpu",
    bar: Bar = no_bar,
) -> dict[str, LogitSet]:
    """The logits of all sets, by their fields in `Sets`, with ODIN's scores if the experiment has them.

    Only pieces that are missing in `cache` are computed. If none is missing, the model is not loaded.

    Args:
        experiment: the experiment to which the model belongs.
        model: see `find_model`.
        sets: see `load_sets`.
        cache: where results are kept, in `logits`.
        batch_size: by default that of the experiment.
        device: where to run.
        bar: called with a text and the number of samples. It returns a context manager that gives a function, which is
            called with the number of samples whenever some are done.
    """
    work = _Work(experiment, model, cache, batch_size or experiment.batch_size, torch.device(device), bar)
    found = {}
    for role, samples in zip(Sets._fields, sets, strict=True):
        logits = work.logits(samples)
        columns = {"odin": work.odin(samples)} if experiment.odin and role in ("id", "ood") else {}
        found[role] = LogitSet(logits, samples.target, columns, samples.name)
    return found


def find_device(device: torch.device | str | None = None) -> torch.device:
    """`device` if it can be used; by default a GPU if there is one."""
    if device is None:
        found = torch.accelerator.current_accelerator(check_available=True)
        return found or torch.device("cpu")
    try:
        torch.empty(0, device=device)
        return torch.device(device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).strip().splitlines()[0]
        raise ValueError(
            f"expected --device as one that torch can use here, such as cpu, got {device} ({reason})"
        ) from error


@dataclass
class _Work:
    experiment: Experiment
    model: Path
    cache: Path
    batch_size: int
    device: torch.device
    bar: Bar

    @cached_property
    def classifier(self) -> Classifier:
        return load_model(self.experiment, self.model, self.device)

    @cached_property
    def pieces(self) -> PieceCache:
        return PieceCache(self.cache / "logits" / f"{self.experiment.name}-{digest_model(self.model)}-{VERSION}")

    @cached_property
    def fitting(self) -> FittingPieces:
        return FittingPieces(self._forward)

    def logits(self, samples: Samples) -> Tensor:
        def compute(start: int, stop: int) -> Tensor:
            parts = []
            for batch in self._batches(samples, start, stop):
                parts.append(self.fitting(batch)["logits"])
                advance(batch.size)
            return torch.cat(parts)

        with self.bar(f"logits, {samples.name}", len(samples)) as advance:
            return self.pieces(f"{samples.key}/logits", len(samples), compute, advance)

    def odin(self, samples: Samples) -> Tensor:
        def inputs(start: int, stop: int) -> Iterator[Tensor]:
            for batch in self._batches(samples, start, stop):
                yield from batch.kwargs.values()  # one tensor of images
                advance(batch.size)

        def compute(start: int, stop: int) -> Tensor:
            images, model = inputs(start, stop), self.classifier.model
            return odin_scores(model, images, temperature=ODIN_TEMPERATURE, epsilon=ODIN_EPSILON)

        with self.bar(f"ODIN, {samples.name}", len(samples)) as advance:
            return self.pieces(f"{samples.key}/odin", len(samples), compute, advance)

    def _batches(self, samples: Samples, start: int, stop: int) -> Iterator[Batch]:
        for first in range(start, stop, self.batch_size):
            last = min(first + self.batch_size, stop)
            yield Batch((), self.classifier.prepare(samples.inputs[first:last]), None, last - first)

    @torch.inference_mode()
    def _forward(self, batch: Batch) -> dict[str, Tensor]:
        logits = find_logits(self.classifier.model(**batch.to(self.device).kwargs)).float().cpu()
        wanted = len(self.experiment.classes)
        if logits.shape != (batch.size, wanted):
            raise ValueError(
                f"{self.model}: expected a model of {wanted} classes, got {logits.shape[-1]}; "
                f"{self.experiment.name} needs one that was trained for {', '.join(self.experiment.classes)}"
            )
        return {"logits": logits if self.classifier.columns is None else logits[:, self.classifier.columns]}
