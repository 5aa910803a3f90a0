"""Write the page and its figures: `python -m benchmarks.language FOLDER --gguf FILE`."""

import argparse
import tempfile
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from benchmarks.language import figures
from benchmarks.language.analysis import rows_of
from benchmarks.language.collect import Columns, Model, collect
from benchmarks.language.page import MAIN, page
from benchmarks.language.texts import MANUALS, SETS
from torch_boc.data.atomic import write
from torch_boc.plots import image

HERE = Path(__file__).parent
DATA = HERE.parents[1] / "data"
SECOND, BEGINNING = "Gemma-3-270M", (2,)


def main() -> None:
    """Compute what is not in the cache, and write everything."""
    args = _arguments()
    args.cache.mkdir(parents=True, exist_ok=True)
    rows = rows_of(MAIN, _columns(_load(MAIN, args.folder, args.gguf, (), args.share), args))
    if args.second is not None:
        second = _load(SECOND, args.second.parent, args.second.name, BEGINNING, args.second_share)
        rows += rows_of(SECOND, _columns(second, args, SETS_OF_SECOND))
    table = pd.DataFrame(rows)
    write(HERE / "numbers.csv", table.to_csv(index=False).encode())
    write_page(pd.read_csv(HERE / "numbers.csv"))


SETS_OF_SECOND = ("news", "Python help")


def write_page(table: pd.DataFrame) -> None:
    """Write the page and its figures from the table of numbers."""
    sets = [name for name in SETS if figures.of(table, MAIN, name)]
    natural = [name for name in sets if name in ("news", "encyclopedia", "Python help", "manuals")]
    drawn = {
        "reliability": figures.reliability(table, MAIN, sets),
        "separation": figures.separation(table, MAIN, natural),
        "contrasts": figures.contrasts(table, MAIN),
    }
    for name, figure in drawn.items():
        write(HERE / f"{name}.png", image(figure, "png"))
    path = write(HERE / "README.md", page(table, tinted=(HERE / "tinted.png").exists()).encode())
    print(f"wrote {path}")


def _arguments() -> Any:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="the folder of SmolLM2")
    parser.add_argument("--gguf", help="its GGUF file")
    parser.add_argument("--second", type=Path, help="the GGUF file of Gemma-3-270M")
    parser.add_argument("--data", type=Path, default=DATA, help="a folder with AG News and DBPedia")
    parser.add_argument("--cache", type=Path, default=Path(tempfile.gettempdir()) / "boc-language")
    parser.add_argument("--share", type=float, default=1.0, help="how much of the texts to read")
    parser.add_argument("--second-share", type=float, default=0.25, help="the same for --second")
    return parser.parse_args()


def _load(name: str, folder: Path, gguf: str | None, before: tuple[int, ...], share: float) -> Model:
    options = {"gguf_file": gguf} if gguf else {}
    tokenizer = AutoTokenizer.from_pretrained(folder, **options)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, **options)
    return Model(name, model, tokenizer, before, share)


def _columns(model: Model, args: Any, names: tuple[str, ...] = tuple(SETS)) -> dict[str, Columns]:
    """The columns of every set whose texts are there."""
    columns = {}
    for name in names:
        texts = SETS[name]
        if texts.needs_data and not (args.data / "load.py").exists():
            print(f"skipping {name}: expected the data in {args.data}; give --data")
        elif name.startswith("manuals") and not MANUALS.exists():
            print(f"skipping {name}: expected manual pages in {MANUALS}")
        else:
            columns[name] = collect(model, name, texts, args.data, args.cache)
    return columns


if __name__ == "__main__":
    main()
