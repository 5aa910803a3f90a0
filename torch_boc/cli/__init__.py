"""The command line: `torch-boc demo`, `report`, `compare`, `probe`, `screen`, `monitor`, `text`, `trace`, `doctor`."""

import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

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
    usual = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # nobody else handles Ctrl-C
    usual = usual and threading.current_thread() is threading.main_thread()
    if usual:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        if usual:
            signal.signal(signal.SIGINT, signal.default_int_handler)
