"""A stream of samples with a monitor: its state is kept in a file, and each event is printed as a line."""

import hashlib
import math
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..data.errors import error_prefix, printable
from ..data.logit_set import log_probabilities, refuse_probabilities
from ..nn import DriftMonitor
from ..report.format import counted
from .calibrated_test import CalibratedTest, loading
from .inputs import Files
from .output import Terminal, print_error, print_json

KIND = "torch_boc.DriftMonitor"
BATCH = 1024  # at most this many samples are added at once; the state is saved after each batch
EVERY = 10_000  # a line is printed after about this many samples
CHUNK = 2**16  # this many bytes of standard input are taken at once, if they are there
SHOWN = 40  # this many characters of a bad line


@dataclass
class Stream:
    """A monitor, how many rows of each file it has taken, and the file that keeps both.

    Attributes:
        files: reads the samples.
        path: the file of the state, or None.
        stop: whether to stop at the first alarm.
        json: whether lines are printed as JSON.
        taken: the number of rows by the digest of their file.
    """

    files: Files
    path: str | None
    stop: bool
    json: bool
    taken: dict[str, int] = field(default_factory=dict)
    ready: CalibratedTest = field(init=False)
    monitor: DriftMonitor = field(init=False)

    def begin(self, ready: CalibratedTest | None, **limits: Any) -> None:
        """Begin with a test, or continue the stream of the state.

        Args:
            ready: the test; it may be None, or must be that of the state, if there is one.
            limits: `alpha` and `run_length` of the monitor; if both are None, those of the state, or its default.
        """
        if self.path is None or not Path(self.path).exists():
            assert ready is not None
            self.ready, self.monitor = ready, DriftMonitor(ready.test, **limits)
            self.save()
            return
        with loading(self.path, KIND, self.files) as (content, test):
            self.monitor = DriftMonitor(test, **{name: content[name] for name in limits})
            self.monitor.load_state_dict(content["state"])
            begun: Any = self.monitor.conformal_test
            self.ready = CalibratedTest(begun, None, printable(content["name"]), bool(content["repeated"]))
            self.taken = dict(content["taken"])
            rows = self.taken.values()
            if sum(rows) != int(self.monitor.seen + self.monitor.skipped) or min(rows, default=0) < 0:
                raise ValueError("expected a state whose counts add up, got a damaged one; delete it to begin again")
        new = begun if ready is None else ready.test
        same = new.scoring == begun.scoring and torch.equal(new.counts, begun.counts)
        if not same or any(value is not None and value != content[name] for name, value in limits.items()):
            raise ValueError(
                f"{printable(self.path)}: expected the held-out samples, the score and the level with which this "
                f"stream began ({self.monitor.extra_repr()}), got others; delete the file to begin again"
            )
        if int(self.monitor.seen):
            self.emit("continued", f"continued: {self.now()}")

    def save(self) -> None:
        """Write the state, if there is a file for it."""
        if self.path is not None:
            limits = {"alpha": self.monitor.alpha, "run_length": self.monitor.run_length}
            state = self.monitor.state_dict()
            self.ready.save(self.path, KIND, self.files, **limits, state=state, taken=self.taken)

    @property
    def ended(self) -> bool:
        """Whether no further sample is wanted."""
        return self.stop and bool(self.monitor.alarm)

    def add_file(self, value: str) -> bool:
        """Add the samples of a file, or of standard input for "-", in batches; whether the state was printed last."""
        if value == "-":
            if sys.stdin.isatty():
                print_error("reading standard input: one sample per line; Ctrl-D ends it")
            self._add(read_lines(sys.stdin.buffer, self.ready.test.num_classes or 0, self.files.probabilities))
            return False
        reader, digest = self.ready.open(self.files, value), hashlib.sha256()
        for block in reader if self.path is not None else ():
            digest.update(block.logits.contiguous().view(torch.uint8).numpy().data)
        source, name = digest.hexdigest(), reader.name  # the logits decide whether a file was read before
        already = 0 if self.path is None else self.taken.get(source, 0)
        if already:
            self.emit("known", f"{name}: {counted(already, 'sample')} already in the state", file=name)
        self._add((block.logits[max(0, already - int(block.row_numbers[0])) :] for block in reader), source)
        if already < reader.rows:
            self.emit("progress", f"{name}: {self.now()}", file=name)
        return already < reader.rows

    def _add(self, blocks: Iterable[Tensor], source: str = "") -> None:
        """Add samples; `source` is the digest of their file, or "". The state is saved after each batch."""
        for batch in (batch for block in blocks for batch in block.split(min(BATCH, EVERY)) if len(batch)):
            before, quiet = int(self.monitor.seen), not bool(self.monitor.alarm)
            evidence = self.monitor.update(batch)
            self.taken[source] = self.taken.get(source, 0) + len(batch)
            self.save()
            if quiet and bool(self.monitor.alarm):
                at, change, bound = int(self.monitor.alarm_at), self.monitor.change or (0, 0), self.monitor.bound
                reached = float(evidence[evidence >= bound][0])
                text = f"ALARM at sample {at:,}: evidence {wealth_text(reached)} has reached {math.exp(bound):g}; "
                text += f"the shift probably began after {change[0]:,} to {change[1]:,} samples"
                self.emit("alarm", text, alarm_log_evidence=reached, sample=at, change=change)
            if int(self.monitor.seen) // EVERY > before // EVERY:
                self.emit("progress", f"so far: {self.now()}")
            if self.ended:
                return

    def now(self) -> str:
        """The state of the stream in a sentence."""
        seen, skipped, at = (int(x) for x in (self.monitor.seen, self.monitor.skipped, self.monitor.alarm_at))
        evidence, peak = (wealth_text(float(x)) for x in (self.monitor.evidence, self.monitor.peak))
        more = f" ({skipped:,} more with NaN or +inf left out)" if skipped else ""
        alarm = f"alarm at sample {at:,}" if at else f"no alarm (threshold {math.exp(self.monitor.bound):g})"
        return f"{counted(seen, 'sample')}{more}, {alarm}; evidence {evidence}, peak {peak}"

    def emit(self, event: str, text: str, **more: Any) -> None:
        """Print an event at once."""
        if not self.json:
            Terminal().print(text, style="bold red" if event == "alarm" else "", soft_wrap=True)
            return
        content = {"event": event, "samples": int(self.monitor.seen), "log_evidence": float(self.monitor.evidence)}
        print_json({**content, "alarm_at": int(self.monitor.alarm_at) or None, **more})


