"""An error in a worker becomes an error of the program. No cluster is needed here."""

import json
from pathlib import Path

import pytest

from torch_boc.ray.problems import KINDS, one_error, reporting


@pytest.mark.parametrize("kind", KINDS, ids=[kind.__name__ for kind in KINDS])
def test_common_errors_stay_what_they_are(kind):
    with pytest.raises(kind, match=r"it failed.* \(while adding 2 rows, at .*test_problems\.py.*\)") as error:  # noqa: SIM117
        with one_error(), reporting("adding 2 rows"):
            raise kind("it failed")
    assert type(error.value) is kind
    assert error.value.__suppress_context__


def test_an_error_with_a_number_keeps_its_text():
    with pytest.raises(FileNotFoundError, match=r"^\[Errno 2\] .*'/nowhere/weights\.pt' \(while"):  # noqa: SIM117
        with one_error(), reporting("making the model"):
            Path("/nowhere/weights.pt").read_bytes()


def test_other_errors_are_named():
    with pytest.raises(RuntimeError, match=r"^JSONDecodeError: Expecting value: line 1 column 1 \(char 0\) \(while"):  # noqa: SIM117
        with one_error(), reporting("reading"):
            json.loads("no JSON")
