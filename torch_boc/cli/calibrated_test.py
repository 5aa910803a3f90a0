"""The conformal test of a command line: calibrated on held-out logits, or read from a file."""

import io
import warnings
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch

from ..calibration import OverlapWarning
from ..calibration.split_checks import many_repeated, repeated_message
from ..data.atomic import write
from ..data.errors import error_prefix, printable
from ..data.files import LogitReader
from ..data.logit_set import LogitSet
from ..evaluation.inputs import LOST
from ..functional.score_bins import ScoreConfig
from ..nn import Acceptance, ConformalTest
from ..report.format import condition_text
from .inputs import Files
from .options import SCORE

KIND = "torch_boc.ConformalTest"


class CalibratedTest(NamedTuple):
    """A calibrated test.

    Attributes:
        test: the test.
        acceptance: selective prediction by the same held-out samples; None without their targets.
        name: the name of the held-out set.
        repeated: whether many held-out rows repeat an earlier row.
        data: the held-out set itself; None if the test was read from a file.
    """

    test: ConformalTest
    acceptance: Acceptance | None
    name: str
    repeated: bool = False
    data: LogitSet | None = None

    @property
    def condition(self) -> str:
        """The condition of every guarantee."""
        return condition_text(repeated=self.repeated)

    def open(self, files: Files, value: str) -> LogitReader:
        """The new samples in a file, which must have as many classes as the held-out ones."""
        reader, expected = files.open(value, targets=False), self.test.num_classes
        if reader.num_classes != expected:
            raise ValueError(f"{value}: expected {expected} classes, as in {self.name}, got {reader.num_classes}")
        return reader

    def save(self, path: str, kind: str, files: Files, **content: Any) -> None:
        """Write tensors and plain values, with what `load_content` needs to know. The file is replaced as a whole."""
        content |= {"kind": kind, "name": self.name, "repeated": self.repeated, "probabilities": files.probabilities}
        memory = io.BytesIO()  # torch.save itself does not say that a disk is full
        torch.save({**content, "scoring": tuple(self.test.scoring)}, memory)
        write(path, memory.getvalue())


def calibrated_test(files: Files, calibration: str | None, kept: str | None, **options: Any) -> CalibratedTest:
    """The test of the command line; `options` are score and groups, None if they are not given."""
    if (calibration is None) == (kept is None):
        got = "none" if kept is None else "both"
        raise ValueError(f"expected --calibration PATH or --test PATH, the held-out samples or a saved test, got {got}")
    given = {name: value for name, value in options.items() if value is not None}
    if kept is not None:
        if given:
            name = next(iter(given))
            raise ValueError(f"expected --{name} with --calibration, got it with --test, whose file decides it")
        with loading(kept, KIND, files) as (content, test):
            test.load_state_dict(content["test"])
            acceptance = None if content["acceptance"] is None else _acceptance(test)
            if acceptance is not None:
                acceptance.load_state_dict(content["acceptance"])
            return CalibratedTest(test, acceptance, printable(content["name"]), bool(content["repeated"]))
    test = ConformalTest(**{"score": SCORE} | given, validate_args=False)
    if files.probabilities and test.scoring.score in LOST:
        got = f"{test.scoring.score!r}, which is always 0 after a softmax"
        raise ValueError(f"expected a score that probabilities have, got {got}")
    data = files.read(calibration or "")
    if not isinstance(data, LogitSet):
        raise ValueError(f"{calibration}: expected logits, got the columns of a predictor")
    if repeated := many_repeated(data.logits, data.target):
        message = repeated_message(repeated, len(data), repr(data.name))
        warnings.warn(message.rstrip("."), OverlapWarning, stacklevel=2)
    acceptance = None if data.target is None else _acceptance(test).calibrate(data.logits, data.target)
    return CalibratedTest(test.calibrate(data.logits), acceptance, data.name, bool(repeated), data)


def _acceptance(test: ConformalTest) -> Acceptance:
    return Acceptance("prediction" if test.scoring.groups == "prediction" else None)


@contextmanager
def loading(path: str, kind: str, files: Files) -> Iterator[tuple[Mapping[str, Any], ConformalTest]]:
    """The content of a file that `CalibratedTest.save` wrote, and its test before it is calibrated. It runs no code.

    A part that is missing or damaged, even if the block finds it, is an error that names the file.
    """
    if not Path(path).is_file():
        raise FileNotFoundError(f"{printable(path)}: no such file")
    with error_prefix(printable(path)):
        try:
            with zipfile.ZipFile(path) as archive:
                damaged = archive.testzip()
            content = {} if damaged else torch.load(path, weights_only=True, map_location="cpu")
            written = content.get("kind")
        except Exception as error:  # torch raises all kinds of errors on files that it does not know
            raise ValueError("expected a file that torch-boc has written, got something else") from error
        if damaged is not None:
            raise ValueError(f"expected a whole file, got one that is damaged in {damaged}; make it again")
        if written != kind:
            raise ValueError(f"expected a {kind}, got {written!r}")
        try:
            if content["probabilities"] != files.probabilities:
                expected, got = ("logits", "probabilities") if files.probabilities else ("probabilities", "logits")
                remedy = "leave out" if files.probabilities else "add"
                raise ValueError(f"expected {expected}, as at its calibration, got {got}; {remedy} --probabilities")
            scoring = ScoreConfig(*content["scoring"])
            assert not isinstance(scoring.groups, int)
            test = ConformalTest(scoring.score, scoring.groups, resolution=scoring.resolution, validate_args=False)
            yield content, test
        except ValueError:
            raise
        except Exception as error:
            reason = " ".join(f"{type(error).__name__}: {error}".split())
            raise ValueError(f"expected a whole file, got one with missing or damaged parts ({reason})") from error
