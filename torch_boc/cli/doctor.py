"""`torch-boc doctor`: which paths compute on this machine, whether they are right, and how fast they are."""

import logging
from typing import Any

import typer

from . import options as o
from .output import Terminal, print_json, show_pairs, spinner

UNHEALTHY = 1
SHAPE, TIME = "{rows} × {classes} on {device}", "{ratio:.2f}  ({coins_us:,.0f} µs over {softmax_us:,.0f} µs)"


def doctor(json: o.Json = False) -> None:
    """Which paths compute on this machine and why not, whether they are right, and how fast they are.

    It compares the kernels with torch's own operations on a small batch, and times the probe beside torch.softmax. The
    exit code is 1 if a path computes wrongly, and 0 otherwise: a path that is missing is no fault.

    Examples:
        torch-boc doctor
        torch-boc doctor --json > doctor.json
    """
    with spinner("trying and timing"):
        logging.disable(logging.WARNING)  # torch logs that it sees no CUDA runtime
        try:
            from .diagnosis import diagnose

            found = diagnose()
        finally:
            logging.disable(logging.NOTSET)
    if json:
        print_json(found, indent=2)
    else:
        console, machine = Terminal(), found["machine"]
        facts = {"Python": machine["python"], "platform": machine["platform"], "CPU": machine["cpu_capability"]}
        sections = {
            "Versions": {name: version or "not installed" for name, version in found["versions"].items()} | facts,
            "Paths": {path["name"]: _sentence(path) for path in found["paths"]} | {"torch": "Available everywhere."},
            "Time of bag_of_coins over that of torch.softmax(out=)": {
                SHAPE.format(**x): TIME.format(**x) for x in found["speed"]
            },
        }
        for title, lines in sections.items():
            console.print(title, style="bold")
            show_pairs(((f"  {name} ", value) for name, value in lines.items()), console)
    if not found["healthy"]:
        raise typer.Exit(UNHEALTHY)


def _sentence(path: dict[str, Any]) -> str:
    """Whether a path is available and right, and what it uses."""
    if path["why_not"]:
        return f"Not available: {path['why_not']}."
    if path["trial"]:
        return f"WRONG: {path['trial']}. Please report this, with --json."
    details = (f"{name} {', '.join(x) if isinstance(x, list) else x}" for name, x in path["details"].items())
    return f"Available and right: {'; '.join(details)}."
