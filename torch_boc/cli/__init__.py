"""The command line: `torch-boc demo`, `report`, `probe`, `screen`, `monitor`, `trace` and `doctor`."""

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

INTERRUPTED = 130


def main(args: Sequence[str] | None = None) -> None:
    """The console script. It runs a command, or says how to install a missing package."""
    with _quitting_at_once():
        run = _load()
    sys.exit(run(sys.argv[1:] if args is None else args))


def _load() -> Callable[[Sequence[str]], int]:
    try:
        import rich
        import typer
    except ImportError:
        sys.exit("torch-boc needs the 'cli' extra: pip install 'torch-boc[cli]'")
    del rich, typer
    from .app import run_command

    return run_command


@contextmanager
def _quitting_at_once() -> Iterator[None]:
    """Within the block, Ctrl-C ends the process at once.

    An exception would be raised in the middle of an import, and libraries may take it for a failed import.
    """
    usual = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # nobody else handles Ctrl-C
    if not usual or threading.current_thread() is not threading.main_thread():
        yield
        return
    signal.signal(signal.SIGINT, _quit)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _quit(*_: Any) -> NoReturn:
    sys.stderr.write("torch-boc: interrupted\n")
    sys.stderr.flush()
    os._exit(INTERRUPTED)
