"""A progress bar that counts samples, in terminals and notebooks."""

import sys
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from .._optional import require


def progress_bar(shown: bool, total: int | None, start: int = 0) -> AbstractContextManager[Any]:
    """A tqdm bar in a terminal or a notebook; None if it is not to be shown."""
    if not shown:
        return nullcontext()
    tqdm = require("tqdm", "auto", purpose="the progress bar needs", otherwise="progress=False").auto.tqdm
    quiet = False if "ipykernel" in sys.modules else None  # None: tqdm shows it in a terminal only
    bar: AbstractContextManager[Any] = tqdm(total=total, initial=start, unit=" samples", disable=quiet)
    return bar
