"""Logits from files: NumPy, safetensors, PyTorch, Parquet and CSV; never from pickles."""

import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from . import formats, sheets
from .atomic import is_memory_error, printable
from .selection import check_class_names, check_plain, parts_of, select
from .sets import LogitSet, set_of_arrays

READERS: Mapping[str, Callable[..., Any]] = {
    ".npz": formats.read_npz,
    ".npy": formats.read_npy,
    ".safetensors": formats.read_safetensors,
    ".pt": formats.read_torch,
    ".pth": formats.read_torch,
    ".parquet": sheets.read_parquet,
    ".csv": sheets.read_csv,
}
SHEETS = (sheets.read_parquet, sheets.read_csv)
PICKLES = (".pkl", ".pickle", ".joblib")


def read_logits(
    path: str | os.PathLike[str],
    name: str | None = None,
    *,
    from_probabilities: bool = False,
    classes: Sequence[str] | None = None,
) -> LogitSet:
    """The logits in a file, with the targets and the scores that the file holds.

    Args:
        path: a file in one of these formats.

            - `.npz`, `.safetensors`, `.pt`, `.pth`: "logits" of shape (N, C), perhaps one of labels, label, targets,
              target, y, y_true or ground_truth, and further arrays of shape (N,), which are scores, higher = more
              in-distribution. If there is no "logits", the array called out, output, probabilities, probs, predictions,
              softmax or scores is used, or else the only floating-point array with two axes. `.pt` may also hold a
              tensor or a pair (logits, target), and `.npz` the pair of `numpy.savez(path, logits, target)`.
            - `.npy`: the logits.
            - `.parquet`, `.csv`: columns logit_0 to logit_{C-1}, or 0 to C-1, or prob_0 to prob_{C-1}, or (Parquet) a
              column "logits" of lists; perhaps a target as above; further columns of numbers are scores. `index` and
              columns without a name are row numbers, which are left out.
        name: the name of the set in tables and messages; by default the name of the file without its ending.
        from_probabilities: whether the file holds probabilities instead of logits; see `logit_set`.
        classes: names of the classes in their order. Columns of a table may have these names, with or without
            "logit_" in front, and targets may be names instead of numbers.

    Warns:
        UserWarning: if anything is left out, or taken under an unknown name. It lists what is used as what.

    Raises:
        FileNotFoundError, ImportError, ValueError, MemoryError: the message is one line that begins with the path.
    """
    path = Path(path)
    name = printable(path.stem if name is None else name)
    reader = READERS[known_suffix(path)]
    with reading(path):
        named = None if classes is None else check_class_names(classes)
        content = reader(path, named) if reader in SHEETS else reader(path)
        selected = select(content, from_probabilities=from_probabilities, classes=named)
        data = _checked(selected.content, name, from_probabilities)
        check_number(named, data.num_classes)
    if selected.note:
        warnings.warn(f"{printable(str(path))}: {printable(selected.note)}", stacklevel=2)
    return data


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turns what goes wrong with a file into errors of one line that begin with its path."""
    said = printable(str(path))
    try:
        formats.refuse_pickle(path)
        yield
    except ImportError as error:
        raise ImportError(f"{said}: {error}") from error
    except Warning:  # the caller has turned warnings into errors
        raise
    except formats.ContentError as error:
        raise ValueError(f"{said}: {_one_line(error)}") from None
    except Exception as error:  # libraries raise all kinds of errors on damaged files
        if is_memory_error(error):
            raise MemoryError(f"{said}: {formats.too_little(path)}") from error
        if isinstance(error, OSError) and error.errno is not None:
            raise
        reason = _one_line(error) or type(error).__name__
        raise ValueError(
            f"{said}: expected a whole {path.suffix.lower()} file, got one that seems damaged or cut off: {reason}"
        ) from error


def check_number(classes: Sequence[str] | None, number: int) -> None:
    """Raise unless there are as many names of classes as classes."""
    if classes is not None and len(classes) != number:
        raise formats.ContentError(f"expected logits of {len(classes)} classes, one for each name, got {number}")


def known_suffix(path: Path) -> str:
    """The ending that says how to read an existing file, or an error that says what is wrong with it."""
    suffix, said = path.suffix.lower(), printable(str(path))
    if path.is_dir():
        raise ValueError(f"{said}: expected a file, got a folder")
    if suffix in PICKLES:
        raise ValueError(f"{said}: {formats.REFUSAL}")
    if suffix not in READERS:
        raise ValueError(f"{said}: expected a file that ends in {', '.join(READERS)}, got {suffix or 'no ending'!r}")
    if not path.exists():
        raise FileNotFoundError(f"{said}: no such file")
    if path.stat().st_size == 0:
        raise ValueError(f"{said}: expected logits, got an empty file")
    return suffix


def _checked(source: Any, name: str, from_probabilities: bool) -> LogitSet:
    """The LogitSet of `source`. What LogitSet refuses is an error about the content of the file."""
    for part, values in parts_of(source).items():
        check_plain(values, f"in {part!r}" if isinstance(part, str) else "alone")
    try:
        return set_of_arrays(source, name, from_probabilities=from_probabilities)
    except (TypeError, ValueError) as error:
        raise formats.ContentError(str(error).removeprefix(f"{name}: ")) from None


def _one_line(error: BaseException) -> str:
    return printable(" ".join(str(error).split()))
