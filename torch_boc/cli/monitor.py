"""`torch-boc monitor`: has the input drifted? An alarm that may be looked at after every sample."""

import hashlib
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from ..data.atomic import check_file
from .options import (
    ALPHA,
    ENDINGS,
    Calibration,
    Classes,
    Groups,
    KeptTest,
    Probabilities,
    ScoreName,
    Temperature,
)
from .output import say, working

ALARM = 4
STANDARD_INPUT = Path("-")
EVERY = 1000


def monitor(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(metavar="PATH", help=f"{ENDINGS}; - or none for standard input."),
    ] = None,
    calibration: Calibration = None,
    alpha: Annotated[
        float | None,
        typer.Option("--alpha", metavar="A", help="Chance of a false alarm, at any time.", show_default=str(ALPHA)),
    ] = None,
    score: ScoreName = None,
    temperature: Temperature = None,
    groups: Groups = None,
    kept: KeptTest = None,
    state: Annotated[
        Path | None, typer.Option("--state", metavar="PATH", help="Keep the stream in this file, and continue it.")
    ] = None,
    every: Annotated[
        int | None,
        typer.Option(
            "--every", metavar="N", min=1, help="Print a line after N samples.", show_default=f"{EVERY} for -"
        ),
    ] = None,
    until_alarm: Annotated[bool, typer.Option("--until-alarm", metavar="", help="Stop at the alarm.")] = False,
    probabilities: Probabilities = False,
    classes: Classes = None,
    json: Annotated[bool, typer.Option("--json", metavar="", help="Print each line as a JSON object.")] = False,
) -> None:
    """Watches a stream of logits, and raises an alarm when they no longer look like the held-out samples.

    Each sample is ranked among the held-out and all earlier ones, and a gambler bets against the ranks being uniform.
    The evidence is the gambler's capital. Without drift it ever reaches 1/alpha with a chance of at most alpha, however
    long the stream is. The exit code is 4 if there was an alarm, and 0 otherwise.

    Files are read in their order. Standard input has one sample in each line, numbers with commas between them or an
    array of JSON, and is read as it comes. A bad line is an error that names it; the samples before it count.

    With --state the stream is saved after each batch, and continued if the file is there: a file of logits whose
    content was taken before is left out, and --calibration need not be given again. What comes from standard input is
    always taken as new. Delete the file to begin again. Rows with NaN or +inf are skipped, and do not count as samples.

    Examples:
        torch-boc monitor day1.npz day2.npz --calibration val.npz
        torch-boc monitor day3.npz --calibration val.npz --state stream.pt
        torch-boc monitor --calibration val.npz --until-alarm < logits.csv
    """
    from ..functional.checks import check_share
    from .conformal import ready_test
    from .inputs import FileReader
    from .stream import Stream, read_lines

    if alpha is not None:
        check_share("--alpha", alpha)
    if state is not None:
        check_file(state)
    files = FileReader(probabilities, classes)
    with working("reading"):
        how: dict[str, Any] = {"score": score, "temperature": temperature, "groups": groups}
        given = any(x is not None for x in (calibration, kept, *how.values()))
        known = state is not None and state.exists() and not given
        ready = None if known else ready_test(files, calibration, kept, **how)
    options: dict[str, Any] = {"probabilities": probabilities, "stop": until_alarm, "json": json}
    stream = Stream(ready, alpha, state, every=every, **options)
    for path in paths or [STANDARD_INPUT]:
        if stream.ended():
            break
        if path != STANDARD_INPUT:
            data = stream.ready.read(files, path)
            source = hashlib.sha256(path.read_bytes()).hexdigest() if state is not None else ""
            taken = stream.taken.get(source, 0)  # the content of a file decides whether it was read before
            if taken:
                stream.say("known", f"{data.name}: {taken:,} samples are in the state already", file=data.name)
            if taken < len(data):
                stream.add(data.logits[taken:], source)
                stream.progress(data.name)
            continue
        if sys.stdin.isatty():
            say("reading standard input: one sample in each line; Ctrl-D ends it")
        stream.every = every or EVERY
        for logits in read_lines(sys.stdin.buffer, stream.ready.test.num_classes or 0, probabilities=probabilities):
            stream.add(logits)
            if stream.ended():
                break
    stream.end()
    if bool(stream.monitor.alarm):
        raise typer.Exit(ALARM)
