"""A progress bar that counts samples, where somebody can see it."""

import sys
from contextlib import AbstractContextManager, nullcontext
from typing import Any


def progress_bar(shown: bool, total: int | None, start: int = 0) -> AbstractContextManager[Any]:
    """A tqdm bar in a terminal or a notebook; None if it is not to be shown."""
    if not shown:
        return nullcontext()
    try:
        from tqdm.auto import tqdm
    except ImportError as error:
        raise ImportError("the progress bar needs tqdm: pip install 'torch-boc[eval]', or progress=False") from error
    quiet = False if "ipykernel" in sys.modules else None  # None: not where the output is no terminal
    bar: AbstractContextManager[Any] = tqdm(total=total, initial=start, unit=" samples", disable=quiet)
    return bar
