"""Write datasets in the layouts that the examples read: `python -m benchmarks.recipes.layouts DATA OUT`.

DATA is a folder with a `load.py` whose `images(name)`, `news(name)` and `intents()` give arrays and texts. OUT gets
cifar10_train.npz, cifar10_test.npz and svhn_test.npz (arrays x, y), train.csv and test.csv of AG News and dbpedia.csv
of DBPedia (class from 1, title, text; no header), and data_full.json of CLINC150, as their makers publish them.
"""

import argparse
import csv
import importlib.util
import json
from pathlib import Path
from typing import Any

import numpy as np

from torch_boc.data.atomic import replacing

IMAGES = ("cifar10_train", "cifar10_test", "svhn_test")
NEWS = {"train": "ag_news_train", "test": "ag_news_test", "dbpedia": "dbpedia"}


def reader(folder: Path) -> Any:
    """The folder's own `load.py` as a module."""
    spec = importlib.util.spec_from_file_location("load", folder / "load.py")
    if spec is None or spec.loader is None or not (folder / "load.py").exists():
        raise FileNotFoundError(f"expected a folder with load.py, got {folder}")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def write_images(load: Any, name: str, path: Path) -> None:
    """One set of images as an .npz file."""
    pixels, labels = load.images(name)
    with replacing(path) as temporary, temporary.open("wb") as file:
        np.savez(file, x=pixels, y=labels)


def write_news(load: Any, name: str, path: Path) -> None:
    """One set of texts as a .csv file; title and body are joined already, so the title is left empty."""
    texts, labels = load.news(name)
    with replacing(path) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows((int(label) + 1, "", text) for text, label in zip(texts, labels, strict=True))


def write_intents(load: Any, path: Path) -> None:
    """All parts of CLINC150: lists of [text, intent] by the name of the part."""
    parts = {part: list(zip(*rows, strict=True)) for part, rows in load.intents().items()}
    with replacing(path) as temporary:
        temporary.write_text(json.dumps(parts, ensure_ascii=False), encoding="utf-8")


def main() -> None:
    """Write what is not there yet."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    args = parser.parse_args()
    load = reader(args.data)
    args.out.mkdir(parents=True, exist_ok=True)
    for name in IMAGES:
        if not (args.out / f"{name}.npz").exists():
            write_images(load, name, args.out / f"{name}.npz")
    for stem, name in NEWS.items():
        if not (args.out / f"{stem}.csv").exists():
            write_news(load, name, args.out / f"{stem}.csv")
    if not (args.out / "data_full.json").exists():
        write_intents(load, args.out / "data_full.json")


if __name__ == "__main__":
    main()