def wealth_text(evidence: float) -> str:
    """The wealth of the martingale, whose logarithm is the evidence.

    >>> wealth_text(0.0), wealth_text(4.7), wealth_text(500.0)
    ('1', '110', '10^217')
    """
    power = evidence / math.log(10)
    return f"{math.exp(evidence):.3g}" if power < 6 else f"10^{power:.0f}"


def read_lines(stream: Any, classes: int, probabilities: bool = False) -> Iterator[Tensor]:
    """The samples of a binary stream, one in each line, in parts of shape (N, C) in float64.

    It waits only if there is no whole line; the last line may have no end, and empty lines are left out. A bad line is
    an error, after the samples before it, and so is a stream without samples.

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
        for line in lines if chunk else [rest]:
            number += 1
            text = line.decode("utf-8-sig" if number == 1 else "utf-8", "replace").strip()
            try:
                rows += [parse_line(text, classes, probabilities)] if text else []
            except ValueError as error:
                problem = f", line {number:,}: {error}"
                break
        if rows:
            part = torch.cat(rows)
            if first and not probabilities:
                with error_prefix("standard input"):
                    refuse_probabilities(part)
            first = False
            yield part
    if problem is None and first:
        problem = ": expected a sample in each line, got nothing"
    if problem is not None:
        raise ValueError(f"standard input{problem}")


def parse_line(text: str, classes: int, probabilities: bool = False) -> Tensor:
    """The numbers in a line, of shape (1, C).

    >>> parse_line("1.5, -2, nan", 3), parse_line("[0.5, 0.5]", 2, probabilities=True)
    (tensor([[ 1.5000, -2.0000,     nan]], dtype=torch.float64), tensor([[-0.6931, -0.6931]], dtype=torch.float64))
    """
    try:
        row = torch.tensor([[float(x) for x in text.strip("[]").split(",")]], dtype=torch.float64)
    except ValueError:
        expected = "expected numbers with commas between them, or an array of JSON"
        raise ValueError(f"{expected}, got {text[:SHOWN]!r}; a file with a header can be given as PATH") from None
    if row.shape[1] != classes:
        raise ValueError(f"expected {classes} numbers, one for each class, got {row.shape[1]}")
    return log_probabilities(row) if probabilities else row
