"""CIFAR-10, SVHN, AG News and DBPedia-14 from the files that their makers publish, which are fetched if need be."""

import csv
import pickle
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

TIMEOUT = 10.0  # seconds without an answer
BATCHES = "cifar-10-batches-py"
IMAGES = {
    "cifar10_train": [f"data_batch_{i}" for i in range(1, 6)],
    "cifar10_test": ["test_batch"],
    "svhn_test": ["test_32x32.mat"],
}
# The data set on the hub, its file there, and the names of the original .csv files.
TEXTS = {
    "ag_news_train": ("fancyzhx/ag_news", "data/train-*.parquet", ("ag_news_csv/train.csv", "train.csv")),
    "ag_news_test": ("fancyzhx/ag_news", "data/test-*.parquet", ("ag_news_csv/test.csv", "test.csv")),
    "dbpedia_test": ("fancyzhx/dbpedia_14", "dbpedia_14/test-*.parquet", ("dbpedia_csv/test.csv", "dbpedia.csv")),
}


@contextmanager
def fetching(what: str) -> Iterator[None]:
    """For downloads by other people's libraries: any failure becomes one ConnectionError in one line.

    These libraries fail in many ways (errors of urllib, requests, httpx and their own, not all of which are OSErrors),
    and some wait for ever or print to stdout. In this block they have a timeout, and print to stderr.
    """
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(TIMEOUT)
    try:
        with redirect_stdout(sys.stderr):
            yield
    except ImportError:
        raise
    except Exception as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".:")
        raise ConnectionError(
            f"could not fetch {what} ({reason}); connect to the internet, or give local copies with --model and "
            "--data-dir"
        ) from error
    finally:
        socket.setdefaulttimeout(before)


def load_data(name: str, folder: Path, *, fetch: bool) -> tuple[Tensor | list[str], Tensor]:
    """Inputs and labels (N,) of a set of `IMAGES` or `TEXTS`, from `folder`, into which missing files are fetched."""
    read, get = (_read_images, _fetch_images) if name in IMAGES else (_read_texts, _fetch_texts)
    try:
        return read(folder, name)
    except FileNotFoundError:
        if not fetch:
            raise
    get(folder, name)
    return read(folder, name)


def _read_images(folder: Path, name: str) -> tuple[Tensor, Tensor]:
    """Images (N, 3, H, W) in uint8 and labels.

    They are read from the unpacked Python version of CIFAR-10, from SVHN's cropped digits, or from `name`.npz with
    arrays x (N, H, W, 3) and y (N,). torchvision would refuse files that differ from the published ones in any byte.
    """
    places = (folder / BATCHES, folder)
    found = next((place for place in places if all((place / file).is_file() for file in IMAGES[name])), None)
    single = folder / f"{name}.npz"
    if found is None and not single.is_file():
        raise FileNotFoundError(f"{folder}: expected {IMAGES[name][0]} or {single.name} there, got no such file")
    files = [single] if found is None else [found / file for file in IMAGES[name]]
    read = _read_npz if found is None else _read_svhn if name == "svhn_test" else _read_batch
    try:
        parts = [read(path) for path in files]
    except Exception as error:  # a damaged file can raise any error
        reason = f"{type(error).__name__}: {' '.join(str(error).split())}"
        raise ValueError(f"{files[0]}: expected images as they are published, got {reason}") from error
    return torch.cat([part[0] for part in parts]).contiguous(), torch.cat([part[1] for part in parts]).long()


def _read_npz(path: Path) -> tuple[Tensor, Tensor]:
    with np.load(path, allow_pickle=False) as file:
        return torch.from_numpy(file["x"]).movedim(-1, 1), torch.from_numpy(file["y"])


def _read_svhn(path: Path) -> tuple[Tensor, Tensor]:
    """In the file X is (32, 32, 3, N), and the digit 0 has the label 10."""
    from scipy.io import loadmat

    content = loadmat(path, variable_names=["X", "y"])
    return torch.from_numpy(content["X"]).permute(3, 2, 0, 1), torch.from_numpy(content["y"]).flatten().long() % 10


def _read_batch(path: Path) -> tuple[Tensor, Tensor]:
    """A pickled dict of Python 2 with rows of 3,072 bytes and a list of labels."""
    with path.open("rb") as file:
        content = _Unpickler(file, encoding="latin1").load()
    content = {key.decode() if isinstance(key, bytes) else key: value for key, value in content.items()}
    return torch.from_numpy(content["data"]).view(-1, 3, 32, 32), torch.tensor(content["labels"])


class _Unpickler(pickle.Unpickler):
    """Reads NumPy's arrays and refuses all else, because a pickle can call any function that it names."""

    def find_class(self, module: str, name: str) -> Any:
        if name == "_reconstruct" and module in ("numpy.core.multiarray", "numpy._core.multiarray"):
            return np.empty(0).__reduce__()[0]
        if (module, name) in (("numpy", "ndarray"), ("numpy", "dtype")):
            return getattr(np, name)
        if (module, name) == ("_codecs", "encode"):  # bytes, as Python 3 writes them for Python 2
            return lambda text, encoding: text.encode("latin1")
        raise pickle.UnpicklingError(f"it asks for {module}.{name}")


def _fetch_images(folder: Path, name: str) -> None:
    from torchvision import datasets

    if name == "svhn_test":
        url, file, md5 = datasets.SVHN.split_list["test"]
        with fetching("the test digits of SVHN"):
            datasets.utils.download_url(url, str(folder), file, md5)
    else:
        source = datasets.CIFAR10
        with fetching("CIFAR-10"):
            datasets.utils.download_and_extract_archive(
                source.url, str(folder), filename=source.filename, md5=source.tgz_md5
            )


def _read_texts(folder: Path, name: str) -> tuple[list[str], Tensor]:
    """Texts and labels from 0.

    They are read from a .csv file with the columns class (from 1), title and text, or from the Parquet files of the
    hub. A text of AG News is the title and the text with a space between; a text of DBPedia is the abstract alone.
    """
    _, pattern, files = TEXTS[name]
    for file in files:
        if (folder / file).is_file():
            return _read_csv(folder / file, with_title=not name.startswith("dbpedia"))
    found = sorted(folder.glob(pattern))
    if not found:
        raise FileNotFoundError(f"{folder}: expected {' or '.join((*files, pattern))} there, got no such file")
    import pyarrow.parquet as pq

    table = pq.read_table(found)
    column = "text" if "text" in table.column_names else "content"
    return table[column].to_pylist(), torch.tensor(table["label"].to_pylist(), dtype=torch.long)


def _read_csv(path: Path, *, with_title: bool) -> tuple[list[str], Tensor]:
    texts, labels = [], []
    with path.open(encoding="utf-8", newline="") as file:
        for number, row in enumerate(csv.reader(file)):
            if number == 0 and row and not row[0].strip().isdigit():
                continue  # some copies have a header
            if len(row) != 3 or not row[0].strip().isdigit():
                got = f"{row!r:.60} in row {number + 1}"
                raise ValueError(f"{path}: expected class, title, text in each row, got {got}")
            texts.append(" ".join(filter(None, row[1:])) if with_title else row[2])
            labels.append(int(row[0]) - 1)
    return texts, torch.tensor(labels, dtype=torch.long)


def _fetch_texts(folder: Path, name: str) -> None:
    from huggingface_hub import snapshot_download

    source, pattern, _ = TEXTS[name]
    with fetching(f"{source} from the Hugging Face hub"):
        snapshot_download(source, repo_type="dataset", allow_patterns=[pattern], local_dir=folder)
