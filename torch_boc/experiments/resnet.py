"""ResNets for CIFAR-10 in two published layouts. Only their weights are downloaded, no code.

Those of chenyaofo/pytorch-cifar-models have projections in their shortcuts (`downsample`) and a head called `fc`. Those
of akamaster/pytorch_resnet_cifar10 have shortcuts without parameters and a head called `linear`. The two were trained
with different normalisations of the images.
"""

import pickle
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import pad, relu

from .fetch import fetching

ADDRESS = "https://github.com/chenyaofo/pytorch-cifar-models/releases/download/resnet"
WEIGHTS = {
    "cifar10_resnet20": "cifar10_resnet20-4118986f.pt",
    "cifar10_resnet32": "cifar10_resnet32-ef93fc4d.pt",
    "cifar10_resnet44": "cifar10_resnet44-2a3cabcb.pt",
    "cifar10_resnet56": "cifar10_resnet56-187c023a.pt",
}
# The mean and the standard deviation of the channels in training, by the name of the head.
NORMALISATION = {
    "fc": ((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)),
    "linear": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
}
WIDTHS = (16, 16, 32, 64)


class Block(nn.Module):
    """Two convolutions and a shortcut.

    Where the width changes, the shortcut takes every second pixel. If `projected`, a convolution makes the new
    channels; otherwise they are zeros.
    """

    def __init__(self, inside: int, outside: int, *, projected: bool) -> None:
        super().__init__()
        self.stride, self.added = (1 if inside == outside else 2), outside - inside
        self.conv1 = nn.Conv2d(inside, outside, 3, self.stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outside)
        self.conv2 = nn.Conv2d(outside, outside, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outside)
        self.downsample: nn.Module | None = None
        if projected and self.added:
            convolution = nn.Conv2d(inside, outside, 1, self.stride, bias=False)
            self.downsample = nn.Sequential(convolution, nn.BatchNorm2d(outside))

    def forward(self, x: Tensor) -> Tensor:
        """(N, inside, H, W) to (N, outside, H / stride, W / stride)."""
        y = self.bn2(self.conv2(relu(self.bn1(self.conv1(x)))))
        if self.downsample is not None:
            return relu(y + self.downsample(x))
        filled = self.added // 2
        return relu(y + pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, filled, filled)))


class CifarResNet(nn.Module):
    """Three stages of `blocks` blocks: normalised images (N, 3, 32, 32) to logits (N, C).

    Args:
        blocks: the number of blocks in each stage; 3 for ResNet-20.
        num_classes: the number of classes, C.
        head: "fc" with projected shortcuts, or "linear" with shortcuts without parameters.
    """

    def __init__(self, blocks: int = 3, num_classes: int = 10, head: str = "fc") -> None:
        super().__init__()
        self.head = head
        self.conv1 = nn.Conv2d(3, WIDTHS[0], 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(WIDTHS[0])
        for stage, (inside, outside) in enumerate(pairwise(WIDTHS), 1):
            sizes = [(inside, outside), *[(outside, outside)] * (blocks - 1)]
            layer = nn.Sequential(*(Block(*size, projected=head == "fc") for size in sizes))
            self.add_module(f"layer{stage}", layer)
        self.add_module(head, nn.Linear(WIDTHS[-1], num_classes))

    def forward(self, x: Tensor) -> Tensor:
        """The logits."""
        x = relu(self.bn1(self.conv1(x)))
        for stage in ("layer1", "layer2", "layer3"):
            x = self.get_submodule(stage)(x)
        logits: Tensor = self.get_submodule(self.head)(x.mean((2, 3)))
        return logits


def find_weights(name: str, local: str) -> Path:
    """The path of a file, or of the published weights called `name`, which torch.hub downloads to its own folder."""
    if Path(name).is_file():
        return Path(name)
    if name not in WEIGHTS:
        raise ValueError(f"expected a file of weights or one of {', '.join(WEIGHTS)}, got {name!r}")
    path = Path(torch.hub.get_dir()) / "checkpoints" / WEIGHTS[name]
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        check = path.stem.split("-")[1]
        with fetching(f"{WEIGHTS[name]} of chenyaofo/pytorch-cifar-models", local):
            torch.hub.download_url_to_file(f"{ADDRESS}/{path.name}", str(path), check, progress=False)
    return path


def load_resnet(path: Path) -> CifarResNet:
    """The model of a checkpoint. This is a state dict, or holds one as "state_dict"; names may begin with `module.`."""
    state = _read_state(path)
    head = next((head for head in NORMALISATION if f"{head}.weight" in state), None)
    if head is None:
        raise _wrong(path, f"neither fc.weight nor linear.weight among {len(state)} names such as {list(state)[:2]}")
    blocks = len({name.split(".")[1] for name in state if name.startswith("layer1.")})
    model = CifarResNet(blocks, len(state[f"{head}.weight"]), head)
    try:
        model.load_state_dict(state)
    except RuntimeError as error:
        raise _wrong(path, " ".join(str(error).split("\n", 1)[-1].split())[:200]) from error
    return model


def _read_state(path: Path) -> dict[str, Tensor]:
    try:
        content: Any = torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError, OSError, ValueError, KeyError) as error:
        raise _wrong(path, f"{type(error).__name__}: {str(error).strip().splitlines()[0]}") from error
    state = content.get("state_dict", content) if isinstance(content, Mapping) else None
    if not isinstance(state, Mapping) or not all(isinstance(value, Tensor) for value in state.values()):
        raise _wrong(path, f"a {type(content).__name__} that is no state dict")
    return {str(name).removeprefix("module."): value for name, value in state.items()}


def _wrong(path: Path, got: str) -> ValueError:
    return ValueError(f"{path}: expected the weights of a ResNet for CIFAR (conv1, layer1.0.conv1, ..., fc), got {got}")
