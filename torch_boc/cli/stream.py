"""A stream of samples with a monitor: its state is kept in a file, and each event is printed as a line."""

import copy
import json as json_format
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..data.atomic import printable, replacing
from ..data.sets import logarithms, refuse_probabilities
from ..nn import DriftMonitor
from .conformal import Ready, load_content, unpacked
from .options import ALPHA
from .output import print_json, put, screen

KIND = "torch_boc.DriftMonitor"
# So many samples are added at once; the state is saved after each batch.
BATCH = 1024
# So many bytes of standard input are taken at once, if they are there.
CHUNK = 2**16
SHOWN = 40


class Stream:
    """A monitor, how many rows of each file it has taken, and the file that keeps both.

    Args:
        ready: the test; None to continue the stream of the state.
        alpha: the chance of a false alarm; by default that of the state, or 0.01.
        path: the file of the state, or None.
        probabilities: whether the samples are probabilities.
        every: print a line after so many samples, or None.
        stop: whether samples after the first alarm are left out.
        json: whether lines are printed as JSON.
    """

    def __init__(
        self,
        ready: Ready | None,
        alpha: float | None,
        path: Path | None,
        *,
        probabilities: bool,
        every: int | None,
        stop: bool,
        json: bool,
    ) -> None:
        self.path, self.every, self.stop, self.json, self.console = path, every, stop, json, screen()
        self.taken: dict[str, int] = {}  # the number of rows by the digest of their file
        if path is not None and path.exists():
            self._load(path, ready, alpha, probabilities)
        elif ready is None:
            raise ValueError("expected --calibration PATH or --test PATH, which says what to compare with, got none")
        else:
            self.ready, self.monitor = ready, DriftMonitor(ready.test, ALPHA if alpha is None else alpha)
        self.save()
        if self.samples:
            self.say("continued", f"continued after {self.samples:,} samples: {self._now()}, {self._alarm('no alarm')}")

    @property
    def samples(self) -> int:
        """How many samples the monitor has seen."""
        return int(self.monitor.seen)

    def ended(self) -> bool:
        """Whether no further sample is wanted."""
        return self.stop and bool(self.monitor.alarm)

    def add(self, logits: Tensor, source: str = "") -> None:
        """Add the next samples in batches, with a line at each multiple of `every`, and at the first alarm.

        Args:
            logits: (N, C).
            source: the digest of the file that they are from, or "".
        """
        while len(logits) and not self.ended():
            position = int(self.monitor.seen + self.monitor.skipped)
            left = BATCH if self.every is None else min(BATCH, self.every - position % self.every)
            batch, logits = logits[:left], logits[left:]
            rows = self._add(batch)
            if source:
                self.taken[source] = self.taken.get(source, 0) + rows
            self.save()
            if self.every is not None and (position + rows) % self.every == 0:
                self.progress()

    def _add(self, batch: Tensor) -> int:
        """Add a batch, and return how many of its rows were taken."""
        before = None if bool(self.monitor.alarm) else copy.deepcopy(self.monitor)
        evidence = self.monitor.update(batch)
        if before is None or not bool(self.monitor.alarm):
            return len(batch)
        # The same samples once more, up to the alarm, so that batches of any size print the same.
        first = int((evidence >= -math.log(self.monitor.alpha)).nonzero()[0]) + 1
        before.update(batch[:first])
        at, reached, change = int(before.alarm_at), float(before.evidence), before.change or 0
        if self.stop:
            self.monitor = before
        self.say(
            "alarm",
            f"ALARM at sample {at:,}: evidence {capital(reached)} has reached {1 / before.alpha:g}; "
            f"the change probably began after sample {change:,}",
            alarm_log_evidence=reached,
            sample=at,
            change=change,
        )
        return first if self.stop else len(batch)

    def save(self) -> None:
        """Write the state, if there is a file for it. The file is replaced as a whole."""
        if self.path is None:
            return
        content = {"kind": KIND, "alpha": self.monitor.alpha, "seed": self.monitor.seed, "test": self.ready.packed()}
        taken = json_format.dumps(self.taken)
        with replacing(self.path) as temporary:
            torch.save({**content, "state": self.monitor.state_dict(), "taken": taken}, temporary)

    def progress(self, name: str | None = None) -> None:
        """Print the evidence so far, perhaps at the end of a file."""
        where = f"{name}: " if name is not None else ""
        self.say("progress", f"{where}{self.samples:,} samples so far: {self._now()}", file=name)

    def end(self) -> None:
        """Print the last line."""
        skipped, peak = int(self.monitor.skipped), capital(float(self.monitor.peak))
        more = f" ({skipped:,} more with NaN or +inf left out)" if skipped else ""
        found = self._alarm(f"no alarm: evidence never reached {1 / self.monitor.alpha:g}")
        self.say("end", f"{self.samples:,} samples{more}, {found}; {self._now()}, at most {peak}")

    def say(self, event: str, text: str, **more: Any) -> None:
        """Print an event at once."""
        if not self.json:
            put(self.console, text, "bold red" if event == "alarm" else "", soft_wrap=True)
            return
        content = {"event": event, "samples": self.samples, "log_evidence": float(self.monitor.evidence)}
        print_json({**content, "alarm_at": int(self.monitor.alarm_at) or None, **more})

    def _now(self) -> str:
        return f"evidence {capital(float(self.monitor.evidence))}"

    def _alarm(self, otherwise: str) -> str:
        at = int(self.monitor.alarm_at)
        return f"alarm at sample {at:,}" if at else otherwise

    def _load(self, path: Path, ready: Ready | None, alpha: float | None, probabilities: bool) -> None:
        content, said = load_content(path, KIND), printable(str(path))
        self.ready = unpacked(content["test"]).check_kind(probabilities, said)
        if ready is not None:
            ours, theirs = self.ready.test, ready.test
            same = ours.scoring == theirs.scoring and ours.num_classes == theirs.num_classes
            if not same or not torch.equal(ours.counts, theirs.counts):
                raise ValueError(
                    f"{said}: expected the test that this stream began with, got other held-out samples or another "
                    "score; delete the file to begin again"
                )
        if alpha is not None and alpha != content["alpha"]:
            raise ValueError(
                f"{said}: expected --alpha {content['alpha']}, with which this stream began, got {alpha}; "
                "delete the file to begin again"
            )
        self.monitor = DriftMonitor(self.ready.test, content["alpha"], seed=content["seed"])
        self.monitor.load_state_dict(content["state"])
        self.taken = json_format.loads(content["taken"])


