"""Every block of code on every page of the guide is run, in the order of the page, in an empty folder."""

import os
import re
import sys
from pathlib import Path

import pytest
import torch

from tests.examples.conftest import SCRIPT
from tests.examples.guide.blocks import GUIDE, PAGES, blocks, commands
from torch_boc.cli import main

NAMES = [path.relative_to(GUIDE).as_posix() for path in PAGES]
# All code that is not run. A block that is added here is shown to readers without a test: think twice.
NOT_RUN = {
    ("index.md", "pip install ."),
    ("index.md", "make demo"),
    ("fleet.md", "torchrun --nproc-per-node 8 predict.py"),
    ("fleet.md", "import ray"),
    ("speed.md", "make bench"),
    ("speed.md", "python -m pytest -m gpu"),
    ("paper.md", "python -m benchmarks.paper vit"),
}


@SCRIPT
@pytest.mark.parametrize("name", NAMES)
def test_code_runs(name, monkeypatch, tmp_path):
    """The Python of a page shares one namespace; commands find the files that the blocks before have written."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    state = torch.random.get_rng_state()
    names = {"__name__": "__main__"}
    for block in blocks((GUIDE / name).read_text(encoding="utf-8")):
        if block.not_run is None and block.language == "python":
            # The lines before keep the numbers of lines in an error those of the page.
            exec(compile("\n" * block.line + block.text, str(GUIDE / name), "exec"), names)
        elif block.not_run is None and block.language == "bash":
            run_commands(block.text, monkeypatch)
    torch.random.set_rng_state(state)


def run_commands(text, monkeypatch):
    """Run the commands of a block in this process, and compare their exit codes with what the page says."""
    for words, source, code in commands(text):
        assert words[0] == "torch-boc", f"cannot run {words}: mark the block with <!-- not run: why -->"
        with Path(source or os.devnull).open() as given:
            monkeypatch.setattr(sys, "stdin", given)
            with pytest.raises(SystemExit) as ended:
                main(words[1:])
        assert (ended.value.code or 0) == code, words


@pytest.mark.parametrize("name", NAMES)
def test_every_block_says_what_it_is(name):
    """A block is Python, commands, or plain text; code that is indented only would not be seen here."""
    text = (GUIDE / name).read_text(encoding="utf-8")
    assert {block.language for block in blocks(text)} <= {"python", "bash", "text"}
    outside = re.sub(r"^( *)```.*?^\1```", "", text, flags=re.MULTILINE | re.DOTALL)
    assert "```" not in outside
    assert not re.search(r"(?:\A|\n)\n {4}\S", outside), "indented code"


def test_blocks_that_are_not_run_are_listed():
    """Nobody adds code that is never run without a line in the list above, and no line is left behind."""
    found = set()
    for name, path in zip(NAMES, PAGES, strict=True):
        for block in blocks(path.read_text(encoding="utf-8")):
            if block.not_run is not None:
                first = next(line for line in block.text.splitlines() if not line.startswith("#"))
                found.add((name, re.split(r" {2,}#", first)[0].strip()))
    assert found == NOT_RUN


def test_text_blocks_hold_no_code():
    """A block of text shows output; what could be typed must be Python or commands."""
    for path in PAGES:
        for block in blocks(path.read_text(encoding="utf-8")):
            if block.language == "text":
                assert not re.search(r"^(\$|>>>|import |from |torch-boc |pip |python )", block.text, re.MULTILINE)
