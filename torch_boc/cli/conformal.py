"""The conformal test of a command line: calibrated on held-out logits, or read from a file."""

import json
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..calibration import LeakWarning, OverlapWarning, leak_test, overlap_test
from ..calibration.leaks import overlap_message
from ..data.atomic import printable
from ..data.sets import LogitSet
from ..evaluation.separation import LOST
from ..functional.coins import bag_of_coins
from ..functional.screening import Scoring
from ..nn import ConformalTest
from .inputs import FileReader
from .options import SCORE

KIND = "torch_boc.ConformalTest"


class Ready(NamedTuple):
    """A calibrated test.

    Attributes:
        test: the test.
        name: the name of the held-out set.
        from_probabilities: whether it was calibrated with logarithms of probabilities.
        data: the held-out set itself; None if the test was read from a file.
    """

    test: ConformalTest
    name: str
    from_probabilities: bool
    data: LogitSet | None = None

    def check_kind(self, probabilities: bool, path: str) -> "Ready":
        """Return this test if it was calibrated with what comes now, logits or probabilities; otherwise raise."""
        if self.from_probabilities != probabilities:
            kinds = [("logits", "probabilities")[x] for x in (self.from_probabilities, probabilities)]
            remedy = "leave out" if probabilities else "add"
            raise ValueError(
                f"{path}: expected {kinds[0]}, as at its calibration, got {kinds[1]}; {remedy} --probabilities"
            )
        return self

    def read(self, files: FileReader, path: Path) -> LogitSet:
        """The new samples in a file, which must have as many classes as the held-out ones."""
        data: LogitSet = files.read(path)
        expected = self.test.num_classes
        if data.num_classes != expected:
            raise ValueError(f"{path}: expected {expected} classes, as in {self.name}, got {data.num_classes}")
        return data

    def packed(self) -> dict[str, Any]:
        """What a file keeps of the test: tensors and plain values only."""
        kept = {"kind": KIND, "name": self.name, "from_probabilities": self.from_probabilities}
        return {**kept, "state": self.test.state_dict()}

    def warn_of_samples(self, new: LogitSet) -> None:
        """Warn if the held-out samples look like training data, or if some of them are among the new ones."""
        held = self.data
        if held is None:
            return
        shared = overlap_test(new.logits, held.logits, new.target, held.target)
        if shared.suspicious:
            message = overlap_message("held-out", shared.shared, len(new), test=repr(new.name), other=repr(held.name))
            warnings.warn(message.rstrip("."), OverlapWarning, stacklevel=2)
        if held.target is None or new.target is None:
            return
        found = leak_test(_right(held.logits, held.target), len(held), _right(new.logits, new.target), len(new))
        if found.suspicious:
            warnings.warn(
                f"accuracy {found.accuracy:.4f} on {held.name!r}, {found.test_accuracy:.4f} on {new.name!r}: if "
                f"{held.name!r} is training data, too many familiar samples are flagged; otherwise {new.name!r} is "
                "harder",
                LeakWarning,
                stacklevel=2,
            )


def ready_test(files: FileReader, calibration: Path | None, kept: Path | None, **how: Any) -> Ready:
    """The test that the options ask for; `how` are score, temperature and groups, None if they are not given."""
    if (calibration is None) == (kept is None):
        got = "none" if kept is None else "both"
        raise ValueError(f"expected --calibration PATH or --test PATH, which says what to compare with, got {got}")
    given = {name: value for name, value in how.items() if value is not None}
    if calibration is None:
        assert kept is not None
        if given:
            name = next(iter(given))
            raise ValueError(f"expected --{name} with --calibration, got it with --test, whose file decides it")
        return unpacked(load_content(kept, KIND)).check_kind(files.probabilities, str(kept))
    test = ConformalTest(**{"score": SCORE} | given, validate_args=False)
    if files.probabilities and test.scoring.score in LOST:
        raise ValueError(
            f"expected a score that probabilities have, got {test.scoring.score!r}, which is always 0 after a softmax"
        )
    data = files.read(calibration)
    return Ready(test.calibrate(data.logits), data.name, data.from_probabilities, data)


def unpacked(content: Mapping[str, Any]) -> Ready:
    """The test of `Ready.packed`."""
    state = content["state"]
    settings = json.loads(bytes(state["_extra_state"].tolist()).decode())
    settings.pop("num_classes")
    scoring = Scoring(**settings)
    test = ConformalTest(scoring.score, scoring.temperature, scoring.groups, resolution=scoring.resolution)
    test.load_state_dict(state)
    test.check_calibrated()
    return Ready(test, printable(str(content["name"])), bool(content["from_probabilities"]))


def load_content(path: Path, kind: str) -> Mapping[str, Any]:
    """The content of a file of ours. No code of the file is run."""
    said = printable(str(path))
    if not path.is_file():
        raise FileNotFoundError(f"{said}: no such file")
    try:
        content = torch.load(path, weights_only=True, map_location="cpu")
        found = content.get("kind")
    except Exception as error:  # torch raises all kinds of errors on files that it does not know
        raise ValueError(f"{said}: expected a file that torch-boc has written, got something else") from error
    if found != kind:
        raise ValueError(f"{said}: expected a {kind}, got {found!r}")
    return dict(content)


def _right(logits: Tensor, target: Tensor) -> int:
    return int(bag_of_coins(logits).prediction.eq(target).sum())
