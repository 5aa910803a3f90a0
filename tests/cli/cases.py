"""Made-up samples."""

import torch


def samples(rows, strength, classes=4, seed=0):
    """Logits that know their targets the better, the greater the strength, and a score."""
    generator = torch.Generator().manual_seed(seed)
    target = torch.arange(rows) % classes
    logits = 2 * torch.randn(rows, classes, generator=generator) + strength * torch.eye(classes)[target]
    return {"logits": logits.numpy(), "target": target.numpy(), "knn": logits.amax(1).numpy()}
