"""`torch-boc monitor`: has the input drifted? An alarm that may be looked at after every sample."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer
from torch import Tensor

from ..data.atomic import check_file
from ..functional.checks import check_share
from .console import say, working
from .held_out import Wanted, check_classes, ready_test
from .inputs import ENDINGS, FileReader
from .lines import read_lines
from .options import Calibration, Classes, Groups, KeptTest, Probabilities, ScoreName, Temperature
from .stream import ALPHA, Stream, file_digest
from .stream_lines import Printer, StopReading

ALARM = 4
STANDARD_INPUT = Path("-")
# So many samples are added at once; the state is saved after each batch.
BATCH = 1024
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
    """
    if alpha is not None:
        check_share("--alpha", alpha)
    if state is not None:
        check_file(state)
    with working("reading"):
        files = FileReader(probabilities, classes)
        wanted = Wanted(calibration, kept, score, temperature, groups)
        known = state is not None and state.exists() and not any(x is not None for x in wanted)
        stream = Stream(None if known else ready_test(wanted, files), alpha, state, probabilities=probabilities)
        stream.save()
    printer = Printer(stream, json=json)
    try:
        printer.begin(stop=until_alarm)
        for path in paths or [STANDARD_INPUT]:
            if path == STANDARD_INPUT:
                _read_input(stream, printer, every or EVERY, probabilities, stop=until_alarm)
            else:
                _read_file(stream, printer, files, path, every, stop=until_alarm)
    except StopReading:
        pass
    printer.end()
    if bool(stream.monitor.alarm):
        raise typer.Exit(ALARM)


def _read_file(
    stream: Stream, printer: Printer, files: FileReader, path: Path, every: int | None, *, stop: bool
) -> None:
    """Add the samples of a file that the state does not have, and print a line."""
    data = check_classes(files.read(path), stream.ready, path)
    source = file_digest(path) if stream.path is not None else ""
    known = stream.taken.get(source, 0)
    if known:
        printer.taken_before(data.name, known)
    if known < len(data):
        _add(stream, printer, data.logits[known:], every, source=source, stop=stop)
        printer.progress(data.name)


def _read_input(stream: Stream, printer: Printer, every: int, probabilities: bool, *, stop: bool) -> None:
    """Add the samples of standard input as they come. After a bad line, those before it are added and saved."""
    if sys.stdin.isatty():
        say("reading standard input: one sample in each line; Ctrl-D ends it")
    classes = stream.ready.test.num_classes
    assert classes is not None
    for lines in read_lines(sys.stdin.buffer, classes, probabilities=probabilities):
        _add(stream, printer, lines.logits, every, stop=stop)
        if lines.error is not None:
            raise lines.error


def _add(stream: Stream, printer: Printer, logits: Tensor, every: int | None, *, source: str = "", stop: bool) -> None:
    """Add samples in batches, with a line at each multiple of `every`, and at the alarm."""
    for batch in _batches(logits, stream.position, every):
        alarm = stream.add(batch, source=source, stop=stop)
        if alarm is not None:
            printer.alarm(alarm)
            if stop:
                raise StopReading
        if every is not None and stream.position % every == 0:
            printer.progress()


def _batches(logits: Tensor, position: int, every: int | None) -> Iterator[Tensor]:
    """Pieces of bounded size that end at each multiple of `every` in the stream."""
    start = 0
    while start < len(logits):
        left = BATCH if every is None else every - (position + start) % every
        end = min(start + min(left, BATCH), len(logits))
        yield logits[start:end]
        start = end
