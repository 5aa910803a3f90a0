"""A small ResNet and a small ViT learn the digits 0 to 7 while `BoCCallback` writes a page about each; no download.

The module is plain Lightning, and the one line for torch_boc is the callback. 8 and 9 are held back for validation.
"""

import argparse
import logging
import warnings
from pathlib import Path

import lightning.pytorch as pl
import torch
from matplotlib.figure import Figure
from rich.progress import Progress
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torchvision import models

from torch_boc.lightning import BoCCallback

SHOWN = ("accuracy", "gap", "ood/gap", "ood/gap_auroc")
QUIET = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)
CURVES = (("ood/", "#d55e00", "8 and 9, OOD"), ("", "#0072b2", "0 to 7"))
INK = "#737b86"  # legible on light and dark pages


class Classifier(pl.LightningModule):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def training_step(self, batch, batch_idx):
        return nn.functional.cross_entropy(self.model(batch[0]), batch[1])

    def validation_step(self, batch, batch_idx, dataloader_idx=0):
        self.model(batch[0])

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=5e-4)


parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--out", type=Path, default="live-digits", help="the folder of the pages")
parser.add_argument("--figure", help="also draw the gap of both networks into this file")
parser.add_argument("--epochs", type=int, default=15)
args = parser.parse_args()
logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
warnings.filterwarnings("ignore", module="lightning")  # about the number of workers and the like
torch.set_num_threads(1)  # networks of this size gain little from more
torch.manual_seed(0)
images, labels = map(torch.tensor, load_digits(return_X_y=True))
images, order = (images.float() / 8 - 1).view(-1, 1, 8, 8).expand(-1, 3, 8, 8), torch.randperm(len(labels))
known, held_back = order[labels[order] < 8], order[labels[order] > 7]
train, *validation = (TensorDataset(images[rows], labels[rows]) for rows in (known[400:], known[:400], held_back))
resnet = models.ResNet(models.resnet.BasicBlock, [1, 1, 1, 1], num_classes=8)  # for 8 x 8 pixels: two stages
resnet.conv1, resnet.fc = nn.Conv2d(3, 64, 3, padding=1, bias=False), nn.Linear(128, 8)
resnet.maxpool = resnet.layer3 = resnet.layer4 = nn.Identity()
vit = models.VisionTransformer(8, patch_size=2, num_layers=3, num_heads=4, hidden_dim=64, mlp_dim=128, num_classes=8)
figure = Figure((7.2, 3.4), layout="constrained")
with Progress() as bar:
    bar.console.print("val/boc/... of the callback, first and last epoch: held-out 0 to 7, and 8 and 9 as OOD:")
    for name, model, axes in zip(("ResNet", "ViT"), (resnet, vit), figure.subplots(1, 2, sharey=True), strict=True):
        task, logged = bar.add_task(name, total=args.epochs), []

        def show(trainer, module, name=name, task=task, logged=logged):
            logged.append({key.removeprefix("val/boc/"): float(x) for key, x in trainer.callback_metrics.items()})
            if len(logged) in (1, args.epochs):
                bar.console.print(f"{name:6} {len(logged):2}", *(f" {key} {logged[-1][key]:.3f}" for key in SHOWN))
            bar.advance(task)

        options = {"keys": ("accuracy", "gap", "forced_gap"), "scores": ("gap",), "max_error": 0.05}
        callback = BoCCallback(page=True, ood={1: "ood"}, **options)
        callbacks, folder = [callback, pl.callbacks.LambdaCallback(on_train_epoch_end=show)], args.out / name
        where = {"accelerator": "cpu", "default_root_dir": folder}
        trainer = pl.Trainer(max_epochs=args.epochs, callbacks=callbacks, **where, **QUIET)
        trainer.fit(Classifier(model), DataLoader(train, 32, shuffle=True), [DataLoader(x, 400) for x in validation])
        for prefix, color, label in CURVES:
            gap, forced = ([x[prefix + key] for x in logged] for key in ("gap", "forced_gap"))
            axes.plot(range(1, args.epochs + 1), gap, "o-", color=color, ms=4)
            axes.plot(range(1, args.epochs + 1), forced, ":", color=color)
            end = {"xy": (args.epochs, gap[-1]), "xytext": (0, 8), "textcoords": "offset points", "ha": "right"}
            axes.annotate(label if name == "ResNet" else "", color=color, **end)
        title = "{}: accuracy {accuracy:.0%}, AUROC {ood/gap_auroc:.2f}".format(name, **logged[-1])
        axes.set(xlabel="epoch", ylabel="coherence gap Δ", xticks=range(1, args.epochs + 1, 2), ylim=(0, 0.5))
        axes.set_title(title, color=INK)
        axes.text(1, 0.02, "dotted: forced by confidence" if name == "ViT" else "", color=INK)
        axes.tick_params(colors=INK)
        axes.spines[["top", "right"]].set_visible(False)
        axes.spines[["left", "bottom"]].set_color(INK)
        axes.xaxis.label.set_color(INK)
        axes.yaxis.label.set_color(INK)
        bar.console.print(f"The page of this training: {folder / 'boc.html'}")
if args.figure:
    figure.savefig(args.figure, dpi=150, transparent=True)
