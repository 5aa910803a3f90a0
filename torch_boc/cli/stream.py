"""A stream of samples with a monitor, whose state is kept in a file."""

import copy
import hashlib
import json
import math
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from ..data.atomic import printable, replacing
from ..nn.drift import DriftMonitor
from .held_out import Ready, check_kind, load_content, packed, unpacked

KIND = "torch_boc.DriftMonitor"
ALPHA = 0.01


class Alarm(NamedTuple):
    """The first alarm of a stream.

    Attributes:
        sample: the number of the sample, from 1 on.
        evidence: the evidence after it, a logarithm.
        change: after how many samples the change probably began.
    """

    sample: int
    evidence: float
    change: int


class Stream:
    """A monitor, how many rows of each file it has taken, and the file that keeps both.

    Args:
        ready: the test; None to continue the stream of the state.
        alpha: the chance of a false alarm; by default that of the state, or 0.01.
        path: the file of the state, or None.
        probabilities: whether the samples are probabilities.
    """

    def __init__(self, ready: Ready | None, alpha: float | None, path: Path | None, *, probabilities: bool) -> None:
        self.path = path
        self.taken: dict[str, int] = {}  # the number of rows by the digest of their file
        if path is not None and path.exists():
            self._load(path, ready, alpha, probabilities)
            return
        if ready is None:
            raise ValueError("expected --calibration PATH or --test PATH, which says what to compare with, got none")
        self.ready, self.monitor = ready, DriftMonitor(ready.test, ALPHA if alpha is None else alpha)

    @property
    def samples(self) -> int:
        """How many samples the monitor has seen."""
        return int(self.monitor.seen)

    @property
    def position(self) -> int:
        """How many rows were given, those with NaN or +inf included."""
        return int(self.monitor.seen + self.monitor.skipped)

    def add(self, logits: Tensor, *, source: str = "", stop: bool = False) -> Alarm | None:
        """Add the next samples, and save the state. Returns the alarm if it is the first.

        Args:
            logits: (N, C).
            source: the digest of the file that they are from, or "".
            stop: whether to leave out the samples after the first alarm.
        """
        before = None if bool(self.monitor.alarm) else copy.deepcopy(self.monitor)
        evidence, rows, alarm = self.monitor.update(logits), len(logits), None
        if before is not None and bool(self.monitor.alarm):
            # The same samples once more, up to the alarm, so that batches of any size print the same.
            first = int((evidence >= -math.log(self.monitor.alpha)).nonzero()[0]) + 1
            before.update(logits[:first])
            alarm = Alarm(int(before.alarm_at), float(before.evidence), before.change or 0)
            if stop:
                self.monitor, rows = before, first
        if source:
            self.taken[source] = self.taken.get(source, 0) + rows
        self.save()
        return alarm

    def save(self) -> None:
        """Write the state, if there is a file for it. The file is replaced as a whole."""
        if self.path is None:
            return
        content = {"kind": KIND, "alpha": self.monitor.alpha, "seed": self.monitor.seed, "test": packed(self.ready)}
        with replacing(self.path) as temporary:
            torch.save({**content, "state": self.monitor.state_dict(), "taken": json.dumps(self.taken)}, temporary)

    def _load(self, path: Path, ready: Ready | None, alpha: float | None, probabilities: bool) -> None:
        content, said = load_content(path, KIND), printable(str(path))
        self.ready = check_kind(unpacked(content["test"]), probabilities, said)
        if ready is not None and not _same(self.ready, ready):
            raise ValueError(
                f"{said}: expected the test that this stream began with, got other held-out samples or another score; "
                "delete the file to begin again"
            )
        if alpha is not None and alpha != content["alpha"]:
            raise ValueError(
                f"{said}: expected --alpha {content['alpha']}, with which this stream began, got {alpha}; "
                "delete the file to begin again"
            )
        self.monitor = DriftMonitor(self.ready.test, content["alpha"], seed=content["seed"])
        self.monitor.load_state_dict(content["state"])
        self.taken = json.loads(content["taken"])


def _same(ours: Ready, theirs: Ready) -> bool:
    """Whether two tests have the same arguments and the same held-out samples."""
    a, b = ours.test, theirs.test
    return a.scoring == b.scoring and a.num_classes == b.num_classes and torch.equal(a.counts, b.counts)


def file_digest(path: Path) -> str:
    """The SHA-256 of a file: its content decides whether it was read before, not its name."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
