"""What the examples have in common: arguments, CIFAR-10 beside SVHN or stand-ins for both, and a report."""

import argparse
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset, TensorDataset

MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)


def arguments(description: str, **defaults: Any) -> argparse.Namespace:
    """The command line; `defaults` are those of the example."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--smoke", action="store_true", help="a minute on a CPU with synthetic images, no downloads")
    parser.add_argument("--data-dir", type=Path, default=Path("data"), help="where CIFAR-10 and SVHN are, or go")
    parser.add_argument("--output-dir", type=Path, help="logs and checkpoints")
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--lr", type=float)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--resume", action="store_true", help="go on from the last checkpoint in --output-dir")
    parser.set_defaults(**defaults, output_dir=Path("lightning_logs") / Path(parser.prog).stem)
    if "--smoke" in sys.argv:
        folder = Path(tempfile.gettempdir()) / f"torch_boc-{os.getpid()}"
        few_steps = {"epochs": 2, "batch_size": 16, "lr": defaults["lr"] / 5}
        parser.set_defaults(**few_steps, workers=0, output_dir=folder)
    return parser.parse_args()


def loaders(args: argparse.Namespace) -> tuple[DataLoader, list[DataLoader]]:
    """The training loader, and two for validation: in-distribution first, then out-of-distribution."""
    train, known, unknown = synthetic() if args.smoke else cifar_and_svhn(args.data_dir)
    options: dict[str, Any] = {"batch_size": args.batch_size, "num_workers": args.workers}
    options |= {"persistent_workers": args.workers > 0, "pin_memory": torch.cuda.is_available()}
    return DataLoader(train, shuffle=True, drop_last=True, **options), [
        DataLoader(x, **options) for x in (known, unknown)
    ]


def cifar_and_svhn(folder: Path) -> tuple[Dataset, Dataset, Dataset]:
    """CIFAR-10 for training and validation, and SVHN's test digits; downloaded if they are not there."""
    from torchvision import datasets
    from torchvision import transforms as t

    plain = t.Compose([t.ToTensor(), t.Normalize(MEAN, STD)])
    varied = t.Compose([t.RandomCrop(32, 4), t.RandomHorizontalFlip(), plain])
    try:
        train = datasets.CIFAR10(folder, train=True, transform=varied, download=True)
        known = datasets.CIFAR10(folder, train=False, transform=plain, download=True)
        unknown = datasets.SVHN(folder / "svhn", split="test", transform=plain, download=True)
    except (OSError, RuntimeError) as error:
        raise SystemExit(
            f"could not get CIFAR-10 and SVHN ({error}): connect to the internet once, or put the archives in "
            f"{folder.resolve()}; --smoke needs neither"
        ) from error
    return train, known, unknown


def synthetic() -> tuple[Dataset, Dataset, Dataset]:
    """Ten coarse patterns of 16 × 16 pixels under noise, and patterns that belong to no class."""
    generator = torch.Generator().manual_seed(0)
    patterns = torch.randn(20, 3, 4, 4, generator=generator).repeat_interleave(4, -1).repeat_interleave(4, -2)

    def draw(count: int, first: int) -> TensorDataset:
        label = torch.randint(10, (count,), generator=generator)
        return TensorDataset(patterns[first + label] + torch.randn(count, 3, 16, 16, generator=generator), label)

    return draw(96, 0), draw(48, 0), draw(48, 10)


def report(values: dict[str, Any]) -> None:
    """Print what the callback logged at the end."""
    for name, value in sorted(values.items()):
        if name.startswith("val/"):
            print(f"{name:32} {float(value):8.4f}")
