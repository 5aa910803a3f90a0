"""The inputs of the models, and how the paper divides them into sets."""

import hashlib
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from ..inference.hashing import digest
from .protocol import CALIBRATION_NAME, CALIBRATION_SHARE

Inputs = Tensor | list[str]


@dataclass(frozen=True, eq=False)
class Samples:
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

    def __len__(self) -> int:
        return len(self.inputs)


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
    count = round(CALIBRATION_SHARE * len(train))
    if not 0 < count < len(train):
        raise ValueError(f"{train.name}: expected at least 10 samples, a tenth to calibrate on, got {len(train)}")
    order = _order(len(train), seed)
    most = min(x for x in (samples, train_samples, len(train)) if x is not None)
    keys = [f"{digest_inputs(data.inputs)}-{seed}" for data in (test, ood, train)]
    return Sets(
        _portion(test, test.name, _order(len(test), seed)[:samples], keys[0]),
        _portion(ood, ood.name, _order(len(ood), seed)[:samples], keys[1], labelled=False),
        _portion(train, CALIBRATION_NAME, order[:count][:samples], keys[2]),
        _portion(train, "train", order[count:][:most], keys[2]),
    )


def _order(count: int, seed: int) -> Tensor:
    return torch.randperm(count, generator=torch.Generator().manual_seed(seed))


def _portion(data: Samples, name: str, places: Tensor, key: str, *, labelled: bool = True) -> Samples:
    inputs = data.inputs[places] if isinstance(data.inputs, Tensor) else [data.inputs[i] for i in places.tolist()]
    target = data.target[places] if labelled and data.target is not None else None
    return Samples(name, inputs, target, f"{name.replace(' ', '-')}-{key}")


def digest_inputs(inputs: Inputs) -> str:
    """A short text that differs when the inputs do.

    >>> digest_inputs(["a", "b"]) == digest_inputs(["ab", ""])
    False
    """
    if isinstance(inputs, Tensor):
        return digest([inputs])
    return hashlib.sha256("\0".join(inputs).encode()).hexdigest()[:16]
