"""ResNet-20 for CIFAR-10, with the names and shapes of the checkpoints of akamaster/pytorch_resnet_cifar10."""

from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.functional import pad, relu

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


class Block(nn.Module):
    """Two convolutions and a shortcut without parameters: every second pixel, new channels filled with zeros."""

    def __init__(self, inside: int, outside: int) -> None:
        super().__init__()
        self.stride, self.added = (1 if inside == outside else 2), outside - inside
        self.conv1 = nn.Conv2d(inside, outside, 3, self.stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outside)
        self.conv2 = nn.Conv2d(outside, outside, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outside)

    def forward(self, x: Tensor) -> Tensor:
        """(N, inside, H, W) to (N, outside, H / stride, W / stride)."""
        shortcut = pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, self.added // 2, self.added // 2))
        y = self.bn2(self.conv2(relu(self.bn1(self.conv1(x)))))
        return relu(y + shortcut)


class ResNet20(nn.Module):
    """Three stages of three blocks, with 16, 32 and 64 channels; normalised images (N, 3, 32, 32) to logits (N, 10)."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 16, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        self.layer1 = nn.Sequential(Block(16, 16), Block(16, 16), Block(16, 16))
        self.layer2 = nn.Sequential(Block(16, 32), Block(32, 32), Block(32, 32))
        self.layer3 = nn.Sequential(Block(32, 64), Block(64, 64), Block(64, 64))
        self.linear = nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        """The logits."""
        x = relu(self.bn1(self.conv1(x)))
        x = self.layer3(self.layer2(self.layer1(x)))
        return self.linear(x.mean((2, 3)))


def load_resnet20(path: Path) -> ResNet20:
    """The model of a published checkpoint, in eval mode."""
    state = torch.load(path, map_location="cpu", weights_only=True)["state_dict"]
    model = ResNet20()
    model.load_state_dict({name.removeprefix("module."): value for name, value in state.items()})
    return model.eval()


def normalise(pixels: Tensor) -> Tensor:
    """What the model takes, from uint8 images (N, 32, 32, 3)."""
    mean, std = torch.tensor(MEAN).view(3, 1, 1), torch.tensor(STD).view(3, 1, 1)
    return (pixels.permute(0, 3, 1, 2).float() / 255 - mean) / std
