"""`torch-boc doctor`: which paths compute on this machine, whether they are right, and how fast they are."""

import json as json_format
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from .console import put, screen, working
from .spelling import spell, spell_json

UNHEALTHY = 1


def doctor(
    json: Annotated[bool, typer.Option("--json", metavar="", help="Print one JSON object, for a bug report.")] = False,
) -> None:
    """Which paths compute on this machine and why not, whether they are right, and how fast they are.

    It compares the kernels with torch's own operations on a small batch, and times the probe beside torch.softmax. The
    exit code is 1 if a path computes wrongly, and 0 otherwise: a path that is missing is no fault.
    """
    with working("trying and timing"):
        from ..functional.diagnosis import diagnose

        found = diagnose()
    console = screen()
    if json:
        text = json_format.dumps(found, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
        console.file.write(spell_json(text, console.encoding))
    else:
        _show(found, console)
    if not found["healthy"]:
        raise typer.Exit(UNHEALTHY)


def _show(found: dict[str, Any], console: Console) -> None:
    machine = found["machine"]
    versions = {name: version or "not installed" for name, version in found["versions"].items()}
    facts = {"Python": machine["python"], "platform": machine["platform"], "CPU": machine["cpu_capability"]}
    _section(console, "Versions", versions | facts)
    _section(
        console,
        "Paths",
        {**{path["name"]: _sentence(path) for path in found["paths"]}, "torch": "Available everywhere."},
    )
    _section(console, "Trial beside torch's operations", {path["name"]: _trial(path) for path in found["paths"]})
    speed = {f"{x['rows']} × {x['classes']} on {x['device']}": _ratio(x) for x in found["speed"]}
    _section(console, "Time of bag_of_coins over that of torch.softmax(out=)", speed)


def _section(console: Console, title: str, lines: dict[str, str]) -> None:
    put(console, title, "bold")
    grid = Table.grid(padding=(0, 2))
    for name, value in lines.items():
        grid.add_row(*(Text(spell(text, console.encoding), overflow="fold") for text in (f"  {name}", value)))
    console.print(grid)


def _sentence(path: dict[str, Any]) -> str:
    """Whether a path is available, and what it uses."""
    if path["why_not"]:
        return f"Not available: {path['why_not']}."
    details = path["details"]
    if path["name"] == "triton":
        return f"Available on {details['gpu']}."
    threads = f"{details['threads']} {'thread' if details['threads'] == 1 else 'threads'}"
    shared = ", shared with torch" if details["openmp"] else ""
    return f"In use on the CPU: {details['variant']} (there are {', '.join(details['variants'])}), {threads}{shared}."


def _trial(path: dict[str, Any]) -> str:
    if path["trial"] is None:
        return "Not tried: it is not available."
    return f"FAILED: {path['trial']}. Please report this, with --json." if path["trial"] else "Passed."


def _ratio(row: dict[str, Any]) -> str:
    return f"{row['ratio']:.2f}  ({row['coins_us']:,.0f} µs over {row['softmax_us']:,.0f} µs)"
