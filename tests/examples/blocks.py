"""The code of the guide's pages: which blocks there are, and how they are run, as a reader would run them."""

import re
import shlex
from pathlib import Path
from typing import NamedTuple

GUIDE = Path(__file__).parents[2] / "examples" / "guide"
PAGES = sorted(GUIDE.rglob("*.md"))
# A fence, with the comment in the line before it that says why its code is not run.
FENCE = re.compile(r"(?:^<!-- not run: ([^\n]+) -->\n)?^( *)```([^\n]*)\n(.*?)^\2```", re.MULTILINE | re.DOTALL)
# Code that readers do not see: it stands for their model and their data.
SET_UP = re.compile(r"^<!-- set-up\n(.*?)^-->$", re.MULTILINE | re.DOTALL)
# The code that a command is expected to end with, if it is not 0.
EXIT_CODE = re.compile(r"# exit code (\d+)")


class Block(NamedTuple):
    """A block of code: its language, its line in the page, its text, and why it is not run, if it is not."""

    language: str
    line: int
    text: str
    not_run: str | None


class Command(NamedTuple):
    """A line of a shell: its words, the file on its standard input if any, and the code it should end with."""

    words: list[str]
    source: str | None
    code: int


def blocks(text: str) -> list[Block]:
    r"""The blocks of a page.

    >>> blocks("text\n<!-- not run: slow -->\n```bash\nls\n```\n")
    [Block(language='bash', line=3, text='ls\n', not_run='slow')]
    """
    return [Block(x[3], text.count("\n", 0, x.start(3)) + 1, x[4], x[1]) for x in FENCE.finditer(text)]


def commands(text: str) -> list[Command]:
    """The commands of a block, one in each line.

    >>> commands("torch-boc monitor < logits.csv  # exit code 4: an alarm")
    [Command(words=['torch-boc', 'monitor'], source='logits.csv', code=4)]
    """
    block = []
    for line in text.splitlines():
        words, code = shlex.split(line, comments=True), EXIT_CODE.search(line)
        words, source = (words[:-2], words[-1]) if "<" in words else (words, None)
        block += [Command(words, source, int(code[1]) if code else 0)] if words else []
    return block


def first_snippet() -> str:
    """The first block of Python in the README with its set-up; it needs torch and torchmetrics only, and no file."""
    text = (GUIDE.parents[1] / "README.md").read_text(encoding="utf-8")
    return SET_UP.search(text)[1] + next(block.text for block in blocks(text) if block.language == "python")