def capital(evidence: float) -> str:
    """The gambler's capital, of which the evidence is the logarithm.

    >>> capital(0.0), capital(4.7), capital(500.0)
    ('1', '110', '10^217')
    """
    power = evidence / math.log(10)
    return f"{math.exp(evidence):.3g}" if power < 6 else f"10^{power:.0f}"


def read_lines(stream: Any, classes: int, *, probabilities: bool = False) -> Iterator[Tensor]:
    """The samples of a binary stream, one in each line, in parts of shape (N, C) in float64.

    It waits only if there is no whole line; the last line may have no end, and empty lines are left out. A bad line is
    an error, after the samples before it.

    Args:
        stream: a buffered binary stream.
        classes: how many numbers a line must have.
        probabilities: whether the lines hold probabilities, whose logarithm is taken.
    """
    number, rest, chunk, first = 0, b"", b"\n", True
    while chunk:
        chunk = stream.read1(CHUNK)
        *lines, rest = (rest + chunk).split(b"\n")
        lines += [] if chunk else [rest]
        rows: list[Tensor] = []
        problem = None
        for line in lines:
            number += 1
            text = line.decode("utf-8-sig" if number == 1 else "utf-8", "replace").strip()
            try:
                rows += [_row(parse_line(text), classes, probabilities)] if text else []
            except ValueError as error:
                problem = ValueError(f"standard input, line {number:,}: {error}")
                break
        if rows:
            part = torch.stack(rows)
            if first and not probabilities:
                try:
                    refuse_probabilities(part)
                except ValueError as error:
                    raise ValueError(f"standard input: {error}") from None
            first = False
            yield part
        if problem is not None:
            raise problem


def parse_line(text: str) -> list[float]:
    """The numbers in a line.

    >>> parse_line("1.5, -2, nan"), parse_line("[0.5, 1e-3]")
    ([1.5, -2.0, nan], [0.5, 0.001])
    """
    try:
        values = json_format.loads(text) if text.startswith("[") else [float(x) for x in text.split(",")]
        if all(type(x) in (int, float) for x in values):
            return [float(x) for x in values]
    except (ValueError, OverflowError, RecursionError):
        pass
    shown = printable(text if len(text) <= SHOWN else f"{text[:SHOWN]}...")
    raise ValueError(
        f"expected numbers with commas between them, or an array of JSON, got {shown!r}; a file with a header can be "
        "given as PATH"
    )


def _row(values: list[float], classes: int, probabilities: bool) -> Tensor:
    if len(values) != classes:
        raise ValueError(f"expected {classes} numbers, one for each class, got {len(values)}")
    row = torch.tensor(values, dtype=torch.float64)
    return logarithms(row.unsqueeze(0)).squeeze(0) if probabilities and not row.isnan().any() else row
