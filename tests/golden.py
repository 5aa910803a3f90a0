"""Texts that are compared with committed files.

To accept a change: delete the file, run its test twice, and review the diff.
"""

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

NUMBER = r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?"


def assert_golden(test: str, texts: Mapping[str, str]) -> None:
    """Each text equals the file of its name in the folder `golden` next to a test, up to a thousandth of each number.

    Missing files are written first, all of them in one run.
    """
    folder = Path(test).with_name("golden")
    missing = [name for name in texts if not (folder / name).exists()]
    for name in missing:
        folder.mkdir(exist_ok=True)
        (folder / name).write_text(texts[name], encoding="utf-8")
    assert not missing, f"these files were missing in {folder} and are written now: review them"
    for name, text in texts.items():
        expected = (folder / name).read_text(encoding="utf-8")
        assert re.sub(NUMBER, "#", text).split("\n") == re.sub(NUMBER, "#", expected).split("\n"), name
        numbers, golden_numbers = (list(map(float, re.findall(NUMBER, x))) for x in (text, expected))
        assert numbers == pytest.approx(golden_numbers, rel=1e-3, abs=1e-9), name
