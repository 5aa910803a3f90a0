"""ResNet-20 (blocks of torchvision) on CIFAR-10 with Lightning: the gap each epoch, with SVHN as OOD data.

    python examples/lightning_resnet_cifar10.py --smoke           # a minute on a CPU, synthetic images
    python examples/lightning_resnet_cifar10.py --data-dir data   # the real thing: half an hour or so on a CPU
    python examples/lightning_resnet_cifar10.py --data-dir data --resume    # resumes after the last whole epoch

The one line for torch_boc is the `BoCCallback`; the module has no code of it.
"""

import lightning.pytorch as pl
import torch
from common import arguments, loaders, report, trainer, warm_up_and_cosine
from torch import Tensor, nn
from torchvision.models.resnet import BasicBlock, conv1x1, conv3x3

from torch_boc.functional.summary import DEFAULT_KEYS
from torch_boc.lightning import BoCCallback

OPTIONS = {"--known": {"type": int, "default": 10, "help": "classes to train on; the others are then the OOD data"}}


def resnet20(num_classes: int) -> nn.Sequential:
    """Three stages of three blocks for small images, as in the paper of the ResNets."""
    layers: list[nn.Module] = [conv3x3(3, 16), nn.BatchNorm2d(16), nn.ReLU()]
    for before, width in ((16, 16), (16, 32), (32, 64)):
        shorter = None if before == width else nn.Sequential(conv1x1(before, width, 2), nn.BatchNorm2d(width))
        layers.append(BasicBlock(before, width, width // before, shorter))
        layers += [BasicBlock(width, width), BasicBlock(width, width)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, num_classes))


class Classifier(pl.LightningModule):
    """ResNet-20, trained from scratch."""

    def __init__(self, lr: float, num_classes: int = 10) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.model = resnet20(num_classes)

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        """The loss of a batch."""
        images, labels = batch
        loss = nn.functional.cross_entropy(self.model(images), labels)
        self.log("train/loss", loss)
        return loss

    def validation_step(self, batch: tuple[Tensor, Tensor], batch_idx: int, dataloader_idx: int = 0) -> None:
        """Loader 0 is CIFAR-10; the labels of loader 1, SVHN, mean nothing here.

        With several loaders Lightning requires `dataloader_idx`, and would log val/loss/dataloader_idx_0 without the
        `add_dataloader_idx=False`.
        """
        images, labels = batch
        logits = self.model(images)
        if dataloader_idx == 0:
            self.log("val/loss", nn.functional.cross_entropy(logits, labels), add_dataloader_idx=False)

    def configure_optimizers(self) -> dict:
        """SGD with a warm-up and a cosine schedule."""
        optimizer = torch.optim.SGD(self.parameters(), self.hparams.lr, momentum=0.9, weight_decay=5e-4, nesterov=True)
        schedule = warm_up_and_cosine(optimizer, int(self.trainer.estimated_stepping_batches))
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


def main() -> None:
    """Train, validate each epoch, and print the last values."""
    args = arguments(__doc__.splitlines()[0], OPTIONS, epochs=15, lr=0.2)
    pl.seed_everything(42)
    train, validation = loaders(args)
    coherence = BoCCallback(
        ood={1: "svhn" if args.known == 10 else "other classes"},
        keys=(*DEFAULT_KEYS, "forced_gap"),
        scores=("msp", "energy", "logit_gap", "gap"),
        page=True,
    )
    fitting = trainer(args, coherence)
    fitting.fit(Classifier(args.lr, args.known), train, validation, ckpt_path="last" if args.resume else None)
    report(fitting.callback_metrics)


if __name__ == "__main__":
    main()
