"""The command line: `torch-boc demo`, `report`, `probe` and `experiment`."""

import sys
from collections.abc import Sequence


def main(args: Sequence[str] | None = None) -> None:
    """The console script: the commands, or how to install what they need."""
    try:
        import rich
        import typer
    except ImportError:
        sys.exit("torch-boc needs the 'cli' extra: pip install 'torch-boc[cli]'")
    del rich, typer
    from .app import run

    sys.exit(run(sys.argv[1:] if args is None else args))
