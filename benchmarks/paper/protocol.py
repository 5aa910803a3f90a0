"""The paper's three experiments: which model, which data, in which portions."""

import hashlib
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

CIFAR10 = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
AG_NEWS = ("World", "Sports", "Business", "Sci/Tech")
# The paper takes 5,000 of 50,000 images and 12,000 of 120,000 texts.
CALIBRATION_SHARE = 0.1
CALIBRATION_NAME = "training samples"
ODIN = {"temperature": 1000.0, "epsilon": 0.0014}

Inputs = Tensor | list[str]


@dataclass(frozen=True)
class Experiment:
    """An experiment of the paper.

    Attributes:
        name: its name on the command line.
        title: its name in reports.
        kind: what the samples are.
        model: the public model: its name on the Hugging Face hub, or that of weights of chenyaofo/pytorch-cifar-models.
        classes: the classes of the in-distribution data, in the order of their labels.
        data: the names of the training data, of the test data and of the OOD test data.
        ood_name: the name of the latter in tables.
        batch_size: the batch size of the paper.
        odin: whether ODIN is among the detectors. It needs a step along a gradient, which tokens do not allow.
    """

    name: str
    title: str
    kind: Literal["images", "texts"]
    model: str
    classes: tuple[str, ...]
    data: tuple[str, str, str]
    ood_name: str
    batch_size: int
    odin: bool


_IMAGES = {"classes": CIFAR10, "data": ("cifar10_train", "cifar10_test", "svhn_test"), "ood_name": "svhn", "odin": True}
_TEXTS = {"classes": AG_NEWS, "data": ("ag_news_train", "ag_news_test", "dbpedia_test"), "ood_name": "dbpedia"}
VIT = "aaraki/vit-base-patch16-224-in21k-finetuned-cifar10"
EXPERIMENTS = {
    "vit": Experiment("vit", "ViT-Base/16 on CIFAR-10 against SVHN", "images", VIT, **_IMAGES, batch_size=128),
    "resnet": Experiment(
        "resnet", "ResNet-20 on CIFAR-10 against SVHN", "images", "cifar10_resnet20", **_IMAGES, batch_size=256
    ),
    "roberta": Experiment(
        "roberta",
        "RoBERTa-base on AG News against DBPedia-14",
        "texts",
        "textattack/roberta-base-ag-news",
        **_TEXTS,
        batch_size=64,
        odin=False,
    ),
}


class Samples(NamedTuple):
    """Inputs of a model and their classes.

    Attributes:
        name: their name in tables and messages.
        inputs: images (N, 3, H, W) in uint8, or N texts.
        target: (N,) class indices, or None.
        key: a text that differs when the inputs or their order do. It does not depend on the size of a portion.
    """

    name: str
    inputs: Inputs
    target: Tensor | None
    key: str = ""


class Sets(NamedTuple):
    """The sets of an experiment."""

    id: Samples
    ood: Samples
    calibration: Samples
    train: Samples


def portions(
    train: Samples,
    test: Samples,
    ood: Samples,
    *,
    seed: int = 42,
    samples: int | None = None,
    train_samples: int | None = None,
) -> Sets:
    """The sets of an experiment, from the complete data.

    Every set is shuffled with `seed` (`torch.randperm`; the paper does not say how it draws). A tenth of the training
    data is the calibration split, and the rest is for the statistics of Mahalanobis. A smaller set is the beginning of
    the larger one: it is a fair sample, and its results can be used again for the larger set.

    Args:
        train: training data with targets.
        test: in-distribution test data with targets.
        ood: out-of-distribution test data. Its targets are dropped, because they are other classes.
        seed: the seed of the shuffling.
        samples: the largest number of samples of each set; all by default.
        train_samples: the largest number of samples of the rest of the training data; all by default.
    """
    count = round(CALIBRATION_SHARE * len(train.inputs))
    if not 0 < count < len(train.inputs):
        got = len(train.inputs)
        raise ValueError(f"{train.name}: expected at least 10 samples, a tenth to calibrate on, got {got}")
    orders = [torch.randperm(len(x.inputs), generator=torch.Generator().manual_seed(seed)) for x in (train, test, ood)]
    most = min(x for x in (samples, train_samples, len(train.inputs)) if x is not None)
    return Sets(
        _portion(test, test.name, orders[1][:samples], seed),
        _portion(ood._replace(target=None), ood.name, orders[2][:samples], seed),
        _portion(train, CALIBRATION_NAME, orders[0][:count][:samples], seed),
        _portion(train, "train", orders[0][count:][:most], seed),
    )


def _portion(data: Samples, name: str, places: Tensor, seed: int) -> Samples:
    if isinstance(data.inputs, Tensor):
        inputs, content = data.inputs[places], data.inputs.numpy().tobytes()
    else:
        inputs, content = [data.inputs[i] for i in places.tolist()], "\0".join(data.inputs).encode()
    target = None if data.target is None else data.target[places]
    digest = hashlib.sha256(content).hexdigest()[:16]
    return Samples(name, inputs, target, f"{name.replace(' ', '-')}-{digest}-{seed}")
