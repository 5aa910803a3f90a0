"""The conformal test of a command line: calibrated on held-out logits, or read from a file."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch

from ..data.atomic import printable, replacing
from ..data.sets import LogitSet
from ..evaluation.separation import LOST
from ..functional.screening import Scoring
from ..nn.conformal import ConformalTest
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


class Wanted(NamedTuple):
    """The options of a test; None where an option is not given."""

    calibration: Path | None
    kept: Path | None
    score: str | None = None
    temperature: float | None = None
    groups: str | None = None


def ready_test(wanted: Wanted, files: FileReader) -> Ready:
    """The test that the options ask for."""
    if (wanted.calibration is None) == (wanted.kept is None):
        got = "none" if wanted.kept is None else "both"
        raise ValueError(f"expected --calibration PATH or --test PATH, which says what to compare with, got {got}")
    if wanted.kept is not None:
        given = [name for name in ("score", "temperature", "groups") if getattr(wanted, name) is not None]
        if given:
            raise ValueError(f"expected --{given[0]} with --calibration, got it with --test, whose file decides it")
        return check_kind(load_test(wanted.kept), files.probabilities, str(wanted.kept))
    assert wanted.calibration is not None
    temperature = 1.0 if wanted.temperature is None else wanted.temperature
    test = ConformalTest(wanted.score or SCORE, temperature, wanted.groups, validate_args=False)
    if files.probabilities and test.scoring.score in LOST:
        raise ValueError(
            f"expected a score that probabilities have, got {wanted.score!r}, which is always 0 after a softmax"
        )
    data = files.read(wanted.calibration)
    return Ready(test.calibrate(data.logits), data.name, data.from_probabilities, data)


def check_kind(ready: Ready, probabilities: bool, path: str) -> Ready:
    """Return `ready` if it was calibrated with what comes now, logits or probabilities; otherwise raise."""
    if ready.from_probabilities != probabilities:
        kinds = [("logits", "probabilities")[x] for x in (ready.from_probabilities, probabilities)]
        remedy = "leave out" if probabilities else "add"
        raise ValueError(
            f"{path}: expected {kinds[0]}, as at its calibration, got {kinds[1]}; {remedy} --probabilities"
        )
    return ready


def check_classes(data: LogitSet, ready: Ready, path: Path) -> LogitSet:
    """Return `data` if it has as many classes as the held-out samples; otherwise raise."""
    expected = ready.test.num_classes
    if data.num_classes != expected:
        raise ValueError(f"{path}: expected {expected} classes, as in {ready.name}, got {data.num_classes}")
    return data


def packed(ready: Ready) -> dict[str, Any]:
    """What a file keeps of a test: tensors and plain values only."""
    kept = {"kind": KIND, "name": ready.name, "from_probabilities": ready.from_probabilities}
    return {**kept, "state": ready.test.state_dict()}


def unpacked(content: Mapping[str, Any]) -> Ready:
    """The test of `packed`."""
    state = content["state"]
    settings = json.loads(bytes(state["_extra_state"].tolist()).decode())
    settings.pop("num_classes")
    scoring = Scoring(**settings)
    test = ConformalTest(scoring.score, scoring.temperature, scoring.groups, resolution=scoring.resolution)
    test.load_state_dict(state)
    test.check_calibrated()
    return Ready(test, printable(str(content["name"])), bool(content["from_probabilities"]))


def save_test(ready: Ready, path: Path) -> None:
    """Write the test to a file, which is whole or not there at all."""
    with replacing(path) as temporary:
        torch.save(packed(ready), temporary)


def load_test(path: Path) -> Ready:
    """The test in a file of `save_test`."""
    return unpacked(load_content(path, KIND))


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
