"""Options that several commands have."""

from pathlib import Path
from typing import Annotated

import typer

from .output import DEFAULT_FOLDER

# The endings of files that can be read.
ENDINGS = ".npz, .npy, .safetensors, .pt, .pth, .parquet or .csv"
SCORE = "log_odds"
ALPHA = 0.01  # of the monitor

Out = Annotated[
    Path | None,
    typer.Option(
        "--out",
        metavar="FOLDER",
        help="Folder for the page and the figures.",
        show_default=f"./{DEFAULT_FOLDER}; none with --json",
    ),
]
Probabilities = Annotated[
    bool,
    typer.Option("--probabilities", metavar="", help="The files hold probabilities; their logarithm is taken."),
]
Classes = Annotated[
    str | None,
    typer.Option("--classes", metavar="NAMES", help="Names of the classes in order: a,b,c or a file of lines."),
]
Json = Annotated[bool, typer.Option("--json", metavar="", help="Print one JSON object instead of tables.")]
JsonObject = Annotated[bool, typer.Option("--json", metavar="", help="Print one JSON object instead of text.")]
Samples = Annotated[
    Path | None, typer.Option("--out", "-o", metavar="PATH", help="A row for each sample: .parquet or .csv.")
]
Trials = Annotated[int, typer.Option("--trials", metavar="N", min=1, max=10**6, help="Coin flips of the paper's test.")]
Seed = Annotated[int, typer.Option("--seed", metavar="N", min=0, help="Seed of everything that is random.")]
Replicates = Annotated[int, typer.Option("--replicates", metavar="N", min=1, help="Bootstrap samples, for intervals.")]
Calibration = Annotated[
    Path | None,
    typer.Option("--calibration", metavar="PATH", help="Held-out logits that the network was not trained on."),
]
KeptTest = Annotated[
    Path | None,
    typer.Option("--test", metavar="PATH", help="A test that `screen --save-test` has written, for --calibration."),
]
ScoreName = Annotated[
    str | None, typer.Option("--score", metavar="NAME", help="What is compared: low is unfamiliar.", show_default=SCORE)
]
Temperature = Annotated[
    float | None,
    typer.Option(
        "--temperature", metavar="T", help="Logits are divided by it before they are scored.", show_default="1"
    ),
]
Groups = Annotated[
    str | None,
    typer.Option("--groups", metavar="KIND", help="Compare within groups: prediction or confidence."),
]
