"""A small ViT (transformers) on CIFAR-10 with Lightning: the coherence gap each epoch, with SVHN as OOD data.

    python examples/lightning_vit_cifar10.py --smoke           # a minute on a CPU, synthetic images
    python examples/lightning_vit_cifar10.py --data-dir data   # the real thing: an hour or so on a CPU
    python examples/lightning_vit_cifar10.py --data-dir data --resume    # resumes after the last whole epoch

The module has no torch_boc code: the callback sees the logits that the loss gets.
"""

import lightning.pytorch as pl
import torch
from common import arguments, loaders, report, trainer, warm_up_and_cosine
from torch import Tensor, nn
from transformers import ViTConfig, ViTForImageClassification

from torch_boc.functional.summary import DEFAULT_KEYS
from torch_boc.lightning import BoCCallback


class Stem(nn.Sequential):
    """Convolutions instead of the one that cuts patches."""

    @property
    def weight(self) -> Tensor:
        """The ViT takes its dtype from here."""
        return self[0].weight


def compact_vit(size: int, width: int, depth: int) -> ViTForImageClassification:
    """A ViT over patches of 4 × 4 pixels that three convolutions see first: a head start that small datasets need."""
    shape = {"hidden_size": width, "num_hidden_layers": depth, "intermediate_size": 2 * width}
    config = ViTConfig(image_size=size, patch_size=4, num_attention_heads=width // 32, num_labels=10, **shape)
    model = ViTForImageClassification(config)
    layers: list[nn.Module] = []
    for before, after, stride in ((3, width // 3, 1), (width // 3, 2 * width // 3, 2), (2 * width // 3, width, 2)):
        layers += [nn.Conv2d(before, after, 3, stride, padding=1, bias=False), nn.BatchNorm2d(after), nn.ReLU()]
    model.vit.embeddings.patch_embeddings.projection = Stem(*layers[:-1])
    return model.to(memory_format=torch.channels_last)  # in which convolutions are faster on a CPU


class Classifier(pl.LightningModule):
    """A compact ViT, trained from scratch."""

    def __init__(self, lr: float, size: int, width: int, depth: int) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.model = compact_vit(size, width, depth)

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        """The model computes the loss."""
        images, labels = batch
        loss: Tensor = self.model(images, labels=labels).loss
        self.log("train/loss", loss)
        return loss

    def validation_step(self, batch: tuple[Tensor, Tensor], batch_idx: int, dataloader_idx: int = 0) -> None:
        """Loader 0 is CIFAR-10; the labels of loader 1, SVHN, mean nothing here."""
        images, labels = batch
        output = self.model(images)
        if dataloader_idx == 0:
            self.log("val/loss", nn.functional.cross_entropy(output.logits, labels), add_dataloader_idx=False)

    def configure_optimizers(self) -> dict:
        """AdamW with a warm-up and a cosine schedule."""
        optimizer = torch.optim.AdamW(self.parameters(), self.hparams.lr, weight_decay=0.05)
        schedule = warm_up_and_cosine(optimizer, int(self.trainer.estimated_stepping_batches))
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


def main() -> None:
    """Train, validate each epoch, and print the last values."""
    args = arguments(__doc__.splitlines()[0], epochs=20, lr=2e-3, batch_size=128)
    pl.seed_everything(42)
    train, validation = loaders(args)
    coherence = BoCCallback(
        keys=(*DEFAULT_KEYS, "forced_gap"),
        ood={1: "svhn"},
        scores=("msp", "energy", "logit_gap", "gap"),
        every_n_train_steps=5 if args.smoke else 50,
        page=True,
    )
    model = Classifier(args.lr, *((16, 96, 2) if args.smoke else (32, 96, 6)))
    fitting = trainer(args, coherence)
    fitting.fit(model, train, validation, ckpt_path="last" if args.resume else None)
    report(fitting.callback_metrics)


if __name__ == "__main__":
    main()
