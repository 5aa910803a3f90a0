"""Results that are computed and kept on disk in pieces, so that an interrupted run resumes where it stopped."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor


def in_pieces(folder: Path, total: int, compute: Callable[[int, int], Tensor], *, piece: int = 512) -> Tensor:
    """Rows 0 to `total`; `compute(start, stop)` is called for the pieces that are missing or damaged in `folder`.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> in_pieces(folder, 3, lambda start, stop: torch.arange(start, stop) ** 2, piece=2)
    tensor([0, 1, 4])
    >>> in_pieces(folder, 3, lambda start, stop: 1 / 0, piece=2)
    tensor([0, 1, 4])
    """
    folder.mkdir(parents=True, exist_ok=True)
    parts = []
    for start in range(0, total, piece):
        stop = min(start + piece, total)
        path = folder / f"{start:07}-{stop:07}.npy"
        rows = _read(path)
        if rows is None or len(rows) != stop - start:
            rows = compute(start, stop)
            temporary = path.with_suffix(".tmp")
            with temporary.open("wb") as file:
                np.save(file, rows.numpy())
            temporary.replace(path)
        parts.append(rows)
    return torch.cat(parts)


def _read(path: Path) -> Tensor | None:
    try:
        return torch.from_numpy(np.load(path, allow_pickle=False))
    except (OSError, ValueError, EOFError):
        return None
