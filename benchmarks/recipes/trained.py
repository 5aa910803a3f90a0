"""Entries of the zoo from models that the examples trained: a compact ViT, a compact RoBERTa and MiniLM-L6."""

import hashlib
import importlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.paper.tables import PUBLISHED
from benchmarks.recipes.entries import Cache, Sets
from torch_boc.data.logit_set import LogitSet
from torch_boc.evaluation.detectors import mahalanobis_scores, odin_scores

EXAMPLES = Path(__file__).parents[2] / "examples"
SPLIT = 5000  # training samples that serve as a calibration split which leaks
ARRAYS = {
    "logits": "float16, rounded from float32; all numbers of this card are those of the rounded logits",
    "target": "class index",
    "mahalanobis": "float32, higher = more in-distribution: minus half the squared Mahalanobis distance of the float32 "
    "logits to the nearest class mean; means and scatter from the logits of the training samples, not stored",
}
ODIN = {
    "odin": "float32, higher = more in-distribution: ODIN of pytorch-ood with temperature 1000 and epsilon 0.0014, a "
    "step on the normalised inputs",
}
LEAKS = "training samples of the model: a calibration split that leaks"
LICENCE = {"model": "trained by this project's own example", "logits": "under the licence of the package"}
VIT_CARD = {
    "model": "compact ViT with a convolutional stem: 6 layers, width 96, 64 patches",
    "checkpoint": "best epoch by validation loss; the checkpoint itself is not redistributed",
    "data": "CIFAR-10 test against SVHN test",
    "classes": PUBLISHED["vit"]["protocol"]["classes"],
    "sources": {
        "CIFAR-10 test": "the 10,000 test images of CIFAR-10, in the official order",
        "svhn": "the 26,032 test digits of SVHN, cropped anew from the full-size test images (bicubic, 32 x 32); "
        "without targets, for the digits are no classes of the model",
        "validation": "5,000 training images that were held out from training",
        "training samples": f"5,000 {LEAKS}",
    },
    "arrays": ARRAYS | ODIN,
    "trained_by": "python examples/lightning_vit_cifar10.py",
    "made_by": "python -m benchmarks.recipes.zoo vit-cifar10",
    "licence": LICENCE | {"data": "CIFAR-10 and SVHN are available from their authors; no image is redistributed"},
}
ROBERTA_CARD = {
    "model": "compact RoBERTa with its own byte-level BPE of 8,000 tokens: 2 layers, width 128",
    "checkpoint": "best epoch by validation loss; the checkpoint itself is not redistributed",
    "data": "AG News test against DBPedia",
    "classes": PUBLISHED["roberta"]["protocol"]["classes"],
    "sources": {
        "AG News test": "the 7,600 test texts of AG News, in the official order",
        "dbpedia": "9,999 abstracts of DBPedia-14 without titles; without targets, for their topics are no classes of "
        "the model",
        "validation": "5,000 training texts that were held out from training",
        "training samples": f"5,000 {LEAKS}",
    },
    "arrays": ARRAYS,
    "trained_by": "python examples/lightning_roberta_agnews.py",
    "made_by": "python -m benchmarks.recipes.zoo roberta-agnews",
    "licence": LICENCE | {"data": "AG News and DBPedia are available from their authors; no text is redistributed"},
}

