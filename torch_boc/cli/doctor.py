"""`torch-boc doctor`: which backends are available on this machine, whether they are correct, and how fast."""

import logging
from typing import Any

import typer

from . import options as o
from .output import Terminal, print_json, show_pairs, spinner

UNHEALTHY = 1
RATIO = "Time of bag_of_coins over that of torch.softmax(out=)"
SHAPE, TIME = "{rows} × {classes} on {device}", "{ratio:.2f}  ({coins_us:,.0f} µs over {softmax_us:,.0f} µs)"


def doctor(json: o.Json = False) -> None:
    """Check which backends are available, correct and fast on this machine.

    The kernels are compared with torch's own operations on a small batch, and the probe is timed next to torch.softmax.
    The exit code is 1 if a backend gives wrong results, and 0 otherwise: a missing backend is not an error.

    Examples:
        torch-boc doctor
        torch-boc doctor --json > doctor.json
    """
    with spinner("testing and timing"):
        logging.disable(logging.WARNING)  # torch logs that it sees no CUDA runtime
        try:
            from .diagnosis import diagnose

            diagnosis = diagnose()
        finally:
            logging.disable(logging.NOTSET)
    if json:
        print_json(diagnosis, indent=2)
    else:
        console, machine = Terminal(), diagnosis["machine"]
        facts = {"Python": machine["python"], "platform": machine["platform"], "CPU": machine["cpu_capability"]}
        versions = {name: version or "not installed" for name, version in diagnosis["versions"].items()}
        backends = {path["name"]: _sentence(path) for path in diagnosis["paths"]} | {"torch": "Available everywhere."}
        times = {SHAPE.format(**x): TIME.format(**x) for x in diagnosis["speed"]}
        sections = {"Versions": versions | facts, "Backends": backends, RATIO: times}
        for title, lines in sections.items():
            console.print(title, style="bold")
            show_pairs(((f"  {name} ", value) for name, value in lines.items()), console)
    if not diagnosis["healthy"]:
        raise typer.Exit(UNHEALTHY)


def _sentence(path: dict[str, Any]) -> str:
    """Whether a backend is available and correct, and what it uses."""
    if path["why_not"]:
        return f"Not available: {path['why_not']}."
    if path["self_test"]:
        return f"WRONG: {path['self_test']}. Please report this, with --json."
    details = (f"{name} {', '.join(x) if isinstance(x, list) else x}" for name, x in path["details"].items())
    return f"Available and correct: {'; '.join(details)}."
