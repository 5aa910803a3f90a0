"""An experiment of the paper, from the public model and data to its tables: `python -m benchmarks.paper vit`.

It says first what it will fetch and how long it takes. Downloads and logits are kept: an interrupted run resumes where
it stopped, and a second one needs no network. A folder of local copies (`--data-dir`) has the unpacked
cifar-10-batches-py and test_32x32.mat, or what `hf download --repo-type dataset fancyzhx/ag_news --local-dir DIR` and
the same with `fancyzhx/dbpedia_14` write.

The paper's part of published.json has the protocol of each experiment: the names of the training data, of the test data
and of the OOD data in `SOURCES`; the seconds of a sample on 2 cores, and its operations in 1e9.
"""

import argparse
import hashlib
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from tqdm import tqdm

from benchmarks.harness import write_page
from benchmarks.paper.flips import flip_numbers
from benchmarks.paper.models import Classifier, digest_model, fetch_model, find_model, list_model, load_model
from benchmarks.paper.sources import SOURCES, fetch_files, find_files, read_samples
from benchmarks.paper.tables import AS_IN_THE_PAPER, PUBLISHED, TRIALS, experiment_tables
from benchmarks.pieces import in_pieces
from torch_boc.evaluation import LogitSet, evaluate, odin_scores

# The version of the computation from inputs to logits. A new number makes all cached logits invalid.
VERSION = 2
PIECE = 1024
CACHE = Path.home() / ".cache" / "torch_boc"
# The paper takes 5,000 of 50,000 images and 12,000 of 120,000 texts.
CALIBRATION_SHARE, CALIBRATION_NAME = 0.1, "training samples"
ODIN = {"temperature": 1000.0, "epsilon": 0.0014}
ODIN_PASSES = 4  # two forward passes, and a backward pass that takes as long as two
SEED = 42
OPERATIONS = 1e13  # of a GPU, in a second
Protocol = Mapping[str, Any]


class Samples(NamedTuple):
    """Images (N, 3, 32, 32) or N texts, and their classes; `key` differs when the inputs or their order do."""

    name: str
    inputs: Tensor | list[str]
    target: Tensor | None
    key: str


def read_sets(protocol: Protocol, folder: Path, most: int | None) -> dict[str, Samples]:
    """The sets of an experiment by their role, from the files in `folder`: id, ood, calibration and train.

    Every set is shuffled (the paper does not say how it draws). A tenth of the training data is the calibration split,
    and the rest is for the statistics of Mahalanobis. At most `most` of each are taken. A smaller set is the beginning
    of the larger one: it is a fair sample, and its logits are used again for the larger set.
    """
    sets = {}
    train, test, ood = protocol["data"]
    for data, roles in ((test, ("id",)), (ood, ("ood",)), (train, ("calibration", "train"))):
        inputs, target = read_samples(data, find_files(SOURCES[data], folder))
        order = torch.randperm(len(inputs), generator=torch.Generator().manual_seed(SEED))
        count = round(CALIBRATION_SHARE * len(inputs)) if data == train else len(inputs)
        content = "\0".join(inputs).encode() if isinstance(inputs, list) else inputs.numpy().tobytes()
        digest = hashlib.sha256(content).hexdigest()[:16]
        for role, part in zip(roles, (order[:count][:most], order[count:][:most]), strict=False):
            chosen = [inputs[i] for i in part.tolist()] if isinstance(inputs, list) else inputs[part]
            name = {"calibration": CALIBRATION_NAME, "train": "train"}.get(role, data)
            sets[role] = Samples(name, chosen, None if data == ood else target[part], f"{role}-{digest}")
    return sets


class Computation:
    """The logits and ODIN scores of the model at `path`; only pieces that are not in the folder `cache` are computed.

    The model is loaded when it is needed. `bar` counts samples, those of ODIN `ODIN_PASSES` times.
    """

    def __init__(self, name: str, path: Path, cache: Path, device: str, bar: tqdm) -> None:
        self.name, self.path, self.device, self.bar = name, path, device, bar
        self.protocol: Protocol = PUBLISHED[name]["protocol"]
        self.folder = cache / "logits" / f"{name}-{digest_model(path)}-{VERSION}"
        self.classifier: Classifier | None = None

    def __call__(self, samples: Samples, *, odin: bool) -> LogitSet:
        """A set with its logits, and with ODIN's scores if they are asked for."""
        columns = {"odin": self._pieces(samples, self._odin, ODIN_PASSES)} if odin else {}
        return LogitSet(self._pieces(samples, self._logits, 1), samples.target, columns, samples.name)

    def _pieces(self, samples: Samples, one: Callable[[Classifier, Any], Tensor], passes: int) -> Tensor:
        inputs, before, size = samples.inputs, self.bar.n, self.protocol["batch_size"]
        self.bar.set_description(f"{one.__name__.strip('_')} of {samples.name}")

        def compute(start: int, stop: int) -> Tensor:
            self.classifier = self.classifier or load_model(self.name, self.path, self.protocol["classes"], self.device)
            self._advance(before + passes * start)
            places, rows = list(range(start, stop)), []
            if isinstance(inputs, list):  # a batch is as long as its longest text
                places.sort(key=lambda place: len(inputs[place]))
            for first in range(0, len(places), size):
                batch = places[first : first + size]
                chosen = [inputs[i] for i in batch] if isinstance(inputs, list) else inputs[batch]
                made = self.classifier.prepare(chosen)
                rows.append(one(self.classifier, {name: x.to(self.device) for name, x in made.items()}))
                self.bar.update(passes * len(batch))
            return torch.cat(rows)[torch.tensor(places).argsort()]

        outputs = in_pieces(self.folder / samples.key / one.__name__.strip("_"), len(inputs), compute, piece=PIECE)
        self._advance(before + passes * len(inputs))
        return outputs

    def _advance(self, done: int) -> None:
        """Move the bar over what a former run has kept, which is no part of the rate."""
        kept = done - self.bar.n
        self.bar.initial += kept
        self.bar.update(kept)

    @torch.inference_mode()
    def _logits(self, classifier: Classifier, batch: dict[str, Tensor]) -> Tensor:
        output, wanted = classifier.model(**batch), self.protocol["classes"]
        logits = getattr(output, "logits", output).float().cpu()
        if logits.shape[-1] != len(wanted):
            got = f"{logits.shape[-1]}; {self.name} needs one that was trained for {', '.join(wanted)}"
            raise ValueError(f"{self.path}: expected a model of {len(wanted)} classes, got {got}")
        return logits if classifier.columns is None else logits[:, classifier.columns]

    def _odin(self, classifier: Classifier, batch: dict[str, Tensor]) -> Tensor:
        (images,) = batch.values()
        return odin_scores(classifier.model, images, **ODIN)