MINILM_CARD = {
    "checkpoint": "last epoch, whose number was fixed before the run: the validation requests had no part in the "
    "choice; the checkpoint is not redistributed",
    "data": "CLINC150 test against its out-of-scope requests",
    "sources": {
        "CLINC150 test": "the 4,500 test requests of the 150 intents of CLINC150 (Larson et al. 2019, data_full.json), "
        "in an order by chance, for the official one is that of the intents; classes are the intents in alphabetical "
        "order",
        "out-of-scope": "the 1,000 out-of-scope test requests of CLINC150, which people wrote; none of them has an "
        "intent among the 150; without targets",
        "validation": "the 3,000 validation requests of CLINC150, which the model was not trained on. They and the "
        "test requests were not drawn quite alike: a Mahalanobis test that is fitted on one half of them and "
        "calibrated on the other flags 6.1 % of the test requests at 5 %, on average over 20 random halves (4.8 to "
        "8.0 %), and 4.9 % if both sets are mixed before; tests of GEN, log odds and energy flag 4.7 to 5.0 %",
    },
    "arrays": ARRAYS,
    "made_by": "python -m benchmarks.recipes.zoo minilm-clinc150",
    "licence": LICENCE
    | {
        "encoder": "sentence-transformers/all-MiniLM-L6-v2, Apache-2.0; not redistributed",
        "data": "CLINC150 is available from its authors under CC BY 3.0; no text is redistributed",
    },
}
MINILM_SETTINGS = (
    "the rate of the head, and embeddings of length 1, are one of six settings of a head on frozen embeddings, which "
    "were compared with the test sets in view"
)
MINILM_TUNED = "; the encoder was fine-tuned in one run with settings fixed before"
MINILM_HEAD = "with a linear head on the mean of its tokens, scaled to length 1"


def example(name: str) -> Any:
    """A script of examples/ as a module."""
    if str(EXAMPLES) not in sys.path:
        sys.path.insert(0, str(EXAMPLES))
    return importlib.import_module(name)


def load_classifier(module: Any, checkpoint: Path) -> tuple[torch.nn.Module, dict[str, Any]]:
    """The model of a Lightning checkpoint, and what the checkpoint says of its training."""
    state = torch.load(checkpoint, map_location="cpu", weights_only=True)
    classifier = module.Classifier(**state["hyper_parameters"])
    classifier.load_state_dict(state["state_dict"])
    trained = {"epochs": state["epoch"] + 1, "steps": state["global_step"], **state["hyper_parameters"]}
    digest = hashlib.sha256(checkpoint.read_bytes()).hexdigest()
    return classifier.model.eval(), {"training": trained, "checkpoint_sha256": digest}


@torch.inference_mode()
def logits_of(model: torch.nn.Module, data: Any, places: Tensor, batch: int = 250) -> Tensor:
    """(N, C) logits of some samples of a dataset of the examples."""
    return torch.cat([_logits(model, data, part.tolist()) for part in places.split(batch)])


def _logits(model: torch.nn.Module, data: Any, places: list[int]) -> Tensor:
    if hasattr(data, "__getitems__"):
        return model(data.__getitems__(places)[0]).logits
    tokens = data.collate([data[place] for place in places])
    return model(tokens["input_ids"], tokens["attention_mask"]).logits


def assemble(model: torch.nn.Module, parts: dict[str, tuple[str, Any]], cache: Cache, *, odin: bool) -> Sets:
    """The sets of an entry from datasets of the examples, by role and name; "train" is for Mahalanobis only."""
    train = parts.pop("training")[1]
    reference = LogitSet(_cached(model, "training", train, cache), torch.as_tensor(train.labels), name="training")
    sets: dict[str, list[LogitSet]] = {"id": [], "ood": [], "calibration": []}
    for name, (role, data) in parts.items():
        logits = _cached(model, name, data, cache)
        columns = {"mahalanobis": mahalanobis_scores(reference, logits)[0]}
        if odin:
            columns["odin"] = cache(f"{name}-odin", torch.arange(len(data)), _odin(model, data))
        target = None if role == "ood" else torch.as_tensor(data.labels)
        sets[role].append(LogitSet(logits, target, columns, name))
    return sets


def _cached(model: torch.nn.Module, name: str, data: Any, cache: Cache) -> Tensor:
    return cache(f"{name}-logits", torch.arange(len(data)), lambda places: logits_of(model, data, places))


def _odin(model: torch.nn.Module, data: Any) -> Callable[[Tensor], Tensor]:
    return lambda places: odin_scores(model, (data.__getitems__(part.tolist())[0] for part in places.split(250)))


