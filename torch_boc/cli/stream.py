"""A stream of samples with a monitor: its state is kept in a file, and each event is printed as a line."""

import copy
import hashlib
import json as json_format
import math
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..data.atomic import printable, replacing
from ..data.sets import logarithms, naming, refuse_probabilities
from ..nn import DriftMonitor
from .conformal import Ready, load_content, unpacked
from .inputs import Files, split_name
from .output import print_json, put, say, terminal

KIND = "torch_boc.DriftMonitor"
BATCH = 1024  # so many samples are added at once; the state is saved after each batch
CHUNK = 2**16  # so many bytes of standard input are taken at once, if they are there
SHOWN = 40  # so many characters of a bad line


class Stream:
    """A monitor, how many rows of each file it has taken, and the file that keeps both.

    Args:
        files: reads the samples.
        ready: the test; None to continue the stream of the state.
        limits: `alpha` and `run_length` of the monitor; if both are None, those of the state, or its default.
        path: the file of the state, or None.
        every: print a line after so many samples, or None.
        stop: whether samples after the first alarm are left out.
        json: whether lines are printed as JSON.
    """

    def __init__(
        self,
        files: Files,
        ready: Ready | None,
        limits: Mapping[str, Any],
        path: str | None,
        every: int | None,
        *how: bool,
    ) -> None:
        self.files, self.path, self.every, self.console = files, path, every, terminal()
        self.stop, self.json = how
        self.taken: dict[str, int] = {}  # the number of rows by the digest of their file
        if path is not None and Path(path).exists():
            self._load(path, ready, limits)
        else:
            assert ready is not None
            self.ready, self.monitor = ready, DriftMonitor(ready.test, **limits)
        self.save()
        if seen := int(self.monitor.seen):
            self.say("continued", f"continued after {seen:,} samples: {self._now()}, {self._alarm('no alarm')}")

    def ended(self) -> bool:
        """Whether no further sample is wanted."""
        return self.stop and bool(self.monitor.alarm)

    def take(self, value: str) -> None:
        """Add the samples of a file, or of standard input for "-"."""
        if self.ended():
            return
        if value == "-":
            if sys.stdin.isatty():
                say("reading standard input: one sample in each line; Ctrl-D ends it")
            rows = 0
            for logits in read_lines(sys.stdin.buffer, self.ready.test.num_classes or 0, self.files.probabilities):
                rows += len(logits)
                self.add(logits)
                if self.ended():
                    break
            if rows == 0:
                raise ValueError("standard input: expected a sample in each line, got nothing")
            return
        reader = self.ready.open(self.files, value)
        source, path = "", Path(split_name(value)[1]).expanduser()
        if self.path is not None:
            if not path.is_file():
                raise ValueError(f"{value}: expected one file with --state, got several; give each file")
            source = hashlib.sha256(path.read_bytes()).hexdigest()
        known = self.taken.get(source, 0)  # the content of a file decides whether it was read before
        if known:
            self.say("known", f"{reader.name}: {known:,} samples are in the state already", file=reader.name)
        for block in reader:
            self.add(block.logits[max(0, known - int(block.row_numbers[0])) :], source)
        if known < reader.rows:
            self.progress(reader.name)

    def add(self, logits: Tensor, source: str = "") -> None:
        """Add the next samples in batches, with a line at each multiple of `every`, and at the first alarm.

        Args:
            logits: (N, C).
            source: the digest of the file that they are from, or "".
        """
        while len(logits) and not self.ended():
            position = int(self.monitor.seen + self.monitor.skipped)
            left = BATCH if self.every is None else min(BATCH, self.every - position % self.every)
            rows = self._add(logits[:left])
            logits = logits[left:]
            if source:
                self.taken[source] = self.taken.get(source, 0) + rows
            self.save()
            if self.every is not None and (position + rows) % self.every == 0:
                self.progress()

    def _add(self, batch: Tensor) -> int:
        """Add a batch, and return how many of its rows were taken: up to the alarm, if it is the end."""
        before = copy.deepcopy(self.monitor) if self.stop else self.monitor
        quiet = not bool(self.monitor.alarm)
        evidence = self.monitor.update(batch)
        if quiet and bool(self.monitor.alarm):
            first = int((evidence >= self.monitor.bound).nonzero()[0]) + 1
            if self.stop:
                batch, self.monitor = batch[:first], before
                self.monitor.update(batch)
            at, change, reached = int(self.monitor.alarm_at), self.monitor.change or (0, 0), float(evidence[first - 1])
            self.say(
                "alarm",
                f"ALARM at sample {at:,}: evidence {capital(reached)} has reached {math.exp(self.monitor.bound):g}; "
                f"the change probably began between sample {change[0]:,} and {change[1]:,}",
                alarm_log_evidence=reached,
                sample=at,
                change=change,
            )
        return len(batch)

    def save(self) -> None:
        """Write the state, if there is a file for it. The file is replaced as a whole."""
        if self.path is None:
            return
        content = {"kind": KIND, "seed": self.monitor.seed, "test": self.ready.packed()}
        content |= {"alpha": self.monitor.alpha, "run_length": self.monitor.run_length}
        with replacing(self.path) as temporary:
            torch.save({**content, "state": self.monitor.state_dict(), "taken": self.taken}, temporary)

    def progress(self, name: str | None = None) -> None:
        """Print the evidence so far, perhaps at the end of a file."""
        where = f"{name}: " if name is not None else ""
        self.say("progress", f"{where}{int(self.monitor.seen):,} samples so far: {self._now()}", file=name)

    def end(self) -> None:
        """Print the last line."""
        skipped, peak = int(self.monitor.skipped), capital(float(self.monitor.peak))
        more = f" ({skipped:,} more with NaN or +inf left out)" if skipped else ""
        found = self._alarm(f"no alarm: evidence never reached {math.exp(self.monitor.bound):g}")
        self.say("end", f"{int(self.monitor.seen):,} samples{more}, {found}; {self._now()}, at most {peak}")

    def say(self, event: str, text: str, **more: Any) -> None:
        """Print an event at once."""
        if not self.json:
            put(self.console, text, "bold red" if event == "alarm" else "", soft_wrap=True)
            return
        content = {"event": event, "samples": int(self.monitor.seen), "log_evidence": float(self.monitor.evidence)}
        print_json({**content, "alarm_at": int(self.monitor.alarm_at) or None, **more})

    def _now(self) -> str:
        return f"evidence {capital(float(self.monitor.evidence))}"

    def _alarm(self, otherwise: str) -> str:
        at = int(self.monitor.alarm_at)
        return f"alarm at sample {at:,}" if at else otherwise

    def _load(self, path: str, ready: Ready | None, limits: Mapping[str, Any]) -> None:
        with naming(printable(path)):
            content = load_content(path, KIND)
            self.ready = unpacked(content["test"], self.files.probabilities)
            if ready is not None:
                ours, theirs = self.ready.test, ready.test
                same = ours.scoring == theirs.scoring and ours.num_classes == theirs.num_classes
                if not same or not torch.equal(ours.counts, theirs.counts):
                    raise ValueError(
                        "expected the test that this stream began with, got other held-out samples or another score; "
                        "delete the file to begin again"
                    )
            known = {name: content[name] for name in limits}
            if limits != known and {*limits.values()} != {None}:
                began, got = (
                    " ".join(f"--{name.replace('_', '-')} {x:g}" for name, x in given.items() if x is not None)
                    for given in (known, limits)
                )
                raise ValueError(f"expected {began}, with which this stream began, got {got}; delete it to begin again")
        self.monitor = DriftMonitor(self.ready.test, **known, seed=content["seed"])
        self.monitor.load_state_dict(content["state"])
        self.taken = dict(content["taken"])


