"""Files that appear whole or not at all, and the checks of their paths."""

import glob
import os
import re
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

fcntl: Any = None  # on Windows
if os.name == "posix":
    import fcntl

TEMPORARY = re.compile(r"\.\d+-[0-9a-f]{8}\.tmp")  # the end of a temporary name
URI = re.compile("[a-zA-Z][a-zA-Z0-9+.-]+:/")  # a single letter is a drive; `Path` has made one / of two


def check_file(path: str | os.PathLike[str]) -> Path:
    """The path, if a file can be written there. Call it before long work: the error comes early.

    >>> check_file(".")
    Traceback (most recent call last):
        ...
    IsADirectoryError: expected the path of a file, got the folder .; add a file name to it
    """
    path = _local(path)
    if path.is_dir():
        raise IsADirectoryError(f"expected the path of a file, got the folder {path}; add a file name to it")
    if path.exists() and not path.is_file():
        raise ValueError(f"expected the path of a file, got {path}, which is a device or a pipe")
    folder = next(x for x in path.absolute().parents if x.exists())
    if not folder.is_dir():
        raise NotADirectoryError(f"expected {path} in a folder, got {folder}, which is a file; choose another path")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise PermissionError(f"expected {path} in a folder to write in, got {folder}, which does not let this user")
    return path


def check_parquet(path: str | os.PathLike[str]) -> Path:
    """The path, if a Parquet file can be written there and ends in .parquet, by which readers know the format."""
    path = check_file(path)
    if path.suffix.lower() != ".parquet":
        raise ValueError(f"expected the path of a file that ends in .parquet, got {path}; the format is always Parquet")
    return path


def _local(path: str | os.PathLike[str]) -> Path:
    if URI.match(os.fspath(path)):
        raise ValueError(
            f"expected a path of this machine, got the URI {os.fspath(path)}; write to a path, and copy the files from "
            "there (torch_boc.ray.predict writes to URIs)"
        )
    return Path(path)


def check_folder(folder: str | os.PathLike[str], files: Iterable[str] = ("file",)) -> Path:
    """The path, if the folder exists or can be made and `files` can be written into it; otherwise an error."""
    folder = _local(folder)
    if folder.exists() and not folder.is_dir():
        raise NotADirectoryError(f"expected a folder, got the file {folder}; choose another path")
    for name in files:
        check_file(folder / name)
    return folder


class UnfinishedFile:
    """A new file with a hidden, temporary name next to `path`, which is locked until `commit` gives it its name.

    The unfinished files that killed processes have left for the same path are deleted: those that nobody has locked.

    Attributes:
        path: the temporary name.
        file: the open file.
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        while True:
            self.path = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp")
            self.file = self.path.open("wb")
            if lock(self.file, self.path) is not False:  # nobody has taken it for abandoned meanwhile
                break
            self.file.close()
        for other in path.parent.glob(f".{glob.escape(path.name)}.*.tmp"):
            with suppress(OSError), other.open("r+b") as file:
                if TEMPORARY.fullmatch(other.name[len(path.name) + 1 :]) and lock(file, other):
                    other.unlink()

    def commit(self, path: Path) -> None:
        """Flush the content to the disk, and rename the file to `path`; a power failure loses neither."""
        self.file.flush()
        os.fsync(self.file.fileno())
        if fcntl is None:  # Windows renames no open file
            self.file.close()
        self.path.replace(path)
        self.file.close()
        with suppress(OSError):  # Windows, and some file systems, cannot flush a folder
            folder = os.open(path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)

    def discard(self) -> None:
        """Delete the file, unless it has its name already."""
        with suppress(OSError):  # the disk may be full
            self.file.close()
        self.path.unlink(missing_ok=True)


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A temporary path to write to. It is renamed to `path` at the end, or deleted if there was an error.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "folder" / "note.txt"
    >>> with replacing(path) as temporary:
    ...     _ = temporary.write_text("whole")
    >>> path.read_text()
    'whole'
    """
    unfinished = UnfinishedFile(Path(path))
    try:
        yield unfinished.path
        unfinished.commit(Path(path))
    finally:
        unfinished.discard()


def write(path: str | os.PathLike[str], content: bytes) -> Path:
    """Write a file, which is complete or not there at all; returns its path."""
    with replacing(path) as temporary:
        temporary.write_bytes(content)
    return Path(path)


def lock(file: IO[Any], path: Path) -> bool | None:
    """Lock an open file until it is closed; None where there are no locks.

    False if another process has locked it, or has deleted it after it was opened here.
    """
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.path.samestat(path.stat(), os.fstat(file.fileno()))
    except (BlockingIOError, FileNotFoundError):
        return False
    except (AttributeError, OSError):  # Windows, or a file system without locks
        return None
