"""The command line: `torch-boc demo`, `report`, `compare`, `probe`, `screen`, `monitor`, `text`, `trace`, `doctor`."""

import sys
from collections.abc import Sequence

INTERRUPTED = 130


def main(args: Sequence[str] | None = None) -> None:
    """The console script. It runs a command, or says how to install a missing package."""
    try:
        import rich
        import typer

        from .app import run_command

        del rich, typer
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except ImportError as error:
        if error.name not in ("rich", "typer"):
            raise
        sys.exit("torch-boc needs the 'cli' extra: pip install 'torch-boc[cli]'")
    sys.exit(run_command(sys.argv[1:] if args is None else args))
