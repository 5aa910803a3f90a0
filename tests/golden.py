"""Texts that are compared with files.

After a wanted change: delete the file, run the test twice, and read the difference.
"""

import re
from pathlib import Path

import pytest

NUMBER = r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?"


def assert_golden(test: str, name: str, text: str) -> None:
    """The text is that of `golden/name` beside the file of a test; its numbers may differ by a thousandth.

    A file that is missing is written first.
    """
    golden = Path(test).with_name("golden") / name
    if not golden.exists():
        golden.parent.mkdir(exist_ok=True)
        golden.write_text(text, encoding="utf-8")
        raise AssertionError(f"{golden} was missing; it is written now: read it")
    expected = golden.read_text(encoding="utf-8")
    assert re.sub(NUMBER, "#", text) == re.sub(NUMBER, "#", expected)
    found, wanted = (list(map(float, re.findall(NUMBER, x))) for x in (text, expected))
    assert found == pytest.approx(wanted, rel=1e-3, abs=1e-9)
