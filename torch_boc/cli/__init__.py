"""The command line: `torch-boc demo`, `report`, `compare`, `probe`, `screen`, `monitor`, `text`, `trace`, `doctor`."""

import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

INTERRUPTED = 130


def main(args: Sequence[str] | None = None) -> None:
    """The console script. It runs a command, or says how to install a missing package."""
    with quitting_at_once():
        try:
            import rich
            import typer
        except ImportError:
            sys.exit("torch-boc needs the 'cli' extra: pip install 'torch-boc[cli]'")
        del rich, typer
        from .app import run_command
    sys.exit(run_command(sys.argv[1:] if args is None else args))


@contextmanager
def quitting_at_once() -> Iterator[None]:
    """Within the block, which imports libraries, Ctrl-C ends the process at once.

    An exception would be raised in the middle of an import, and libraries may take it for a failed import.
    """

    def leave(*_: Any) -> NoReturn:
        sys.stderr.write("torch-boc: interrupted\n")
        sys.stderr.flush()
        os._exit(INTERRUPTED)

    usual = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # nobody else handles Ctrl-C
    if not usual or threading.current_thread() is not threading.main_thread():
        yield
        return
    signal.signal(signal.SIGINT, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