def plan(protocol: Protocol, model: str, data_dir: Path | None, cache: Path) -> tuple[dict[str, float], list[Any]]:
    """What is missing on this machine: the megabytes by name, and the functions that fetch it.

    Everything that cannot be had is an error here, before the first byte is fetched.
    """
    lacking = [package for package in protocol["needs"] if find_spec(package) is None]
    if lacking:
        wanted = ", ".join(protocol["needs"])
        raise ImportError(f"expected {wanted}, got no {', '.join(lacking)}: pip install 'torch-boc[all]' torchvision")
    sizes, actions = {}, []
    for source in (SOURCES[name] for name in protocol["data"]):
        if find_files(source, data_dir or cache / "data"):
            continue
        if data_dir is not None:
            raise FileNotFoundError(
                f"{data_dir}: expected {source.title} ({', '.join(source.files)}), got no such file"
            )
        if source.title not in sizes:
            sizes[source.title] = source.megabytes
            actions.append(partial(fetch_files, source, cache / "data"))
    if find_model(model) is None:
        files = list_model(model)
        sizes[model] = sum(files.values())
        actions.insert(0, partial(fetch_model, model, files))
    return sizes, actions


def count_passes(protocol: Protocol, most: int | None) -> int:
    """The number of samples of all sets; those that ODIN also sees count `ODIN_PASSES` times more."""
    train, *tested = (SOURCES[name].size for name in protocol["data"])
    sizes = [round(CALIBRATION_SHARE * train), round((1 - CALIBRATION_SHARE) * train)]
    sizes += tested * (1 + ODIN_PASSES * protocol["odin"])
    return sum(min(size, most or size) for size in sizes)


def main(args: Sequence[str]) -> None:
    """Run an experiment, and write its report and the paper's tables next to ours."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.paper", description=__doc__.splitlines()[0])
    parser.add_argument("name", choices=PUBLISHED)
    parser.add_argument("--model", help="another model: a name on the hub, a folder, or weights of a ResNet")
    parser.add_argument("--data-dir", type=Path, help="local copies of the data; no downloads")
    parser.add_argument("--samples", type=int, help="the largest number of samples of each set, for a quick look")
    parser.add_argument("--device", default=str(torch.accelerator.current_accelerator(check_available=True) or "cpu"))
    parser.add_argument("--cache", type=Path, default=CACHE, help="for downloads and logits")
    parser.add_argument("--replicates", type=int, default=1000)
    parser.add_argument("--out", type=Path, default=Path("boc-report"))
    options = parser.parse_args(args)
    protocol: Protocol = PUBLISHED[options.name]["protocol"]
    model = options.model or protocol["model"]
    sizes, actions = plan(protocol, model, options.data_dir, options.cache)
    total = count_passes(protocol, options.samples)
    times = total * protocol["seconds"], total * protocol["gflops"] * 1e9 / OPERATIONS
    slow, fast = (f"{x / 3600:.0f} hours" if x > 7200 else f"{max(x / 60, 1):.0f} min" for x in times)
    fetched = ", ".join(f"{name} ({max(megabytes, 1):,.0f} MB)" for name, megabytes in sizes.items())
    print(
        f"{protocol['title']}\nTo fetch: {fetched or 'nothing'}.\nTo compute: {total:,} passes of a sample, about "
        f"{slow} on 2 cores, or {fast} on a GPU of {OPERATIONS:.0e} operations a second. Stop when you like: the same "
        "command goes on there.",
        flush=True,
    )
    for action in actions:
        action()
    sets = read_sets(protocol, options.data_dir or options.cache / "data", options.samples)
    path = find_model(model)
    calm = 0.1 if sys.stderr.isatty() else 60  # seconds between two lines of a log
    with tqdm(total=total, unit=" passes", mininterval=calm) as bar:
        compute = Computation(options.name, path, options.cache, options.device, bar)
        logits = {role: compute(x, odin=protocol["odin"] and role in ("id", "ood")) for role, x in sets.items()}
    splits, ood = {CALIBRATION_NAME: logits["calibration"]}, {protocol["ood"]: logits["ood"]}
    settings: dict[str, Any] = {**AS_IN_THE_PAPER, "replicates": options.replicates}
    report = evaluate(logits["id"], ood, calibration=splits, train=logits["train"], **settings)
    flips = flip_numbers(logits["id"], logits["ood"], TRIALS)
    saved = report.save(options.out)
    text = "\n\n".join(experiment_tables(PUBLISHED[options.name], report.results, flips))
    write_page(options.out / "paper.md", f"# {protocol['title']}: the paper’s tables next to ours\n\n{text}\n")
    print(text, "", *report.verdict, *saved, options.out / "paper.md", sep="\n")
