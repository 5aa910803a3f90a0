"""ResNet-18 (torchvision) on CIFAR-10 with Lightning: the coherence gap each epoch, with SVHN as OOD data.

    python examples/lightning_resnet_cifar10.py --smoke           # a minute on a CPU, synthetic images
    python examples/lightning_resnet_cifar10.py --data-dir data   # the real thing, for a GPU

The one line for torch_boc is the `BoCCallback`; the module knows nothing of it.
"""

import lightning.pytorch as pl
import torch
from common import arguments, loaders, report, trainer, warm_up_and_cosine
from torch import Tensor, nn
from torchvision.models import resnet18

from torch_boc.lightning import BoCCallback


class Classifier(pl.LightningModule):
    """ResNet-18 with a stem for small images."""

    def __init__(self, lr: float) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.model = resnet18(num_classes=10)
        self.model.conv1 = nn.Conv2d(3, 64, 3, padding=1, bias=False)
        self.model.maxpool = nn.Identity()

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        """The loss of a batch."""
        images, labels = batch
        loss = nn.functional.cross_entropy(self.model(images), labels)
        self.log("train/loss", loss)
        return loss

    def validation_step(self, batch: tuple[Tensor, Tensor], batch_idx: int, dataloader_idx: int = 0) -> None:
        """Loader 0 is CIFAR-10; the labels of loader 1, SVHN, mean nothing here.

        With several loaders Lightning wants `dataloader_idx`, and would log val/loss/dataloader_idx_0 without the
        `add_dataloader_idx=False`.
        """
        images, labels = batch
        logits = self.model(images)
        if dataloader_idx == 0:
            self.log("val/loss", nn.functional.cross_entropy(logits, labels), add_dataloader_idx=False)

    def configure_optimizers(self) -> dict:
        """SGD with a warm-up and a cosine schedule."""
        optimizer = torch.optim.SGD(self.parameters(), self.hparams.lr, momentum=0.9, weight_decay=5e-4)
        schedule = warm_up_and_cosine(optimizer, int(self.trainer.estimated_stepping_batches))
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


def main() -> None:
    """Train, validate each epoch, and print the last values."""
    args = arguments(__doc__.splitlines()[0], epochs=30, lr=0.1)
    pl.seed_everything(42)
    train, validation = loaders(args)
    coherence = BoCCallback(
        logits="model",  # the submodule that returns the logits
        ood={1: "svhn"},
        keys=("gap", "free_gap", "confidence", "dominance", "rejection_rate", "accuracy", "ece_confidence", "nll"),
        plot_every_n_epochs=args.epochs,
    )
    fitting = trainer(args, coherence)
    fitting.fit(Classifier(args.lr), train, validation, ckpt_path="last" if args.resume else None)
    report(fitting.callback_metrics)


if __name__ == "__main__":
    main()
