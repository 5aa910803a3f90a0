"""CIFAR-10, SVHN, AG News and DBPedia-14 from the files that their makers publish, which are fetched if need be."""

import pickle
import socket
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow.parquet as pq
import torch
from torch import Tensor

TIMEOUT = 10.0  # seconds without an answer
CIFAR10 = "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz"
SVHN = "http://ufldl.stanford.edu/housenumbers/test_32x32.mat"


class Source(NamedTuple):
    """Where a set of samples comes from.

    Attributes:
        title: its name in messages; two sets of the same title are fetched together.
        size: the number of samples.
        megabytes: the size of the download.
        address: the URL of a file, or a dataset on the Hugging Face hub.
        files: patterns of the files, below the folder of the data.
        md5: the checksum of the file at the URL; "" for a dataset on the hub.
    """

    title: str
    size: int
    megabytes: int
    address: str
    files: tuple[str, ...]
    md5: str = ""


BATCHES = tuple(f"data_batch_{i}" for i in range(1, 6))
SOURCES = {
    "cifar10_train": Source("CIFAR-10", 50_000, 170, CIFAR10, BATCHES, "c58f30108f718f92721af3b95e74349a"),
    "cifar10_test": Source("CIFAR-10", 10_000, 170, CIFAR10, ("test_batch",), "c58f30108f718f92721af3b95e74349a"),
    "svhn_test": Source("SVHN", 26_032, 64, SVHN, ("test_32x32.mat",), "eb5a983be6a315427106f1b164d9cef3"),
    "ag_news_train": Source("AG News", 120_000, 19, "fancyzhx/ag_news", ("data/train-*.parquet",)),
    "ag_news_test": Source("AG News, test", 7_600, 1, "fancyzhx/ag_news", ("data/test-*.parquet",)),
    "dbpedia_test": Source("DBPedia-14", 70_000, 19, "fancyzhx/dbpedia_14", ("dbpedia_14/test-*.parquet",)),
}


@contextmanager
def fetching(what: str) -> Iterator[None]:
    """For downloads by other people's libraries: any failure becomes one ConnectionError in one line.

    These libraries fail in many ways (errors of urllib, requests, httpx and their own, not all of which are OSErrors),
    and some wait forever or print to stdout. In this block they have a timeout, and print to stderr.
    """
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(TIMEOUT)
    try:
        with redirect_stdout(sys.stderr):
            yield
    except Exception as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".:")
        remedy = "connect to the internet, or give local copies with --model and --data-dir"
        raise ConnectionError(f"could not fetch {what} ({reason}); {remedy}") from error
    finally:
        socket.setdefaulttimeout(before)


def find_files(source: Source, folder: Path) -> list[Path]:
    """The files of a source in `folder`, or in the folder of that name in it; none unless all are there."""
    for place in (folder, folder / "cifar-10-batches-py", folder / Path(source.address).name):
        files = [sorted(place.glob(pattern)) for pattern in source.files]
        if all(files):
            return [path for paths in files for path in paths]
    return []


def fetch_files(source: Source, folder: Path) -> None:
    """Download a source into `folder`. A file has its name there only when it is complete."""
    folder.mkdir(parents=True, exist_ok=True)
    if not source.md5:
        from huggingface_hub import snapshot_download

        with fetching(f"{source.address} from the Hugging Face hub"):
            place = folder / Path(source.address).name
            snapshot_download(source.address, repo_type="dataset", allow_patterns=source.files, local_dir=place)
        return
    from torchvision.datasets.utils import download_url, extract_archive

    with tempfile.TemporaryDirectory(dir=folder) as place, fetching(source.title):
        download_url(source.address, place, md5=source.md5)
        file = Path(place) / Path(source.address).name
        if file.suffix == ".gz":
            extract_archive(str(file), remove_finished=True)
        for path in Path(place).iterdir():
            path.rename(folder / path.name)


def read_samples(name: str, files: list[Path]) -> tuple[Tensor | list[str], Tensor]:
    """Inputs and labels (N,) of a set of `SOURCES`: images (N, 3, 32, 32) in uint8, or texts."""
    read = {"c": _read_batch, "s": _read_svhn}.get(name[0], _read_texts)
    try:
        parts = [read(path) for path in files]
    except Exception as error:  # a damaged file can raise any error
        reason = f"{type(error).__name__}: {' '.join(str(error).split())}"
        raise ValueError(f"{files[0]}: expected {SOURCES[name].title} as published, got {reason}") from error
    labels = torch.cat([part[1] for part in parts]).long()
    if isinstance(parts[0][0], list):
        return [text for part in parts for text in part[0]], labels
    return torch.cat([part[0] for part in parts]).contiguous(), labels


def _read_svhn(path: Path) -> tuple[Any, Tensor]:
    """In the file X is (32, 32, 3, N), and the digit 0 has the label 10."""
    from scipy.io import loadmat

    content = loadmat(path, variable_names=["X", "y"])
    return torch.from_numpy(content["X"]).permute(3, 2, 0, 1), torch.from_numpy(content["y"]).flatten().long() % 10


def _read_texts(path: Path) -> tuple[Any, Tensor]:
    """A text of AG News is title and text, a text of DBPedia only the abstract."""
    table = pq.read_table(path)
    column = "text" if "text" in table.column_names else "content"
    return table[column].to_pylist(), torch.tensor(table["label"].to_pylist())


def _read_batch(path: Path) -> tuple[Any, Tensor]:
    """A pickled dict of Python 2 with rows of 3,072 bytes and a list of labels."""
    with path.open("rb") as file:
        content = _Unpickler(file, encoding="latin1").load()
    return torch.from_numpy(content["data"]).view(-1, 3, 32, 32), torch.tensor(content["labels"])


class _Unpickler(pickle.Unpickler):
    """Reads NumPy's arrays and refuses all else, because a pickle can call any function that it names."""

    def find_class(self, module: str, name: str) -> Any:
        if name == "_reconstruct" and module in ("numpy.core.multiarray", "numpy._core.multiarray"):
            return np.empty(0).__reduce__()[0]
        if (module, name) in (("numpy", "ndarray"), ("numpy", "dtype")):
            return getattr(np, name)
        raise pickle.UnpicklingError(f"it asks for {module}.{name}")
