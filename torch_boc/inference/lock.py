"""One writer at a time: a lock file that names its owner, and that others may take over when the owner is dead."""

import json
import os
import secrets
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any

# A process on another machine cannot be looked up. Therefore an owner touches its lock file every `BEAT_SECONDS`. If it
# has not done so for `DEAD_SECONDS`, it is assumed to be dead.
BEAT_SECONDS, DEAD_SECONDS = 30.0, 600.0


class Lock:
    """Holds `path` while it is entered; a second holder is refused with the name of the first.

    The file says which process holds it: its id, its host, and when it began, because ids are used again. An owner on
    this machine is dead when no process has this id and this beginning. An owner on another machine is dead when it has
    not touched the file for `DEAD_SECONDS`. The lock of a dead owner is taken over.

    Args:
        path: the lock file.
        purpose: what the owner does, for the message, such as "writes samples.parquet".
    """

    def __init__(self, path: Path, purpose: str) -> None:
        self.path, self._purpose = path, purpose
        self._owner = {**_this_process(), "token": secrets.token_hex(8)}
        self._released = threading.Event()

    def __enter__(self) -> "Lock":
        self.path.parent.mkdir(parents=True, exist_ok=True)
        while not self._create():
            found = _read(self.path)
            if found is None:
                continue  # the owner released it in the meantime
            if _is_alive(found, self.path):
                raise BlockingIOError(
                    f"expected that nobody else {self._purpose}, got process {found.get('pid')} on "
                    f"{found.get('host')}, which has done so since {found.get('since')}; wait for it, or choose "
                    f"another path. If that process does not exist any more, delete {self.path}"
                )
            if self._take_over(found):
                break
        self._released.clear()
        threading.Thread(target=self._beat, args=(self._released,), daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._released.set()
        self._release()

    def check(self) -> None:
        """Raise if another process has taken over the lock, or deleted it."""
        found = _read(self.path)
        if found is None or found.get("token") != self._owner["token"]:
            taker = f"process {found.get('pid')} on {found.get('host')}" if found else "no lock"
            raise BlockingIOError(
                f"expected that this process still holds {self.path}, got {taker}; nothing more was written. "
                f"See that only one process {self._purpose}, and start again"
            )

    def _create(self) -> bool:
        """Try to create the lock; returns whether it is ours now.

        The file appears together with its content, because it is linked to its name. This fails if the name is taken.
        """
        with self._written() as mine:
            try:
                _place(mine, self.path)
            except FileExistsError:
                return False
        return True

    def _take_over(self, dead: dict[str, Any]) -> bool:
        """Replace the lock of a dead owner by ours, unless another process does so or has done so.

        Only the holder of the claim, which is a second lock for the takeover from this very owner, may replace the
        file. A process that gets the claim too late finds another owner in the file, and leaves it alone.
        """
        token = str(dead.get("token"))
        claim = self.path.with_name(f"{self.path.name}.{token if token.isalnum() else 'damaged'}")
        with Lock(claim, self._purpose), self._written() as mine:
            if _read(self.path) != dead or _is_alive(dead, self.path):
                return False
            mine.replace(self.path)
        return True

    @contextmanager
    def _written(self) -> Iterator[Path]:
        """A new file beside the lock that names us as the owner."""
        mine = self.path.with_name(f".{self.path.name}.{self._owner['token']}.tmp")
        try:
            mine.write_text(json.dumps(self._owner))
            yield mine
        finally:
            mine.unlink(missing_ok=True)

    def _release(self) -> None:
        """Delete our lock. If another process has taken it over, leave it."""
        if (_read(self.path) or {}).get("token") == self._owner["token"]:
            self.path.unlink(missing_ok=True)

    def _beat(self, released: threading.Event) -> None:
        while not released.wait(BEAT_SECONDS):
            with suppress(OSError):  # `check` reports a lock that is gone
                os.utime(self.path)


def _place(source: Path, target: Path) -> None:
    """Link a file to a second name; an error if the name is taken."""
    try:
        os.link(source, target)
    except FileExistsError:
        raise
    except (OSError, NotImplementedError):  # a file system without links
        with target.open("x") as file:
            file.write(source.read_text())


def _read(path: Path) -> dict[str, Any] | None:
    """The owner that the file names: an empty one if the file is damaged, None if there is no file."""
    try:
        owner = json.loads(path.read_text())
    except FileNotFoundError:
        return None
    except ValueError:
        return {}
    return owner if isinstance(owner, dict) else {}


def _this_process() -> dict[str, Any]:
    since = datetime.now().astimezone().isoformat(timespec="seconds")
    return {
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "machine": _machine(),
        "began": _began(os.getpid()),
        "since": since,
    }


def _machine() -> str:
    """A text for the place in which process ids are unique: one boot of one machine and, on Linux, one container."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return socket.gethostname()


def _began(pid: int) -> str | None:
    """When a process began, as the kernel writes it; "" if there is no such process, None if that cannot be known."""
    try:
        # The name of the program, in brackets, may hold anything. Then comes the state, and 19 fields later the start.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return _began_elsewhere(pid)
    return "" if fields[0] in "ZX" else fields[19]


def _began_elsewhere(pid: int) -> str | None:
    """The same on systems without /proc. Except on Windows, one can ask there whether the process exists."""
    if os.name != "posix":
        return None
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return ""
    except OSError:
        return None
    return None


def _is_alive(owner: dict[str, Any], path: Path) -> bool:
    if owner.get("machine") == _machine() and isinstance(owner.get("pid"), int):
        began = _began(owner["pid"])
        if began is not None:
            return bool(began == owner.get("began"))
    try:
        return time.time() - path.stat().st_mtime < DEAD_SECONDS
    except FileNotFoundError:
        return False
