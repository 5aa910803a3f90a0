"""What the examples have in common: arguments, CIFAR-10 and SVHN or stand-ins for both, and a report."""

import argparse
import math
import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, TensorDataset

MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)
HELD_OUT = 5000


def arguments(description: str, options: Mapping[str, Any] | None = None, **defaults: Any) -> argparse.Namespace:
    """The command line; `options` are those that only this example has, and `defaults` are its defaults."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--smoke", action="store_true", help="a minute on a CPU with made-up data, no downloads")
    parser.add_argument("--data-dir", type=Path, default=Path("data"), help="where the data are, or go")
    parser.add_argument("--output-dir", type=Path, help="logs and checkpoints")
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--lr", type=float)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--resume", action="store_true", help="resume from the last checkpoint in --output-dir")
    for name, settings in (options or {}).items():
        parser.add_argument(name, **settings)
    parser.set_defaults(**{"known": 10} | defaults, output_dir=Path("lightning_logs") / Path(parser.prog).stem)
    if "--smoke" in sys.argv:
        folder = Path(tempfile.gettempdir()) / f"torch_boc-{os.getpid()}"
        few_steps = {"epochs": 2, "batch_size": 16, "lr": defaults["lr"] / 5}
        parser.set_defaults(**few_steps, workers=0, output_dir=folder)
    return parser.parse_args()


def loaders(args: argparse.Namespace) -> tuple[DataLoader, list[DataLoader]]:
    """The training loader, and two for validation: in-distribution first, then out-of-distribution.

    Validation images are 5,000 held out from the training set; the test set is for the end.
    """
    train, validation, ood = synthetic() if args.smoke else cifar_and_svhn(args.data_dir, args.known)
    options: dict[str, Any] = {"batch_size": args.batch_size, "num_workers": args.workers}
    options |= {"persistent_workers": args.workers > 0, "pin_memory": torch.cuda.is_available()}
    if isinstance(train, Images):
        options["collate_fn"] = whole
    return DataLoader(train, shuffle=True, drop_last=True, **options), [
        DataLoader(x, **options) for x in (validation, ood)
    ]


def cifar_and_svhn(folder: Path, known: int = 10) -> tuple[Dataset, Dataset, Dataset]:
    """The first `known` classes of CIFAR-10 for training and validation, and the others or some of SVHN's digits."""
    pixels, labels = read_images(folder, "cifar10_train")
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(42))
    held_out, rest = order[:HELD_OUT], order[HELD_OUT:]
    strange = Images(*(x[held_out[labels[held_out] >= known]] for x in (pixels, labels)))
    if known == 10:
        strange = Images(*(x[:HELD_OUT] for x in read_images(folder, "svhn_test")))
    rest, held_out = (part[labels[part] < known] for part in (rest, held_out))
    return Images(pixels[rest], labels[rest], varied=True), Images(pixels[held_out], labels[held_out]), strange


def read_images(folder: Path, name: str) -> tuple[Tensor, Tensor]:
    """Images (N, 3, 32, 32) in uint8 and labels of cifar10_train, cifar10_test or svhn_test.

    From `name`.npz with arrays x (N, 32, 32, 3) and y, or through torchvision, which downloads what is not there.
    """
    if (folder / f"{name}.npz").exists():
        with np.load(folder / f"{name}.npz") as file:
            return torch.from_numpy(file["x"]).movedim(-1, 1).contiguous(), torch.from_numpy(file["y"]).long()
    from torchvision import datasets

    try:
        if name == "svhn_test":
            data = datasets.SVHN(folder / "svhn", split="test", download=True)
            return torch.from_numpy(data.data), torch.from_numpy(data.labels).long()
        data = datasets.CIFAR10(folder, train=name == "cifar10_train", download=True)
    except (OSError, RuntimeError) as error:
        raise SystemExit(
            f"could not get CIFAR-10 and SVHN ({error}): connect to the internet once, or put the archives in "
            f"{folder.resolve()}; --smoke needs neither"
        ) from error
    return torch.from_numpy(data.data).movedim(-1, 1).contiguous(), torch.tensor(data.targets)


