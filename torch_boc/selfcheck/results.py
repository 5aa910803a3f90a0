"""All outcomes of a run, as a file and as a table."""

import json
import os
import sys
from pathlib import Path
from typing import Any, NamedTuple

from .._optional import require
from ..storage.files import printable, replacing
from .outcomes import Outcome


class Results(NamedTuple):
    """The outcomes of all checks on one device, and what is known of the machine."""

    device: str
    machine: dict[str, Any]
    outcomes: tuple[Outcome, ...]

    @property
    def failed(self) -> tuple[Outcome, ...]:
        """The outcomes of the checks that failed."""
        return tuple(x for x in self.outcomes if x.status == "failed")

    @property
    def seconds(self) -> float:
        """How many seconds all checks took together."""
        return sum(x.seconds for x in self.outcomes)

    def to_json(self) -> str:
        """Everything as one JSON object."""
        content = {
            "device": self.device,
            "machine": self.machine,
            "seconds": round(self.seconds, 2),
            "outcomes": [_plain(x._asdict()) for x in self.outcomes],
        }
        return json.dumps(content, indent=2, allow_nan=False) + "\n"

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write a JSON file, which appears only when it is complete."""
        with replacing(path) as temporary:
            temporary.write_text(self.to_json(), encoding="utf-8")
        return Path(path)

    def show(self) -> None:
        """Print a table on stdout: in colour in a terminal if rich is installed, otherwise in plain text."""
        try:
            rich = require("rich", "console", "table", "text", purpose="tables in colour need")
        except ImportError:
            rich = None
        if rich is None or not sys.stdout.isatty():
            sys.stdout.write(self.text() + "\n")
            return
        table = rich.table.Table("check", "result", "expected", "found", "seconds")
        colours = {"passed": "green", "failed": "bold red", "skipped": "yellow"}
        for x in self.outcomes:
            cells = [rich.text.Text(cell) for cell in (x.name, x.status, x.expected, "; ".join(_said(x)))]
            cells[1].stylize(colours[x.status])
            table.add_row(*cells, f"{x.seconds:.1f}")
        console = rich.console.Console(highlight=False, markup=False, emoji=False)
        console.print(table)
        console.print(self.verdict())

    def text(self) -> str:
        """The table in plain text: a line for each check with what was found, and one with what was expected."""
        width = max((len(x.name) for x in self.outcomes), default=0)
        lines = []
        for x in self.outcomes:
            first, *more = [*_said(x), f"expected: {x.expected}"]
            lines.append(f"{x.status:7}  {x.name:{width}}  {first} ({x.seconds:.1f} s)")
            lines += [f"{'':7}  {'':{width}}  {line}" for line in more]
        return "\n".join([*lines, self.verdict()])

    def verdict(self) -> str:
        """One line of counts, and what is known of each failure."""
        counts = ", ".join(
            f"{sum(x.status == status for x in self.outcomes)} {status}" for status in ("passed", "failed", "skipped")
        )
        said = {x.name: [*x.note.splitlines(), *(f"warned: {text}" for text in x.warnings)] for x in self.failed}
        notes = ["\n    ".join([f"{name}:", *map(printable, lines)]) for name, lines in said.items() if lines]
        return "\n".join([f"{counts}, in {self.seconds:.1f} s on {self.device}", *notes])


def _said(outcome: Outcome) -> list[str]:
    """What was found, and the note. The note of a failure is left out here, because it comes after the table."""
    note = "" if outcome.status == "failed" else outcome.note
    return [printable(text) for text in (outcome.found, note) if text]


def _plain(value: Any) -> Any:
    """A copy that JSON can hold: infinities and NaN become texts."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and (value != value or abs(value) == float("inf")):
        return str(value)
    return value
