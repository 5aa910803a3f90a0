"""An experiment of the paper, from the public model and data to the report: `python -m benchmarks.paper vit`.

Logits are kept in the cache while they are computed: an interrupted run goes on where it stopped, and a second run is
quick. A folder of local copies (`--data-dir`) has the unpacked cifar-10-batches-py and test_32x32.mat; or ag_news_csv
and dbpedia_csv, each with its .csv files.
"""

import argparse
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor
from tqdm import tqdm

from benchmarks.paper.models import Classifier, digest_model, find_model, load_model
from benchmarks.paper.protocol import CALIBRATION_NAME, EXPERIMENTS, ODIN, Experiment, Samples, Sets, portions
from benchmarks.paper.sources import load_data
from benchmarks.pieces import in_pieces
from torch_boc.evaluation import LogitSet, Report, evaluate, odin_scores

# The version of the computation from inputs to logits. A new number makes all cached logits invalid.
VERSION = 1
CACHE = Path.home() / ".cache" / "torch_boc"


class Computation:
    """The logits and ODIN scores of a model. Only pieces that are not in the cache are computed.

    Args:
        experiment: the experiment to which the model belongs.
        path: see `find_model`. The model is loaded when it is needed.
        cache: where results are kept, in `logits`.
        batch_size: the number of samples in a batch.
        device: where to run.
    """

    def __init__(self, experiment: Experiment, path: Path, cache: Path, batch_size: int, device: torch.device) -> None:
        self.experiment, self.path, self.batch_size, self.device = experiment, path, batch_size, device
        self.folder = cache / "logits" / f"{experiment.name}-{digest_model(path)}-{VERSION}"

    @cached_property
    def classifier(self) -> Classifier:
        """The model, once it is needed."""
        return load_model(self.experiment, self.path, self.device)

    def __call__(self, samples: Samples, *, odin: bool) -> LogitSet:
        """A set with its logits, and with ODIN's scores if they are asked for."""
        columns = {"odin": self._pieces(samples, "odin", self._odin)} if odin else {}
        return LogitSet(self._pieces(samples, "logits", self._logits), samples.target, columns, samples.name)

    def _pieces(self, samples: Samples, what: str, one: Callable[[dict[str, Tensor]], Tensor]) -> Tensor:
        total = len(samples.inputs)
        with tqdm(total=total, desc=f"{what}, {samples.name}", unit=" samples", disable=None) as bar:

            def compute(start: int, stop: int) -> Tensor:
                bar.update(start - bar.n)  # what was there already
                parts = []
                for batch in self._batches(samples, start, stop):
                    parts.append(one(batch))
                    bar.update(len(parts[-1]))
                return torch.cat(parts)

            return in_pieces(self.folder / samples.key / what, total, compute)

    def _batches(self, samples: Samples, start: int, stop: int) -> Iterator[dict[str, Tensor]]:
        for first in range(start, stop, self.batch_size):
            inputs = self.classifier.prepare(samples.inputs[first : min(first + self.batch_size, stop)])
            yield {name: x.to(self.device) for name, x in inputs.items()}

    @torch.inference_mode()
    def _logits(self, batch: dict[str, Tensor]) -> Tensor:
        output = self.classifier.model(**batch)
        logits = getattr(output, "logits", output).float().cpu()
        wanted = self.experiment.classes
        if logits.shape[-1] != len(wanted):
            got = f"{logits.shape[-1]}; {self.experiment.name} needs one that was trained for {', '.join(wanted)}"
            raise ValueError(f"{self.path}: expected a model of {len(wanted)} classes, got {got}")
        return logits if self.classifier.columns is None else logits[:, self.classifier.columns]

    def _odin(self, batch: dict[str, Tensor]) -> Tensor:
        (images,) = batch.values()
        return odin_scores(self.classifier.model, images, **ODIN)


def load_sets(experiment: Experiment, data_dir: Path | None = None, cache: Path = CACHE, **sizes: int | None) -> Sets:
    """The sets of an experiment from local copies in `data_dir`; by default they are fetched to the cache."""
    found = []
    for name in experiment.data:
        inputs, target = load_data(name, data_dir or cache / "data", fetch=data_dir is None)
        found.append(Samples(name, inputs, target))
        low, high, most = int(target.min()), int(target.max()), len(experiment.classes)
        if name != experiment.data[-1] and (low < 0 or high >= most):
            raise ValueError(f"{name}: expected {most} classes, labelled 0 to {most - 1}, got {low} to {high}")
    return portions(*found, **sizes)


def report(experiment: Experiment, sets: Sets, compute: Computation, *, replicates: int, seed: int) -> Report:
    """The paper's tables."""
    found = {
        role: compute(samples, odin=experiment.odin and role in ("id", "ood"))
        for role, samples in sets._asdict().items()
    }
    return evaluate(
        found["id"],
        {experiment.ood_name: found["ood"]},
        calibration={CALIBRATION_NAME: found["calibration"]},
        train=found["train"],
        replicates=replicates,
        seed=seed,
    )


def main(args: Sequence[str]) -> None:
    """Run an experiment, and write its report."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.paper", description=__doc__.splitlines()[0])
    parser.add_argument("name", choices=EXPERIMENTS)
    parser.add_argument("--model", help="another model: a name on the hub, a folder, or weights of a ResNet")
    parser.add_argument("--data-dir", type=Path, help="local copies of the data; no downloads")
    parser.add_argument("--samples", type=int, help="at most so many of each set, for a quick look")
    parser.add_argument("--train-samples", type=int, help="at most so many to fit Mahalanobis on")
    parser.add_argument("--batch-size", type=int, help="by default that of the paper")
    parser.add_argument("--device", default=str(torch.accelerator.current_accelerator(check_available=True) or "cpu"))
    parser.add_argument("--cache", type=Path, default=CACHE, help="for downloads and logits")
    parser.add_argument("--replicates", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--out", type=Path, default=Path("boc-report"))
    options = parser.parse_args(args)
    experiment = EXPERIMENTS[options.name]
    path = find_model(experiment, options.model)
    sizes = {"seed": options.seed, "samples": options.samples, "train_samples": options.train_samples}
    sets = load_sets(experiment, options.data_dir, options.cache, **sizes)
    batch_size = options.batch_size or experiment.batch_size
    compute = Computation(experiment, path, options.cache, batch_size, torch.device(options.device))
    found = report(experiment, sets, compute, replicates=options.replicates, seed=options.seed)
    print(experiment.title, *found.verdict, *found.save(options.out), sep="\n")