def capital(evidence: float) -> str:
    """The gambler's capital, of which the evidence is the logarithm.

    >>> capital(0.0), capital(4.7), capital(500.0)
    ('1', '110', '10^217')
    """
    power = evidence / math.log(10)
    return f"{math.exp(evidence):.3g}" if power < 6 else f"10^{power:.0f}"


def read_lines(stream: Any, classes: int, probabilities: bool = False) -> Iterator[Tensor]:
    """The samples of a binary stream, one in each line, in parts of shape (N, C) in float64.

    It waits only if there is no whole line; the last line may have no end, and empty lines are left out. A bad line is
    an error, after the samples before it.

    Args:
        stream: a buffered binary stream.
        classes: how many numbers a line must have.
        probabilities: whether the lines hold probabilities, whose logarithm is taken.
    """
    number, rest, chunk, first, problem = 0, b"", b"\n", True, None
    while chunk and problem is None:
        chunk = stream.read1(CHUNK)
        *lines, rest = (rest + chunk).split(b"\n")
        rows: list[Tensor] = []
        for line in lines if chunk else [*lines, rest]:
            number += 1
            text = line.decode("utf-8-sig" if number == 1 else "utf-8", "replace").strip()
            try:
                rows += [parse_line(text, classes, probabilities)] if text else []
            except ValueError as error:
                problem = ValueError(f"standard input, line {number:,}: {error}")
                break
        if rows:
            part = torch.cat(rows)
            if first and not probabilities:
                with naming("standard input"):
                    refuse_probabilities(part)
            first = False
            yield part
    if problem is not None:
        raise problem


def parse_line(text: str, classes: int, probabilities: bool = False) -> Tensor:
    """The numbers in a line, of shape (1, C).

    >>> parse_line("1.5, -2, nan", 3), parse_line("[0.5, 0.5]", 2, probabilities=True)
    (tensor([[ 1.5000, -2.0000,     nan]], dtype=torch.float64), tensor([[-0.6931, -0.6931]], dtype=torch.float64))
    """
    try:
        values = json_format.loads(text) if text.startswith("[") else [float(x) for x in text.split(",")]
        good = all(type(x) in (int, float) for x in values)
        row = torch.tensor([values if good else []], dtype=torch.float64)
    except (ValueError, OverflowError, RecursionError):
        good = False
    if not good:
        shown = printable(text if len(text) <= SHOWN else f"{text[:SHOWN]}...")
        raise ValueError(
            f"expected numbers with commas between them, or an array of JSON, got {shown!r}; a file with a header can "
            "be given as PATH"
        )
    if row.shape[1] != classes:
        raise ValueError(f"expected {classes} numbers, one for each class, got {row.shape[1]}")
    return logarithms(row) if probabilities else row
