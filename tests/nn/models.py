"""Small random models of the three kinds that users bring, with a batch for each."""

import io
from typing import Any

import torch
from torch import Tensor, nn

SMALL = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
SMALL["initializer_range"] = 0.5  # for logits that differ


def linear(classes: int = 5) -> nn.Module:
    """Three features in, logits of some confidence out."""
    torch.manual_seed(0)
    model = nn.Linear(3, classes)
    with torch.no_grad():
        model.weight.mul_(5)
    return model


def vit(classes: int = 5) -> nn.Module:
    """Transformers' ViT on 16 x 16 images."""
    from transformers import ViTConfig, ViTForImageClassification

    torch.manual_seed(0)
    return ViTForImageClassification(ViTConfig(**SMALL, image_size=16, patch_size=8, num_labels=classes)).eval()


def roberta(classes: int = 4) -> nn.Module:
    """Transformers' RoBERTa for sequences of up to 20 tokens out of 50."""
    from transformers import RobertaConfig, RobertaForSequenceClassification

    torch.manual_seed(0)
    config = RobertaConfig(**SMALL, vocab_size=50, max_position_embeddings=24, num_labels=classes)
    return RobertaForSequenceClassification(config).eval()


def resnet(classes: int = 10) -> nn.Module:
    """Torchvision's ResNet-18."""
    from torchvision.models import resnet18

    torch.manual_seed(0)
    return resnet18(num_classes=classes).eval()


def images(samples: int, size: int = 16, seed: int = 0) -> Tensor:
    """Noise of shape (samples, 3, size, size)."""
    return torch.randn(samples, 3, size, size, generator=torch.Generator().manual_seed(seed))


def tokens(samples: int, length: int = 7, seed: int = 0) -> dict[str, Tensor]:
    """What a tokenizer gives for sentences of different length."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(3, 50, (samples, length), generator=generator)
    mask = torch.arange(length) < torch.randint(3, length + 1, (samples, 1), generator=generator)
    return {"input_ids": ids.where(mask, 1), "attention_mask": mask.long()}


def saved(state: Any) -> Any:
    """What comes back from a file."""
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)
