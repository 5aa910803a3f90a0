"""The probe as a validation metric in a plain PyTorch loop, on CIFAR-10 with SVHN as OOD data.

    python examples/metric_in_plain_loop.py --epochs 10
    python examples/metric_in_plain_loop.py --smoke        # noise for images, offline

It prints one line per epoch; `free_gap` is the part of the gap that confidence does not force.
"""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset
from torchvision import datasets, transforms
from torchvision.models import resnet18

from torch_boc import BoCMetric, BoCSeparation

KEYS = ("accuracy", "confidence", "dominance", "gap", "free_gap", "ece", "msp_auroc", "dominance_auroc")


def real_data(root: str) -> list[Dataset]:
    """CIFAR-10 for training and validation, and SVHN."""
    prepare = transforms.Compose([transforms.ToTensor(), transforms.Normalize([0.49, 0.48, 0.45], [0.25, 0.24, 0.26])])
    images = [datasets.CIFAR10(root, train, prepare, download=True) for train in (True, False)]
    return [*images, datasets.SVHN(root, "test", prepare, download=True)]


def smoke_data() -> list[Dataset]:
    """A pattern for each class with noise, and noise without a pattern."""
    labels = torch.arange(160) % 10
    noise = torch.randn(200, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    images = noise[:160] + noise[labels + 160]
    sets = ((images[:120], labels[:120]), (images[120:], labels[120:]), (noise[:40], labels[:40]))
    return [TensorDataset(*tensors) for tensors in sets]


@torch.inference_mode()
def validate(model: nn.Module, in_distribution: DataLoader, ood: DataLoader, device: str) -> dict[str, torch.Tensor]:
    """Update the metrics with each batch, and compute them at the end. A GPU waits at the end only."""
    model.eval()
    metric, separation = BoCMetric().to(device), BoCSeparation(("msp", "dominance")).to(device)
    for images, labels in in_distribution:
        logits = model(images.to(device))
        metric.update(logits, labels.to(device))
        separation.update(logits, ood=False)
    for images, _ in ood:
        separation.update(model(images.to(device)), ood=True)
    return {**metric.compute(), **separation.compute()}


def main() -> None:
    """Train, and validate after each epoch."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="data", help="where the datasets are, or go")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--smoke", action="store_true")
    args = parser.parse_args()
    try:
        train, *others = smoke_data() if args.smoke else real_data(args.data)
    except (OSError, RuntimeError) as error:
        raise SystemExit(f"could not get the datasets: {error}\nOffline? Try --smoke.") from error
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = resnet18(num_classes=10).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for epoch in range(2 if args.smoke else args.epochs):
        model.train()
        for images, labels in DataLoader(train, batch_size=40 if args.smoke else 128, shuffle=True):
            loss = nn.functional.cross_entropy(model(images.to(device)), labels.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        result = validate(model, *(DataLoader(x, batch_size=128) for x in others), device)
        print(f"epoch {epoch}:", *(f"{key} {result[key]:.3f}" for key in KEYS), sep="  ", flush=True)


if __name__ == "__main__":
    main()
