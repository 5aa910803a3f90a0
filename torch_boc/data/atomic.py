"""Files that are complete or not there at all, names that are safe to print, and errors that tell of memory."""

import errno
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
LONGEST_NAME = 255  # bytes, in the usual file systems
# Control characters, surrogates (how Python holds bytes that are not UTF-8), line breaks, marks of text direction.
HIDDEN = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
MEMORY = ("out of memory", "not enough memory", "can't allocate memory", "cannot allocate memory", "alloc_failed")
URI = re.compile("[a-zA-Z][a-zA-Z0-9+.-]+:/")  # a single letter is a drive; `Path` has made one / of two


def check_file(path: str | os.PathLike[str]) -> Path:
    """The path, if a file can be written there. To be called before long work, so that the error comes early.

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


def printable(text: str) -> str:
    r"""The text, with every character that a terminal would obey or could not show written as an escape.

    >>> print(printable("\x1b[31mred"))
    \x1b[31mred
    """
    return HIDDEN.sub(lambda match: ascii(match[0])[1:-1], text)


def temporary_name(path: Path) -> Path:
    """A temporary path for writing `path`: a hidden file in the same folder, with a new name in every call."""
    end = f".{os.getpid()}-{secrets.token_hex(4)}.tmp"
    start = os.fsencode(path.name)[: LONGEST_NAME - 1 - len(end)].decode("utf-8", "ignore")
    return path.with_name(f".{start}{end}")


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
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = temporary_name(path)
    try:
        yield temporary
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def remove_abandoned(temporary: Path) -> None:
    """Delete the temporary files that killed processes have left for the same path: those that nobody has locked."""
    start = temporary.name.removesuffix(".tmp").rpartition(".")[0]
    for path in temporary.parent.glob(f"{glob.escape(start)}.*.tmp"):
        with suppress(OSError), path.open("ab") as file:
            if TEMPORARY.fullmatch(path.name[len(start) :]) and lock(file):
                path.unlink()


def lock(file: IO[Any]) -> bool | None:
    """Lock an open file until it is closed; False if another process has locked it, None where there are no locks."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except (AttributeError, OSError):  # Windows, or a file system without locks
        return None
    return True


def mentions_memory(error: BaseException) -> bool:
    """Whether the message of `error` is about memory: of a GPU, of the CPU, or of a library on the GPU."""
    return any(text in str(error).lower() for text in MEMORY)


def is_memory_error(error: BaseException) -> bool:
    """Whether `error` says that there is too little memory; each library says it in its own words."""
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    if isinstance(error, ValueError | TypeError | LookupError | ImportError):  # may contain names of files
        return False
    return isinstance(error, MemoryError) or mentions_memory(error)
