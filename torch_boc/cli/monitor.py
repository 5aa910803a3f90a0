"""`torch-boc monitor`: a drift alarm that can be checked after every sample."""

import os
from contextlib import nullcontext
from pathlib import Path

import typer

from . import options as o
from .output import spinner

ALARM = 4


def monitor(
    paths: o.Stream = None,
    calibration: o.HeldOutSet = None,
    alpha: o.Chance = None,
    run_length: o.RunLength = None,
    score: o.Score = None,
    kept: o.KeptTest = None,
    state: o.State = None,
    until_alarm: o.UntilAlarm = False,
    probabilities: o.Probabilities = False,
    classes: o.Classes = None,
    json: o.Json = False,
) -> None:
    """Monitor a stream of logits, and raise an alarm when it drifts from the held-out samples.

    Each sample is ranked among the held-out and all earlier ones. A betting martingale tests that the ranks are
    uniform; the evidence is its wealth. The probability that it ever reaches 1/alpha is at most alpha, however long the
    stream, if samples are exchangeable with the held-out set. With --run-length, for endless streams, there is at most
    one false alarm in that many samples on average. The exit code is 4 after an alarm, otherwise 0. With --json each
    line is an object.

    Dependent samples, such as video frames, raise false alarms: give one sample per session, every k-th frame, or
    shuffled batches.

    Files are read in order. Standard input has one sample per line, as comma-separated numbers or a JSON array. A bad
    line is an error that names it; the samples before it count. Rows with NaN or +inf are skipped and do not count.

    With --state the stream is saved after each batch and resumed from the file: files that were read before are
    skipped, and --calibration need not be repeated. Standard input is always new. Delete the file to start over. A
    second monitor with the same state is refused.

    Examples:
        torch-boc monitor day1.npz day2.npz --calibration val.npz
        torch-boc monitor day3.npz --calibration val.npz --state stream.pt
        torch-boc monitor --calibration val.npz --until-alarm < logits.csv
        torch-boc monitor --calibration val.npz --run-length 100000 < logits.csv
    """
    from ..inference.resume import exclusive_lock
    from .calibrated_test import calibrated_test
    from .inputs import Files
    from .stream import Stream

    with exclusive_lock(Path(state)) if state is not None and os.name == "posix" else nullcontext():
        with spinner("reading") as tell:
            files = Files(probabilities, classes, tell)
            resumed = state is not None and Path(state).exists() and {calibration, kept, score} == {None}
            ready = None if resumed else calibrated_test(files, calibration, kept, score=score)
        stream = Stream(files._replace(tell=lambda message: None), state, until_alarm, json)
        stream.begin(ready, alpha=alpha, run_length=run_length)
        printed = False
        for path in paths or ["-"]:
            if not stream.ended:
                printed = stream.add_file(path)
        if json or not printed:
            stream.emit("end", stream.now())
    if bool(stream.monitor.alarm):
        raise typer.Exit(ALARM)
