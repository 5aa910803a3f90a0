"""Results are kept on disk in pieces, so that an interrupted run continues where it stopped."""

import hashlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .._optional import require
from ..data.atomic import replacing

PIECE = 512


def digest_files(paths: Iterable[Path]) -> str:
    """A short text that differs when the names or the contents of the files do."""
    state = hashlib.sha256()
    for path in sorted(paths):
        with path.open("rb") as file:
            state.update(f"{path.name} {hashlib.file_digest(file, 'sha256').hexdigest()} ".encode())
    return state.hexdigest()[:16]


class PieceCache:
    """Rows of numbers that are computed piece by piece and kept in `folder`.

    Args:
        folder: two different computations must have two different folders.
        piece: the number of rows in a file. An interruption loses at most one piece.

    >>> import tempfile
    >>> pieces = PieceCache(Path(tempfile.mkdtemp()), piece=2)
    >>> pieces("squares", 3, lambda start, stop: torch.arange(start, stop) ** 2)
    tensor([0, 1, 4])
    >>> pieces("squares", 3, lambda start, stop: 1 / 0)
    tensor([0, 1, 4])
    """

    def __init__(self, folder: Path, *, piece: int = PIECE) -> None:
        self.folder, self.piece = folder, piece

    def __call__(
        self,
        key: str,
        total: int,
        compute: Callable[[int, int], Tensor],
        skip: Callable[[int], object] = lambda rows: None,
    ) -> Tensor:
        """Rows 0 to `total`; `compute(start, stop)` is called for the missing pieces only.

        Args:
            key: the name of these rows in `folder`.
            total: the number of rows.
            compute: gives the rows from `start` up to `stop`, on the CPU.
            skip: called with the number of rows that are there already.
        """
        parts = []
        for start in range(0, total, self.piece):
            stop = min(start + self.piece, total)
            path = self.folder / key / f"{start:07}-{stop:07}.npy"
            rows = _read(path, stop - start)
            if rows is None:
                rows = compute(start, stop)
                _write(path, rows)
            else:
                skip(stop - start)
            parts.append(rows)
        return torch.cat(parts)


def _read(path: Path, rows: int) -> Tensor | None:
    """The piece, or None if it is missing or damaged."""
    try:
        array = numpy().load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError):
        return None
    return torch.from_numpy(array) if len(array) == rows else None


def _write(path: Path, rows: Tensor) -> None:
    with replacing(path) as temporary, temporary.open("wb") as file:
        numpy().save(file, rows.numpy())


def numpy() -> Any:
    """NumPy, or an error that says how to get it."""
    return require("numpy", purpose="experiments need")
