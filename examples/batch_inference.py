"""Run an image classifier over a folder, and write the numbers of the probe for each image to a Parquet file.

    python examples/batch_inference.py photos/ --device cuda --dtype bfloat16
    python examples/batch_inference.py photos/ --model google/vit-base-patch16-224 --resume
    python examples/batch_inference.py --smoke        # a random network on noise, offline

`photos/` has a subfolder for each class, as torchvision's ImageFolder wants. `--resume` continues an interrupted run.
"""

import argparse
from pathlib import Path

import pandas
import torch
from torch.utils.data import DataLoader, TensorDataset
from torchvision.datasets import ImageFolder
from torchvision.models import get_model, get_model_weights, resnet18

from torch_boc import BoCPredictor


def from_torchvision(name: str, folder: Path, batch_size: int) -> tuple[torch.nn.Module, DataLoader]:
    """A model with its weights, and batches (images, folder of each)."""
    weights = get_model_weights(name).DEFAULT
    images = ImageFolder(folder, transform=weights.transforms())
    return get_model(name, weights=weights), DataLoader(images, batch_size, num_workers=4, pin_memory=True)


def from_hugging_face(name: str, folder: Path, batch_size: int) -> tuple[torch.nn.Module, DataLoader]:
    """The same. The processor makes batches that are dicts, which the predictor takes."""
    from transformers import AutoImageProcessor, AutoModelForImageClassification

    processor = AutoImageProcessor.from_pretrained(name)

    def collate(samples: list) -> dict:
        images, labels = zip(*samples, strict=True)
        return {**processor(images=list(images), return_tensors="pt"), "labels": torch.tensor(labels)}

    loader = DataLoader(ImageFolder(folder), batch_size, collate_fn=collate, num_workers=4, pin_memory=True)
    return AutoModelForImageClassification.from_pretrained(name), loader


def smoke() -> tuple[torch.nn.Module, DataLoader]:
    """A random ResNet-18 on 96 images of noise."""
    return resnet18(num_classes=10), DataLoader(TensorDataset(torch.randn(96, 3, 64, 64)), batch_size=32)


def main() -> None:
    """Predict, write, and show the images with the highest concentration."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--model", default="resnet50", help="a name of torchvision, or owner/name of Hugging Face")
    parser.add_argument("--output", type=Path, default=Path("samples.parquet"))
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--dtype", choices=["bfloat16", "float16"])
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--smoke", action="store_true")
    args = parser.parse_args()
    if not args.smoke and args.folder is None:
        parser.error("give a folder of images, or --smoke")
    load = from_hugging_face if "/" in args.model else from_torchvision
    try:
        model, loader = smoke() if args.smoke else load(args.model, args.folder, args.batch_size)
    except OSError as error:
        raise SystemExit(f"could not load {args.model} or {args.folder}: {error}\nOffline? Try --smoke.") from error

    dtype = getattr(torch, args.dtype) if args.dtype else None
    predictor = BoCPredictor(model, device=args.device, dtype=dtype)
    path = predictor.to_parquet(loader, args.output, resume=args.resume)

    samples = pandas.read_parquet(path)
    print(samples[["confidence", "dominance", "gap", "concentration", "p_value"]].describe().round(4))
    print("\nhighest concentration: the probability is on the fewest rivals")
    print(samples.nlargest(5, "concentration")[["index", "prediction", "confidence", "gap", "concentration"]])


if __name__ == "__main__":
    main()
