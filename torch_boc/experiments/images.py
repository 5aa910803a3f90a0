"""CIFAR-10 and SVHN, from files in the layouts that their makers publish."""

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .._optional import require
from .cache import numpy
from .fetch import fetching

Labelled = tuple[Tensor, Tensor]
ImageReader = Callable[[list[Path]], Labelled]

BATCHES = "cifar-10-batches-py"
BATCH_FILES = {"cifar10_train": [f"data_batch_{i}" for i in range(1, 6)], "cifar10_test": ["test_batch"]}
SVHN_FILE = "test_32x32.mat"
PICTURE = (3, 32, 32)


def read_images(folder: Path, name: str) -> Labelled:
    """Images (N, 3, H, W) in uint8 and labels (N,) of cifar10_train, cifar10_test or svhn_test.

    They are read from `name`.npz with arrays x (N, H, W, 3) and y (N,), from the unpacked Python version of CIFAR-10,
    or from SVHN's cropped digits, test_32x32.mat. torchvision would refuse files that differ from the published ones
    in any byte.
    """
    for read, paths in _candidates(folder, name):
        if all(path.is_file() for path in paths):
            return _checked(read(paths), paths[0])
    wanted = " or ".join(str(paths[0].relative_to(folder)) for _, paths in _candidates(folder, name))
    raise FileNotFoundError(f"{folder}: expected {wanted} there, got no such file")


def fetch_images(folder: Path, name: str, local: str) -> Labelled:
    """The same from `folder`, into which torchvision downloads missing files."""
    try:
        return read_images(folder, name)
    except FileNotFoundError:
        needs = {"purpose": "downloading images needs", "otherwise": "give --data-dir"}
        datasets = require("torchvision", "datasets", **needs).datasets
    if name == "svhn_test":
        url, file, md5 = datasets.SVHN.split_list["test"]
        with fetching("the test digits of SVHN", local):
            datasets.utils.download_url(url, str(folder), file, md5)
    else:
        source = datasets.CIFAR10
        with fetching("CIFAR-10", local):
            datasets.utils.download_and_extract_archive(
                source.url, str(folder), filename=source.filename, md5=source.tgz_md5
            )
    return read_images(folder, name)


def _candidates(folder: Path, name: str) -> list[tuple[ImageReader, list[Path]]]:
    """The readers that may be used, each with the files that it needs."""
    found: list[tuple[ImageReader, list[Path]]] = [(_read_npz, [folder / f"{name}.npz"])]
    if name == "svhn_test":
        return [(_read_svhn, [place / SVHN_FILE]) for place in (folder, folder / "svhn")] + found
    return [(_read_cifar, [place / x for x in BATCH_FILES[name]]) for place in (folder / BATCHES, folder)] + found


def _read_npz(paths: list[Path]) -> Labelled:
    try:
        with numpy().load(paths[0], allow_pickle=False) as file:
            return torch.from_numpy(file["x"]).movedim(-1, 1), torch.from_numpy(file["y"])
    except (OSError, ValueError, KeyError, EOFError, IndexError, TypeError) as error:
        raise _wrong(paths[0], "arrays x (N, H, W, 3) and y (N,)", error) from error


def _read_svhn(paths: list[Path]) -> Labelled:
    """Images and labels of SVHN. In the file X is (32, 32, 3, N), and the digit 0 has the label 10."""
    scipy = require("scipy", "io", purpose=f"{SVHN_FILE} needs", otherwise="give svhn_test.npz").io
    try:
        content = scipy.loadmat(paths[0], variable_names=["X", "y"])
        return torch.from_numpy(content["X"]).permute(3, 2, 0, 1), torch.from_numpy(content["y"]).flatten().long() % 10
    except Exception as error:  # SciPy raises many kinds for a damaged file
        raise _wrong(paths[0], "a MATLAB file with X (32, 32, 3, N) and y", error) from error


def _read_cifar(paths: list[Path]) -> Labelled:
    parts = [_read_batch(path) for path in paths]
    return torch.cat([part[0] for part in parts]), torch.cat([part[1] for part in parts])


def _read_batch(path: Path) -> Labelled:
    """A file of CIFAR-10: a pickled dict of Python 2 with rows of 3,072 bytes and a list of labels."""
    try:
        with path.open("rb") as file:
            content = _Unpickler(file, encoding="latin1").load()
        content = {key.decode() if isinstance(key, bytes) else key: value for key, value in content.items()}
        pixels = torch.from_numpy(content["data"]).view(-1, *PICTURE)
        return pixels, torch.tensor(content["labels"])
    except Exception as error:  # unpickling a damaged file can raise any error
        raise _wrong(path, "a batch of CIFAR-10 (a dict of 'data' and 'labels')", error) from error


class _Unpickler(pickle.Unpickler):
    """Reads NumPy's arrays and refuses all else, because a pickle can call any function that it names."""

    def find_class(self, module: str, name: str) -> Any:
        if name == "_reconstruct" and module in ("numpy.core.multiarray", "numpy._core.multiarray"):
            return numpy().empty(0).__reduce__()[0]
        if (module, name) in (("numpy", "ndarray"), ("numpy", "dtype")):
            return getattr(numpy(), name)
        if (module, name) == ("_codecs", "encode"):  # bytes, as Python 3 writes them for Python 2
            return lambda text, encoding: text.encode("latin1")
        raise pickle.UnpicklingError(f"it asks for {module}.{name}")


def _checked(found: Labelled, path: Path) -> Labelled:
    pixels, labels = found
    if pixels.dtype != torch.uint8 or pixels.ndim != 4 or pixels.shape[1] != 3 or labels.shape != pixels.shape[:1]:
        got = f"{tuple(pixels.shape)} in {pixels.dtype} and {tuple(labels.shape)}"
        raise ValueError(f"{path}: expected images of shape (N, 3, H, W) in torch.uint8 and (N,) labels, got {got}")
    return pixels.contiguous(), labels.long()


def _wrong(path: Path, expected: str, error: Exception) -> ValueError:
    reason = " ".join(str(error).split()) or "nothing"
    return ValueError(f"{path}: expected {expected}, got {type(error).__name__}: {reason}")
