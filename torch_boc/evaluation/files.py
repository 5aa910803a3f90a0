"""Logits from files: NumPy, safetensors, PyTorch, Parquet and CSV; never from pickles."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from . import formats, sheets
from .data import TARGET_NAMES, LogitSet, logit_set

READERS: Mapping[str, Callable[[Path], Any]] = {
    ".npz": formats.read_npz,
    ".npy": formats.read_npy,
    ".safetensors": formats.read_safetensors,
    ".pt": formats.read_torch,
    ".pth": formats.read_torch,
    ".parquet": sheets.read_parquet,
    ".csv": sheets.read_csv,
}
PICKLES = (".pkl", ".pickle", ".joblib")
# What saving a table adds to it: numbers of rows, which are no scores.
ROW_NUMBERS = ("", "index", "Unnamed: 0", "__index_level_0__")


def read_logits(path: str | os.PathLike[str], name: str | None = None) -> LogitSet:
    """The logits in a file, with their targets and whatever scores stand beside them.

    Args:
        path: a file in one of these formats.

            - `.npz`, `.safetensors`, `.pt`, `.pth`: "logits" of shape (N, C), perhaps one of target, targets, label,
              labels or y, and further arrays of shape (N,), which are scores, higher = more in-distribution. If nothing
              is called "logits", the only floating array with two axes is taken. `.pt` may also hold a tensor or a pair
              (logits, target), `.npz` the unnamed pair of `numpy.savez(path, logits, target)`.
            - `.npy`: the logits.
            - `.parquet`, `.csv`: columns logit_0 to logit_{C-1}, or 0 to C-1, or (Parquet) a column "logits" of lists;
              perhaps a target as above; further columns of numbers are scores; text, `index` and nameless columns are
              left out.
        name: how tables and messages call the set; the file's name without its ending by default.

    Raises:
        FileNotFoundError, ImportError, ValueError: with one line that begins with the path.
    """
    path = Path(path)
    name = path.stem if name is None else name
    reader = READERS[_suffix(path)]
    try:
        formats.refuse_pickle(path)
        return _checked(_select(reader(path)), name)
    except ImportError as error:
        raise ImportError(f"{path}: {error}") from error
    except formats.ContentError as error:
        raise ValueError(f"{path}: {_one_line(error)}") from None
    except Exception as error:  # a damaged file makes its library fail in any way
        if isinstance(error, OSError) and error.errno is not None:
            raise
        kind, said = path.suffix.lower(), _one_line(error) or type(error).__name__
        raise ValueError(
            f"{path}: expected a whole {kind} file, got one that seems damaged or cut off: {said}"
        ) from error


def _suffix(path: Path) -> str:
    """The ending that says how to read an existing file, or an error that says what is wrong with it."""
    suffix = path.suffix.lower()
    if path.is_dir():
        raise ValueError(f"{path}: expected a file, got a folder")
    if suffix in PICKLES:
        raise ValueError(f"{path}: {formats.REFUSAL}")
    if suffix not in READERS:
        raise ValueError(f"{path}: expected a file that ends in {', '.join(READERS)}, got {suffix or 'no ending'!r}")
    if not path.exists():
        raise FileNotFoundError(f"{path}: no such file")
    if path.stat().st_size == 0:
        raise ValueError(f"{path}: expected logits, got an empty file")
    return suffix


def _select(content: Any) -> Any:
    """What of a file's content makes a LogitSet: a tensor and a pair as they are, and of a mapping what is of use."""
    if not isinstance(content, Mapping):
        return content
    if set(content) == {"arr_0", "arr_1"}:
        return content["arr_0"], content["arr_1"]
    logits = "logits" if "logits" in content else _only_candidate(content)
    target = {name: content[name] for name in TARGET_NAMES if name in content}
    taken = {logits, *target, *ROW_NUMBERS}
    columns = {
        name: values
        for name, values in content.items()
        if name not in taken and _is_numeric(values) and values.ndim == 1
    }
    return {"logits": content[logits], **target, **columns}


def _only_candidate(content: Mapping[str, Any]) -> str:
    found = [name for name, x in content.items() if isinstance(x, Tensor) and x.ndim == 2 and x.is_floating_point()]
    if len(found) == 1:
        return found[0]
    if found:
        raise formats.ContentError(
            f"expected logits, got several arrays that could be: {_listed(content, found)}; call the right one 'logits'"
        )
    raise formats.ContentError(f"expected an array 'logits' of shape (N, C), got {_listed(content, list(content))}")


def _listed(content: Mapping[str, Any], names: list[str], most: int = 8) -> str:
    """The first few of the named values, with what they are."""
    texts = [f"{name} {_describe(content[name])}" for name in names[:most]]
    return ", ".join(texts) + (f" and {len(names) - most} more" if len(names) > most else "") if texts else "nothing"


def _describe(value: Any) -> str:
    if getattr(value, "dtype", None) is None:
        return f"(a {type(value).__name__})"
    layout = f" {value.layout}" if isinstance(value, Tensor) and value.layout != torch.strided else ""
    return f"({' x '.join(map(str, value.shape)) or 'one value'}, {value.dtype}{layout})".replace("torch.", "")


def _is_numeric(value: Any) -> bool:
    return isinstance(value, Tensor) and not value.is_complex() and value.dtype != torch.bool


def _checked(source: Any, name: str) -> LogitSet:
    """The LogitSet of `source`; its own complaints are those about a file's content."""
    parts = (
        source if isinstance(source, Mapping) else dict(enumerate(source)) if isinstance(source, tuple) else {0: source}
    )
    for part, values in parts.items():
        if not isinstance(values, Tensor) or values.is_complex() or values.layout != torch.strided:
            what = f"in {part!r}" if isinstance(part, str) else "alone"
            raise formats.ContentError(f"expected a plain array of numbers {what}, got {_describe(values)}")
    try:
        return logit_set(source, name)
    except (TypeError, ValueError) as error:
        raise formats.ContentError(str(error).removeprefix(f"{name}: ")) from None


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())
