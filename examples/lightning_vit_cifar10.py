"""A small ViT (transformers) on CIFAR-10 with Lightning: the coherence gap each epoch, with SVHN as OOD data.

    python examples/lightning_vit_cifar10.py --smoke           # a minute on a CPU, synthetic images
    python examples/lightning_vit_cifar10.py --data-dir data   # the real thing, for a GPU

The steps return what the model returns, an output with `.logits`; `BoCCallback()` needs no more than that.
"""

from typing import Any

import lightning.pytorch as pl
import torch
from common import arguments, loaders, report
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import Tensor, nn
from transformers import ViTConfig, ViTForImageClassification

from torch_boc.lightning import BoCCallback


class Classifier(pl.LightningModule):
    """A ViT with patches of 4 × 4 pixels, trained from scratch."""

    def __init__(self, lr: float, size: int, width: int, depth: int) -> None:
        super().__init__()
        self.save_hyperparameters()
        shape = {"hidden_size": width, "num_hidden_layers": depth, "intermediate_size": 2 * width}
        config = ViTConfig(image_size=size, patch_size=4, num_attention_heads=width // 32, num_labels=10, **shape)
        self.model = ViTForImageClassification(config)

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Any:
        """The model's output holds the loss and the logits."""
        images, labels = batch
        output = self.model(images, labels=labels)
        self.log("train/loss", output.loss)
        return {"loss": output.loss, "logits": output.logits}

    def validation_step(self, batch: tuple[Tensor, Tensor], batch_idx: int, dataloader_idx: int = 0) -> Any:
        """Loader 0 is CIFAR-10; the labels of loader 1, SVHN, mean nothing here."""
        images, labels = batch
        output = self.model(images)
        if dataloader_idx == 0:
            self.log("val/loss", nn.functional.cross_entropy(output.logits, labels), add_dataloader_idx=False)
        return output

    def configure_optimizers(self) -> dict:
        """AdamW with a cosine schedule."""
        optimizer = torch.optim.AdamW(self.parameters(), self.hparams.lr, weight_decay=0.05)
        steps = int(self.trainer.estimated_stepping_batches)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


def main() -> None:
    """Train, validate each epoch, and print the last values."""
    args = arguments(__doc__.splitlines()[0], epochs=100, lr=5e-4)
    train, validation = loaders(args)
    coherence = BoCCallback(
        ood={1: "svhn"},
        scores=("msp", "energy", "logit_gap", "gap"),
        every_n_train_steps=5 if args.smoke else 50,
        plot_every_n_epochs=args.epochs,
    )
    keep = ModelCheckpoint(args.output_dir, monitor="val/loss", save_last=True)
    trainer = pl.Trainer(
        max_epochs=args.epochs,
        accelerator="cpu" if args.smoke else "auto",
        callbacks=[coherence, keep],
        default_root_dir=args.output_dir,
        log_every_n_steps=5,
    )
    model = Classifier(args.lr, *((16, 64, 2) if args.smoke else (32, 192, 9)))
    trainer.fit(model, train, validation, ckpt_path="last" if args.resume else None)
    report(trainer.callback_metrics)


if __name__ == "__main__":
    main()
