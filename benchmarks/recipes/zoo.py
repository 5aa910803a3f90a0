"""Compute an entry of the zoo, torch_boc/zoo/NAME.npz and .json: `python -m benchmarks.recipes.zoo resnet20-cifar10`.

Needs a folder with the images, the checkpoint and a load.py that reads the images (`--data-dir`). The others,

    python -m benchmarks.recipes.zoo vit-cifar10 --data-dir DATA --checkpoint RUN/best.ckpt

roberta-agnews and minilm-clinc150 (RUN/last.ckpt), are those of models that the examples trained, on data as
`benchmarks.recipes.layouts` writes them. Pieces that are done are kept in `--cache`, so that an interrupted run resumes
where it was.
"""

import argparse
import hashlib
import tempfile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.paper.models import NORMALISATION, load_resnet
from benchmarks.paper.tables import PUBLISHED
from benchmarks.recipes.entries import Cache, Sets, save_entry
from benchmarks.recipes.layouts import reader
from benchmarks.recipes.trained import minilm_clinc150, roberta_agnews, vit_cifar10
from torch_boc.data.logit_set import LogitSet
from torch_boc.evaluation.detectors import mahalanobis_scores, odin_scores

ROOT = Path(__file__).parents[2]
SPLIT = 5000  # training images that serve as a calibration split

RESNET20_CARD = {
    "model": "ResNet-20 with option-A shortcuts (He et al. 2015), 0.27 M parameters",
    "checkpoint": "resnet20 of github.com/akamaster/pytorch_resnet_cifar10 (file cifar10_resnet20.th), as published",
    "data": "CIFAR-10 test against SVHN test",
    "classes": PUBLISHED["resnet"]["protocol"]["classes"],
    "sources": {
        "CIFAR-10 test": "the 10,000 test images of CIFAR-10, in the official order",
        "svhn": "the 26,032 test digits of SVHN, cropped anew from the full-size test images (bicubic, 32 x 32), so "
        "not the bytes of test_32x32.mat; without targets, for the digits are no classes of the model",
        "training samples": "the last 5,000 of the 50,000 training images of CIFAR-10, which the model was trained on: "
        "a calibration split that leaks",
    },
    "preprocessing": "pixels / 255, then the ImageNet mean and standard deviation; no augmentation",
    "arrays": {
        "logits": "float16, rounded from float32; all numbers of this card are those of the rounded logits",
        "target": "class index",
        "odin": "float32, higher = more in-distribution: ODIN of pytorch-ood with temperature 1000 and epsilon 0.0014; "
        "the perturbation is a step of 0.0014 on the normalised inputs (pytorch-ood's default, no norm_std)",
        "mahalanobis": "float32, higher = more in-distribution: minus half the squared Mahalanobis distance of the "
        "float32 logits to the nearest class mean; means and scatter from the logits of the other 45,000 training "
        "images, which are not stored",
    },
    "made_by": "python -m benchmarks.recipes.zoo resnet20-cifar10",
    "licence": {
        "checkpoint": "BSD 2-Clause, Copyright (c) 2018 Yerlan Idelbayev; the checkpoint itself is not redistributed",
        "data": "CIFAR-10 and SVHN are available from their authors under their own terms; no image is redistributed",
        "logits": "computed by this project's own script; under the licence of the package",
    },
}


def read_images(data_dir: Path, name: str) -> tuple[Tensor, Tensor]:
    """uint8 images (N, 32, 32, 3) and labels (N,), by the folder's own load.py."""
    pixels, labels = reader(data_dir).images(name)
    return torch.from_numpy(pixels), torch.from_numpy(labels).long()


def normalise(pixels: Tensor) -> Tensor:
    """What the model takes, from uint8 images (N, 32, 32, 3)."""
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in NORMALISATION["linear"])
    return (pixels.permute(0, 3, 1, 2).float() / 255 - mean) / std


@torch.inference_mode()
def compute_logits(model: nn.Module, pixels: Tensor, batch: int = 250) -> Tensor:
    """(N, C) logits in float32."""
    return torch.cat([model(normalise(x)) for x in pixels.split(batch)])


def compute_odin(model: nn.Module, pixels: Tensor, batch: int = 250) -> Tensor:
    """(N,) ODIN scores with the paper's settings, for steps on the normalised pixels."""
    return odin_scores(model, (normalise(x) for x in pixels.split(batch)), temperature=1000.0, epsilon=0.0014)


def resnet20_cifar10(data_dir: Path, cache_dir: Path, checkpoint: Path | None = None) -> tuple[Sets, dict[str, Any]]:
    """ResNet-20: CIFAR-10 test, SVHN test, and the last 5,000 training images as a split that leaks."""
    checkpoint = checkpoint or data_dir / "cifar10_resnet20.th"
    digest = hashlib.sha256(checkpoint.read_bytes()).hexdigest()
    model, cache = load_resnet(checkpoint).eval(), Cache(cache_dir / digest[:12])

    def logits_of(key: str, pixels: Tensor) -> Tensor:
        return cache(f"{key}-logits", pixels, lambda x: compute_logits(model, x))

    def scored(key: str, name: str, pixels: Tensor, target: Tensor | None, logits: Tensor) -> LogitSet:
        odin = cache(f"{key}-odin", pixels, lambda x: compute_odin(model, x))
        return LogitSet(logits, target, {"odin": odin, "mahalanobis": mahalanobis_scores(train, logits)[0]}, name)

    pixels, labels = read_images(data_dir, "cifar10_train")
    logits = logits_of("cifar10_train", pixels)
    train = LogitSet(logits[:-SPLIT], labels[:-SPLIT], name="training")
    test, test_labels = read_images(data_dir, "cifar10_test")
    svhn, _ = read_images(data_dir, "svhn_test")
    split = pixels[-SPLIT:], labels[-SPLIT:], logits[-SPLIT:]
    sets = {
        "id": [scored("cifar10_test", "CIFAR-10 test", test, test_labels, logits_of("cifar10_test", test))],
        "ood": [scored("svhn_test", "svhn", svhn, None, logits_of("svhn_test", svhn))],
        "calibration": [scored("cifar10_split", "training samples", *split)],
    }
    return sets, RESNET20_CARD | {"checkpoint_sha256": digest}


RECIPES = {
    "resnet20-cifar10": resnet20_cifar10,
    "vit-cifar10": vit_cifar10,
    "roberta-agnews": roberta_agnews,
    "minilm-clinc150": minilm_clinc150,
}


def main() -> None:
    """Compute an entry and write it."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("name", choices=list(RECIPES))
    parser.add_argument("--data-dir", type=Path, default=ROOT / "data")
    parser.add_argument("--checkpoint", type=Path, help="of the trained model; ResNet-20 has its own in --data-dir")
    parser.add_argument("--out", type=Path, default=ROOT / "torch_boc" / "zoo")
    parser.add_argument("--cache", type=Path, default=Path(tempfile.gettempdir()) / "torch-boc-zoo")
    args = parser.parse_args()
    if args.checkpoint is None and args.name != "resnet20-cifar10":
        parser.error(f"{args.name} needs the --checkpoint of a trained model")
    sets, card = RECIPES[args.name](args.data_dir, args.cache / args.name, args.checkpoint)
    save_entry(args.out, args.name, sets, card)
    print(f"wrote {args.out / args.name}.npz and .json", flush=True)


if __name__ == "__main__":
    main()
