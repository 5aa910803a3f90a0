"""`torch-boc monitor`: has the input drifted? An alarm that may be looked at after every sample."""

import os
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import typer

from . import options as o
from .output import working

ALARM = 4


def monitor(
    paths: o.Stream = None,
    calibration: o.HeldOut = None,
    alpha: o.Chance = None,
    run_length: o.RunLength = None,
    score: o.Score = None,
    temperature: o.Temperature = None,
    groups: o.Groups = None,
    kept: o.KeptTest = None,
    state: o.State = None,
    every: o.Every = 10_000,
    until_alarm: o.UntilAlarm = False,
    probabilities: o.Probabilities = False,
    classes: o.Classes = None,
    json: o.Json = False,
) -> None:
    """Watches a stream of logits, and raises an alarm when they no longer look like the held-out samples.

    Each sample is ranked among the held-out and all earlier ones, and a gambler bets against the ranks being uniform.
    The evidence is the gambler's capital. Without drift it ever reaches 1/alpha with a chance of at most alpha, however
    long the stream is. With --run-length it is compared with that number instead, for streams that never end: without
    drift there is at most one false alarm in so many samples on average. The exit code is 4 if there was an alarm, and
    0 otherwise. With --json each line is an object.

    Samples that depend on each other, such as the frames of a video, raise false alarms: give one of each session,
    every k-th frame, or shuffled batches.

    Files are read in their order. Standard input has one sample in each line, numbers with commas between them or an
    array of JSON, and is read as it comes. A bad line is an error that names it; the samples before it count. Rows with
    NaN or +inf are skipped, and do not count as samples.

    With --state the stream is saved after each batch, and continued if the file is there: a file whose logits were
    taken before is left out, and --calibration need not be given again. What comes from standard input is always taken
    as new. Delete the file to begin again. A second monitor with the same state is refused.

    Examples:
        torch-boc monitor day1.npz day2.npz --calibration val.npz
        torch-boc monitor day3.npz --calibration val.npz --state stream.pt
        torch-boc monitor --calibration val.npz --until-alarm < logits.csv
        torch-boc monitor --calibration val.npz --run-length 100000 < logits.csv
    """
    from ..inference.part_files import one_writer
    from .conformal import ready_test
    from .inputs import Files
    from .stream import Stream

    with one_writer(Path(state)) if state is not None and os.name == "posix" else nullcontext():
        with working("reading") as tell:
            files = Files(probabilities, classes, tell)
            how: dict[str, Any] = {"score": score, "temperature": temperature, "groups": groups}
            how |= {"calibration": calibration, "kept": kept}
            known = state is not None and Path(state).exists()
            ready = None if known and {*how.values()} == {None} else ready_test(files, **how)
        stream = Stream(files._replace(tell=lambda message: None), state, every, until_alarm, json)
        stream.begin(ready, alpha=alpha, run_length=run_length)
        told = False
        for path in paths or ["-"]:
            if not stream.ended:
                told = stream.take(path)
        if json or not told:
            stream.say("end", stream.now())
    if bool(stream.monitor.alarm):
        raise typer.Exit(ALARM)
