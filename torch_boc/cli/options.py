"""Options that several commands have."""

from pathlib import Path
from typing import Annotated

import typer

from ..functional.checks import MOST_TRIALS
from .output import FOLDER

Out = Annotated[
    Path | None,
    typer.Option(
        "--out",
        metavar="FOLDER",
        help="Folder for the page and the figures.",
        show_default=f"./{FOLDER}; none with --json",
    ),
]
Json = Annotated[bool, typer.Option("--json", metavar="", help="Print one JSON object instead of tables.")]
Trials = Annotated[
    int, typer.Option("--trials", metavar="N", min=1, max=MOST_TRIALS, help="Coin flips of the paper's test.")
]
Replicates = Annotated[int, typer.Option("--replicates", metavar="N", min=1, help="Bootstrap samples, for intervals.")]
