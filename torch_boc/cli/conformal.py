"""The conformal test of a command line: calibrated on held-out logits, or read from a file."""

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..calibration import LeakWarning, OverlapWarning, leak_test, overlap_test
from ..calibration.leaks import overlap_message
from ..core.tally import is_class
from ..data.atomic import printable
from ..data.files import LogitBlock, LogitReader
from ..data.sets import LogitSet, naming
from ..evaluation.samples import LOST
from ..functional.coins import bag_of_coins
from ..functional.screening import Scoring
from ..nn import Acceptance, ConformalTest
from .inputs import Files
from .options import SCORE

KIND = "torch_boc.ConformalTest"


class Ready(NamedTuple):
    """A calibrated test.

    Attributes:
        test: the test.
        name: the name of the held-out set.
        from_probabilities: whether it was calibrated with logarithms of probabilities.
        data: the held-out set itself; None if the test was read from a file.
        accept: the acceptance that was in that file, or None.
    """

    test: ConformalTest
    name: str
    from_probabilities: bool
    data: LogitSet | None = None
    accept: Acceptance | None = None

    def open(self, files: Files, value: str) -> LogitReader:
        """The new samples in a file, which must have as many classes as the held-out ones."""
        reader, expected = files.open(value, targets=False), self.test.num_classes
        if reader.num_classes != expected:
            raise ValueError(f"{value}: expected {expected} classes, as in {self.name}, got {reader.num_classes}")
        return reader

    def accepting(self) -> Acceptance:
        """Which predictions may go out unseen, by the same held-out samples; raises if their targets are not known."""
        if self.accept is not None:
            return self.accept
        if self.data is None or self.data.target is None:
            got = "a test that was saved without --error" if self.data is None else "none"
            raise ValueError(f"{self.name}: expected held-out samples with targets for --error, got {got}")
        groups = "prediction" if self.test.scoring.groups == "prediction" else None
        return Acceptance(groups, validate_args=False).calibrate(self.data.logits, self.data.target)

    def packed(self, accept: Acceptance | None = None) -> dict[str, Any]:
        """What a file keeps of the test, and of the acceptance: tensors and plain values only."""
        kept = {"kind": KIND, "name": self.name, "from_probabilities": self.from_probabilities}
        kept |= {} if accept is None else {"accept": accept.state_dict()}
        return {**kept, "scoring": tuple(self.test.scoring), "state": self.test.state_dict()}

    def warn_of_samples(self, name: str, new: LogitBlock) -> None:
        """Warn if the held-out samples are easier than the new ones, or if some of them are among the new ones."""
        held, target = self.data, new.notes.get("target")
        if held is None:
            return
        target = target.long() if isinstance(target, Tensor) else None
        shared = overlap_test(new.logits, held.logits, target, held.target)
        if shared.suspicious:
            test, other = repr(name), repr(held.name)
            message = overlap_message("held-out", shared.shared, len(new.logits), test=test, other=other)
            warnings.warn(message.rstrip("."), OverlapWarning, stacklevel=2)
        if held.target is None or target is None or not bool(is_class(target, held.num_classes).all()):
            return
        right = [int((bag_of_coins(x.logits).prediction == y).sum()) for x, y in ((held, held.target), (new, target))]
        found = leak_test(right[0], len(held), right[1], len(target))
        if found.suspicious:
            warnings.warn(
                f"accuracy {found.accuracy:.4f} on {held.name!r}, {found.test_accuracy:.4f} on {name!r}: if "
                f"{held.name!r} is training data, too many familiar samples are flagged; otherwise {name!r} is harder, "
                "or has another mix of classes",
                LeakWarning,
                stacklevel=2,
            )


def ready_test(files: Files, calibration: str | None, kept: str | None, **how: Any) -> Ready:
    """The test that the options ask for; `how` are score, temperature and groups, None if they are not given."""
    if (calibration is None) == (kept is None):
        got = "none" if kept is None else "both"
        raise ValueError(f"expected --calibration PATH or --test PATH, which says what to compare with, got {got}")
    given = {name: value for name, value in how.items() if value is not None}
    if kept is not None:
        if given:
            name = next(iter(given))
            raise ValueError(f"expected --{name} with --calibration, got it with --test, whose file decides it")
        with naming(printable(kept)):
            return unpacked(load_content(kept, KIND), files.probabilities)
    test = ConformalTest(**{"score": SCORE} | given, validate_args=False)
    if files.probabilities and test.scoring.score in LOST:
        raise ValueError(
            f"expected a score that probabilities have, got {test.scoring.score!r}, which is always 0 after a softmax"
        )
    data = files.read(calibration or "")
    if not isinstance(data, LogitSet):
        raise ValueError(f"{calibration}: expected logits, got the columns of a predictor")
    return Ready(test.calibrate(data.logits), data.name, data.from_probabilities, data)


def unpacked(content: Mapping[str, Any], probabilities: bool) -> Ready:
    """The test of `Ready.packed`, if it was calibrated with what comes now, logits or probabilities."""
    if content["from_probabilities"] != probabilities:
        kinds, remedy = ("logits", "probabilities"), "leave out" if probabilities else "add"
        expected, got = kinds[not probabilities], kinds[probabilities]
        raise ValueError(f"expected {expected}, as at its calibration, got {got}; {remedy} --probabilities")
    scoring = Scoring(*content["scoring"])
    test = ConformalTest(*scoring[:3], resolution=scoring.resolution)
    test.load_state_dict(content["state"])
    test.check_calibrated()
    accept = None
    if "accept" in content:
        accept = Acceptance("prediction" if scoring.groups == "prediction" else None)
        accept.load_state_dict(content["accept"])
    return Ready(test, printable(str(content["name"])), probabilities, accept=accept)


def load_content(path: str, kind: str) -> Mapping[str, Any]:
    """The content of a file of ours. No code of the file is run."""
    if not Path(path).is_file():
        raise FileNotFoundError(f"{printable(path)}: no such file")
    try:
        content = torch.load(path, weights_only=True, map_location="cpu")
        found = content.get("kind")
    except Exception as error:  # torch raises all kinds of errors on files that it does not know
        raise ValueError("expected a file that torch-boc has written, got something else") from error
    if found != kind:
        raise ValueError(f"expected a {kind}, got {found!r}")
    return dict(content)