def vit_cifar10(data_dir: Path, cache_dir: Path, checkpoint: Path) -> tuple[Sets, dict[str, Any]]:
    """The compact ViT: CIFAR-10 test, SVHN test, held-out images and training images."""
    module, common = example("lightning_vit_cifar10"), example("common")
    model, facts = load_classifier(module, checkpoint)
    train, validation, _ = common.cifar_and_svhn(data_dir)
    parts = {
        "CIFAR-10 test": ("id", common.Images(*common.read_images(data_dir, "cifar10_test"))),
        "svhn": ("ood", common.Images(*common.read_images(data_dir, "svhn_test"))),
        "validation": ("calibration", validation),
        "training samples": ("calibration", common.Images(train.pixels[:SPLIT], train.labels[:SPLIT])),
        "training": ("", common.Images(train.pixels, train.labels)),
    }
    cache = Cache(cache_dir / facts["checkpoint_sha256"][:12])
    return assemble(model, parts, cache, odin=True), VIT_CARD | facts


def roberta_agnews(data_dir: Path, cache_dir: Path, checkpoint: Path) -> tuple[Sets, dict[str, Any]]:
    """The compact RoBERTa: AG News test, DBPedia, held-out texts and training texts."""
    module = example("lightning_roberta_agnews")
    model, facts = load_classifier(module, checkpoint)
    tokenizer = module.PreTrainedTokenizerFast.from_pretrained(checkpoint.parent / "tokenizer")
    train, validation, _ = module.read_texts(data_dir)
    strange, _ = module.from_folder(data_dir, "dbpedia")
    parts = {
        "AG News test": ("id", module.Encoded(tokenizer, module.from_folder(data_dir, "test"))),
        "dbpedia": ("ood", module.Encoded(tokenizer, (strange, [0] * len(strange)))),
        "validation": ("calibration", module.Encoded(tokenizer, validation)),
        "training samples": ("calibration", module.Encoded(tokenizer, (train[0][:SPLIT], train[1][:SPLIT]))),
        "training": ("", module.Encoded(tokenizer, train)),
    }
    cache = Cache(cache_dir / facts["checkpoint_sha256"][:12])
    return assemble(model, parts, cache, odin=False), ROBERTA_CARD | facts


def minilm_clinc150(data_dir: Path, cache_dir: Path, checkpoint: Path) -> tuple[Sets, dict[str, Any]]:
    """MiniLM-L6: CLINC150 test, out-of-scope test requests and validation requests."""
    module = example("lightning_minilm_clinc150")
    model, facts = load_classifier(module, checkpoint)
    tokenizer = module.AutoTokenizer.from_pretrained(checkpoint.parent / "tokenizer")
    texts = {part: module.Encoded(tokenizer, rows) for part, rows in module.read_intents(data_dir).items()}
    parts = {
        "CLINC150 test": ("id", texts["test"]),
        "out-of-scope": ("ood", texts["oos_test"]),
        "validation": ("calibration", texts["val"]),
        "training": ("", texts["train"]),
    }
    frozen = facts["training"]["encoder_lr"] == 0
    options = {
        "classes": sorted({intent for _, intent in json.loads((data_dir / "data_full.json").read_text())["train"]}),
        "model": f"MiniLM-L6 sentence encoder, {'frozen' if frozen else 'fine-tuned'}, {MINILM_HEAD}",
        "settings": MINILM_SETTINGS if frozen else MINILM_SETTINGS + MINILM_TUNED,
        "trained_by": f"python examples/lightning_minilm_clinc150.py{' --frozen' if frozen else ''}",
    }
    cache = Cache(cache_dir / facts["checkpoint_sha256"][:12])
    sets = assemble(model, parts, cache, odin=False)
    return {role: [shuffled(data) for data in group] for role, group in sets.items()}, options | MINILM_CARD | facts


def shuffled(data: LogitSet) -> LogitSet:
    """The set in an order by chance: halves of it, and streams made of it, then have all intents."""
    order = torch.randperm(len(data), generator=torch.Generator().manual_seed(42))
    target = None if data.target is None else data.target[order]
    return LogitSet(data.logits[order], target, {name: x[order] for name, x in data.columns.items()}, data.name)
