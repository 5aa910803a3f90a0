"""Whatever happens in a check becomes an outcome."""

import warnings
from pathlib import Path

import pytest
import torch

from tests.selfcheck.cases import CPU
from torch_boc.selfcheck.outcomes import LAST_FRAMES, Finding, SkippedError, check, last_lines


def make(body):
    return check("name", "what should be")(body)


@pytest.mark.parametrize(("passed", "status"), [(True, "passed"), (False, "failed")])
def test_what_the_body_says(passed, status):
    outcome = make(lambda device: Finding(passed, f"on {device}", "a note", {"number": 1}))(CPU)
    assert outcome[:4] == ("name", status, "what should be", "on cpu")
    assert outcome.note == "a note"
    assert outcome.details == {"number": 1}
    assert 0 <= outcome.seconds < 5


def test_an_exception_is_a_failure_with_the_end_of_its_traceback():
    def deep(depth):
        if depth == 0:
            raise ValueError("first line\nsecond line")
        deep(depth - 1)

    outcome = make(lambda device: deep(20))(CPU)
    assert outcome.status == "failed"
    assert outcome.found == "ValueError: first line"
    lines = outcome.note.splitlines()
    assert lines[-2:] == ["ValueError: first line", "second line"]
    assert len(lines) == LAST_FRAMES + 2
    assert lines[-3].startswith("selfcheck/test_outcomes.py:")
    assert "in deep: raise ValueError" in lines[-3]


def test_an_exception_without_a_message():
    def fail(device):
        raise AssertionError

    assert make(fail)(CPU).found == "AssertionError: "


def test_the_folders_of_the_user_stay_out():
    with pytest.raises(RuntimeError) as caught:
        torch.zeros(2).view(3)
    lines = last_lines(caught.value)
    assert "selfcheck/test_outcomes.py:" in lines
    assert str(Path(__file__).parent) not in lines


def test_a_skip_has_its_reason():
    def skip(device):
        raise SkippedError("no such card")

    outcome = make(skip)(CPU)
    assert (outcome.status, outcome.found, outcome.note) == ("skipped", "", "no such card")
    assert make(skip).skip("why")[:6] == ("name", "skipped", "what should be", "", 0.0, "why")


def test_an_interruption_is_no_failure():
    def interrupt(device):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make(interrupt)(CPU)


def test_warnings_are_kept_and_do_not_stop_a_check():
    def warn(device):
        for text in ("one", "two", "one"):
            warnings.warn(text, stacklevel=1)
        return Finding(True, "")

    assert make(warn)(CPU).warnings == ("one", "two")
