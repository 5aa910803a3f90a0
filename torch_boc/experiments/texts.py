"""AG News and DBPedia-14, from the original .csv files, from folders of `datasets`, or from the hub."""

import csv
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .._optional import require, require_pyarrow
from ..data.atomic import replacing
from .fetch import TIMEOUT, fetching

Labelled = tuple[list[str], Tensor]

HUB = {"ag_news": "fancyzhx/ag_news", "dbpedia_14": "fancyzhx/dbpedia_14"}
PARTS = {
    "ag_news_train": ("ag_news", "train"),
    "ag_news_test": ("ag_news", "test"),
    "dbpedia_test": ("dbpedia_14", "test"),
}
CSV_FILES = {
    "ag_news_train": ("ag_news_csv/train.csv", "ag_news/train.csv", "train.csv"),
    "ag_news_test": ("ag_news_csv/test.csv", "ag_news/test.csv", "test.csv"),
    "dbpedia_test": ("dbpedia_csv/test.csv", "dbpedia_14/test.csv", "dbpedia.csv"),
}


def read_texts(folder: Path, name: str) -> Labelled:
    """Texts and labels (N,) from 0 of ag_news_train, ag_news_test or dbpedia_test.

    They are read from a .csv file with the columns class (from 1), title and text, or from a folder ag_news or
    dbpedia_14 that `save_to_disk` of `datasets` wrote. A text of AG News is the title and the text with a space
    between, as on the hub; a text of DBPedia is the abstract alone.
    """
    for file in CSV_FILES[name]:
        if (folder / file).is_file():
            return _read_csv(folder / file, name)
    source, split = PARTS[name]
    if (folder / source / split / "state.json").is_file():
        return _read_saved(folder / source / split)
    wanted = " or ".join((*CSV_FILES[name], f"{source}/{split}/state.json"))
    raise FileNotFoundError(f"{folder}: expected {wanted} there, got no such file")


def fetch_texts(folder: Path, name: str, local: str) -> Labelled:
    """The same from `folder`, in which downloads of `datasets` are kept as a .csv file."""
    try:
        return read_texts(folder, name)
    except FileNotFoundError:
        datasets = require("datasets", purpose="downloading texts needs", otherwise="give --data-dir")
    source, split = PARTS[name]
    with fetching(f"{HUB[source]} from the Hugging Face hub", local):
        _knock(HUB[source])
        data = datasets.load_dataset(HUB[source], split=split)
    texts, labels = _columns(data.column_names, lambda column: list(data[column]), HUB[source])
    path = folder / CSV_FILES[name][0]
    with replacing(path) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows((label + 1, "", text) for text, label in zip(texts, labels.tolist(), strict=True))
    return texts, labels


def _knock(name: str) -> None:
    """Make one request without repetition. `datasets` would try again for minutes, with a message each time."""
    import huggingface_hub

    if not huggingface_hub.constants.HF_HUB_OFFLINE:
        huggingface_hub.HfApi().dataset_info(name, timeout=TIMEOUT)


def _read_csv(path: Path, name: str) -> Labelled:
    texts, labels = [], []
    with path.open(encoding="utf-8", newline="") as file:
        for number, row in enumerate(_rows(file, path)):
            if number == 0 and row and not row[0].strip().isdigit():
                continue  # some copies have a header
            if len(row) != 3 or not row[0].strip().isdigit():
                raise ValueError(
                    f"{path}: expected class, title, text in each row, got {row!r:.60} in row {number + 1}"
                )
            texts.append(row[2] if name.startswith("dbpedia") else " ".join(filter(None, row[1:])))
            labels.append(int(row[0]) - 1)
    return texts, torch.tensor(labels, dtype=torch.long)


def _rows(file: Iterable[str], path: Path) -> Iterable[list[str]]:
    try:
        yield from csv.reader(file)
    except (csv.Error, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: expected a .csv file in UTF-8, got {error}") from error


def _read_saved(folder: Path) -> Labelled:
    """What `save_to_disk` wrote: Arrow streams that state.json lists."""
    arrow = require_pyarrow()
    try:
        files = [part["filename"] for part in json.loads((folder / "state.json").read_text())["_data_files"]]
        tables = []
        for file in files:
            with arrow.OSFile(str(folder / file)) as source:
                tables.append(arrow.ipc.open_stream(source).read_all())
        table = arrow.concat_tables(tables)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"{folder}: expected a data set of save_to_disk, got {type(error).__name__}: {error}"
        ) from error
    return _columns(table.column_names, lambda column: table[column].to_pylist(), str(folder))


def _columns(names: list[str], read: Any, where: str) -> Labelled:
    """Texts and labels. The column of texts is called "text" in AG News and "content" in DBPedia-14."""
    column = next((name for name in ("text", "content") if name in names), None)
    if column is None or "label" not in names:
        raise ValueError(f"{where}: expected the columns label and text or content, got {', '.join(names)}")
    return read(column), torch.tensor(read("label"), dtype=torch.long)
