"""Where files go, and how they appear: whole or not at all."""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def default_cache() -> Path:
    """The user's cache folder: `torch_boc` in $XDG_CACHE_HOME, or in ~/.cache."""
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "torch_boc"


def check_file(path: str | os.PathLike[str]) -> Path:
    """The path, if a file can be written there; an error before the work and not after it.

    >>> check_file("/")
    Traceback (most recent call last):
        ...
    IsADirectoryError: expected the path of a file, got the folder /; add a file name to it
    """
    path = Path(path)
    if path.is_dir():
        raise IsADirectoryError(f"expected the path of a file, got the folder {path}; add a file name to it")
    folder = next(x for x in path.absolute().parents if x.exists())
    if not folder.is_dir():
        raise NotADirectoryError(f"expected {path} in a folder, got {folder}, which is a file; choose another path")
    if not os.access(folder, os.W_OK):
        raise PermissionError(f"expected {path} in a folder to write in, got {folder}, which does not let this user")
    return path


def temporary_name(path: Path) -> Path:
    """Where to write what will be `path`: hidden, in the same folder, and of this call alone."""
    return path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp")


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A temporary name to write under, which becomes `path` if all goes well and vanishes if not.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "folder" / "note.txt"
    >>> with replacing(path) as temporary:
    ...     _ = temporary.write_text("whole")
    >>> path.read_text()
    'whole'
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = temporary_name(path)
    try:
        yield temporary
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
