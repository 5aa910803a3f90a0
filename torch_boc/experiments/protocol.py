"""The paper's three experiments: which model, which data, in which portions."""

from dataclasses import dataclass
from typing import Literal

CIFAR10 = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
AG_NEWS = ("World", "Sports", "Business", "Sci/Tech")
# The paper takes 5,000 of 50,000 images and 12,000 of 120,000 texts.
CALIBRATION_SHARE = 0.1
CALIBRATION_NAME = "training samples"
ODIN_TEMPERATURE, ODIN_EPSILON = 1000.0, 0.0014


@dataclass(frozen=True)
class Experiment:
    """An experiment of the paper.

    Attributes:
        name: its name on the command line.
        title: its name in reports.
        kind: what the samples are.
        model: the public model: its name on the Hugging Face hub, or that of weights of chenyaofo/pytorch-cifar-models.
        classes: the classes of the in-distribution data, in the order of their labels.
        train: the in-distribution training data, from which the calibration split and Mahalanobis statistics are taken.
        test: the in-distribution test data.
        ood: the out-of-distribution test data.
        ood_name: the name of the latter in tables.
        batch_size: the batch size of the paper.
        odin: whether ODIN is among the detectors. It needs a step along a gradient, which tokens do not allow.
        local: the options that point at local copies.
    """

    name: str
    title: str
    kind: Literal["images", "texts"]
    model: str
    classes: tuple[str, ...]
    train: str
    test: str
    ood: str
    ood_name: str
    batch_size: int
    odin: bool
    local: str = "--model FOLDER and --data-dir FOLDER"


_IMAGES = ("cifar10_train", "cifar10_test", "svhn_test", "svhn")
_TEXTS = ("ag_news_train", "ag_news_test", "dbpedia_test", "dbpedia")

EXPERIMENTS = {
    "vit": Experiment(
        "vit",
        "ViT-Base/16 on CIFAR-10 against SVHN",
        "images",
        "aaraki/vit-base-patch16-224-in21k-finetuned-cifar10",
        CIFAR10,
        *_IMAGES,
        batch_size=128,
        odin=True,
    ),
    "resnet": Experiment(
        "resnet",
        "ResNet-20 on CIFAR-10 against SVHN",
        "images",
        "cifar10_resnet20",
        CIFAR10,
        *_IMAGES,
        batch_size=256,
        odin=True,
        local="--checkpoint FILE and --data-dir FOLDER",
    ),
    "roberta": Experiment(
        "roberta",
        "RoBERTa-base on AG News against DBPedia-14",
        "texts",
        "textattack/roberta-base-ag-news",
        AG_NEWS,
        *_TEXTS,
        batch_size=64,
        odin=False,
    ),
}


def find_experiment(name: str) -> Experiment:
    """The experiment called `name`.

    >>> find_experiment("resnet").batch_size
    256
    """
    if name not in EXPERIMENTS:
        raise ValueError(f"expected an experiment among {', '.join(EXPERIMENTS)}, got {name!r}")
    return EXPERIMENTS[name]
