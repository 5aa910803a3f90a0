"""Files of arrays, as tensors by name: NumPy, safetensors and PyTorch."""

import pickle
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .._optional import require
from .arrays import array_header, as_tensor, numpy
from .atomic import printable

REFUSAL = (
    "pickles are refused, because opening one can run any code; "
    "save arrays instead: numpy.savez(path, logits=..., target=...) or safetensors"
)


class ContentError(ValueError):
    """The file is not damaged, but its content is not what is needed."""


class Text(NamedTuple):
    """Stands for a column that is not read, because it holds neither numbers nor names of classes.

    Attributes:
        kind: what it holds, in one word.
    """

    kind: str


def too_little(path: Path) -> str:
    """The message for a file that does not fit in memory."""
    size = path.stat().st_size / 1e6
    return (
        f"too little memory to read it ({size:,.1f} MB on disk); the file may be whole. Use a machine with more "
        "memory, fewer rows, or float32 or float16 instead of float64"
    )


def read_npz(path: Path) -> dict[str, Any]:
    """The arrays of an `.npz` file."""
    expect_start(path, b"PK", "a zip archive as made by numpy.savez")
    # NumPy would leave a damaged file open.
    with path.open("rb") as file, numpy().load(file, allow_pickle=False) as archive:
        for part in (part for part in archive.zip.infolist() if part.filename.endswith(".npy")):
            with archive.zip.open(part) as stream:
                array_header(stream, part.file_size)
        return {name: _tensor(archive, name) for name in archive.files}


def read_npy(path: Path) -> Tensor:
    """The one array of an `.npy` file."""
    expect_start(path, b"\x93NUMPY", "an array as made by numpy.save")
    with path.open("rb") as file:
        array_header(file, path.stat().st_size)
    try:
        array = numpy().load(path, allow_pickle=False)
    except ValueError as error:
        raise _reason(error, "the array") from error
    tensor: Tensor = as_tensor(array)
    return tensor


def read_safetensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a `.safetensors` file."""
    library = require("safetensors", "torch", purpose="reading it needs").torch
    content = library.load_file(path) if has_plain_name(path) else library.load(path.read_bytes())
    return {name: wide(tensor) for name, tensor in content.items()}


def read_torch(path: Path) -> Any:
    """A tensor, a pair or a mapping of tensors saved with `torch.save`."""
    zipped = zipfile.is_zipfile(path)
    with path.open("rb") as file:
        start = file.read(2)
    if not zipped and start != b"\x80\x02":  # the old format of torch.save
        raise ValueError("it was not written by torch.save" if start != b"PK" else "the end of the archive is missing")
    try:
        with path.open("rb") as file:
            mapped = zipped and has_plain_name(path)
            content = torch.load(path if mapped else file, map_location="cpu", weights_only=True, mmap=mapped)
    except pickle.UnpicklingError as error:
        raise ContentError(
            "expected only tensors, got other objects; reading these can run any code, so they are refused; "
            "save tensors: torch.save({'logits': ..., 'target': ...}, path)"
        ) from error
    return _torch_content(content)


def has_plain_name(path: Path) -> bool:
    """Whether the path is valid UTF-8, which libraries need that open the file themselves."""
    return printable(str(path)) == str(path)


def _torch_content(content: Any) -> Any:
    if isinstance(content, Mapping):
        return {str(name): _number_list(value) for name, value in content.items()}
    if isinstance(content, list | tuple) and len(content) == 2:
        return tuple(_number_list(value) for value in content)
    if isinstance(content, Tensor):
        return wide(content)
    got = f"a {type(content).__name__}" + (f" of {len(content)}" if isinstance(content, list | tuple) else "")
    raise ContentError(f"expected a tensor, a pair (logits, target) or a mapping with 'logits', got {got}")


def _number_list(value: Any) -> Any:
    """A tensor, if the value is one or a list of numbers; any other value unchanged."""
    if isinstance(value, list | tuple):
        try:
            return torch.as_tensor(value)
        except (TypeError, ValueError, RuntimeError):
            return value
    return wide(value) if isinstance(value, Tensor) else value


def wide(tensor: Tensor) -> Tensor:
    """Floats of one byte as float32, because torch has few operations for them."""
    return tensor.float() if tensor.is_floating_point() and tensor.itemsize == 1 else tensor


def _tensor(archive: Any, name: str) -> Any:
    try:
        return as_tensor(archive[name])
    except ValueError as error:
        raise _reason(error, f"array {name!r}") from error


def _reason(error: ValueError, what: str) -> ValueError:
    """The error unchanged, or our own refusal if NumPy refused to read a pickle."""
    if "allow_pickle" not in str(error):
        return error
    return holds_objects(what)


def holds_objects(what: str) -> ContentError:
    """The error for an array of Python objects, which only pickle could read."""
    return ContentError(f"{what} holds Python objects; {REFUSAL}")


def expect_start(path: Path, start: bytes, what: str) -> None:
    """Raise unless the file begins with `start`. NumPy would take any unknown file for a pickle."""
    with path.open("rb") as file:
        if file.read(len(start)) != start:
            raise ValueError(f"it does not begin like {what}")


def refuse_pickle(path: Path) -> None:
    """Raise if the file is a pickle. The old format of torch.save, which begins like a pickle, is allowed."""
    with path.open("rb") as file:
        start = file.read(2)
    legacy = start == b"\x80\x02" and path.suffix.lower() in (".pt", ".pth")
    if start[:1] == b"\x80" and start[1:] in (b"\x02", b"\x03", b"\x04", b"\x05") and not legacy:
        raise ContentError(f"it is a pickle, whatever its name says; {REFUSAL}")