class Images(Dataset):
    """Images in memory, normalised and, if `varied`, augmented; a batch at a time, for speed on a CPU."""

    def __init__(self, pixels: Tensor, labels: Tensor, *, varied: bool = False) -> None:
        self.pixels, self.labels, self.varied = pixels, labels, varied

    def __len__(self) -> int:
        return len(self.labels)

    def __getitems__(self, places: list[int]) -> tuple[Tensor, Tensor]:
        """A whole batch, as DataLoader asks for it where a dataset can give one."""
        images = self.pixels[places]
        images = with_a_hole(shifted_and_flipped(images)) if self.varied else images
        mean, std = (255 * torch.tensor(x).view(3, 1, 1) for x in (MEAN, STD))
        return (images - mean) / std, self.labels[places]


def shifted_and_flipped(images: Tensor, by: int = 4) -> Tensor:
    """Each image moved by up to `by` pixels over a black border, and every other one mirrored, by chance."""
    count, _, height, width = images.shape
    padded = torch.nn.functional.pad(images, (by, by, by, by))
    down, right = torch.randint(2 * by + 1, (2, count, 1))
    columns = torch.arange(width).expand(count, width)
    columns = torch.where(torch.rand(count, 1) < 0.5, columns.flip(1), columns) + right
    rows = torch.arange(height) + down
    return padded[torch.arange(count)[:, None, None], :, rows[:, :, None], columns[:, None, :]].movedim(-1, 1)


def with_a_hole(images: Tensor, size: int = 8) -> Tensor:
    """Each image with a square of `size` pixels at a place of its own blackened (cutout)."""
    count, _, height, width = images.shape
    down, right = (torch.randint(side + 1 - size, (count, 1)) for side in (height, width))
    rows, columns = (
        (torch.arange(side) - at).div(size, rounding_mode="floor") == 0 for side, at in ((height, down), (width, right))
    )
    return images.masked_fill((rows[:, :, None] & columns[:, None, :])[:, None], 0)


def whole(batch: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """The batch as the dataset made it."""
    return batch


def synthetic() -> tuple[Dataset, Dataset, Dataset]:
    """Ten coarse patterns of 16 × 16 pixels under noise, and patterns that belong to no class."""
    generator = torch.Generator().manual_seed(0)
    patterns = torch.randn(20, 3, 4, 4, generator=generator).repeat_interleave(4, -1).repeat_interleave(4, -2)

    def draw(count: int, first: int) -> TensorDataset:
        label = torch.randint(10, (count,), generator=generator)
        return TensorDataset(patterns[first + label] + torch.randn(count, 3, 16, 16, generator=generator), label)

    return draw(96, 0), draw(48, 0), draw(48, 10)


def warm_up_and_cosine(optimizer: torch.optim.Optimizer, steps: int) -> torch.optim.lr_scheduler.LRScheduler:
    """From 0 to the optimizer's rate over a tenth of the steps, then down to 0 along a cosine."""

    def share(step: int) -> float:
        rise, fall = (step + 1) / (steps / 10), (steps - step) / (steps - steps / 10)
        return min(1.0, rise) * (1 - math.cos(math.pi * min(1.0, fall))) / 2

    return torch.optim.lr_scheduler.LambdaLR(optimizer, share)


def trainer(args: argparse.Namespace, coherence: Any) -> Any:
    """A Trainer that keeps the best and the last checkpoint, and logs to TensorBoard and to metrics.csv.

    The best is that of the smallest loss. It would not be that of the smallest gap, which falls as long as the network
    grows more confident, whether it gets better or learns its samples by heart.
    """
    import lightning.pytorch as pl
    from lightning.pytorch.callbacks import ModelCheckpoint
    from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger

    keep = ModelCheckpoint(args.output_dir, "best", monitor="val/loss", save_last=True, enable_version_counter=False)
    return pl.Trainer(
        max_epochs=args.epochs,
        accelerator="cpu" if args.smoke else "auto",
        callbacks=[coherence, keep],
        logger=[TensorBoardLogger(args.output_dir, "tensorboard"), CSVLogger(args.output_dir, "csv")],
        default_root_dir=args.output_dir,
        log_every_n_steps=5 if args.smoke else 50,
        enable_progress_bar=sys.stderr.isatty() or args.smoke,
    )


def report(values: dict[str, Any]) -> None:
    """Print what the callback logged at the end."""
    for name, value in sorted(values.items()):
        if name.startswith("val/"):
            print(f"{name:32} {float(value):8.4f}")
