"""`torch-boc doctor`: which paths compute on this machine, whether they are right, and how fast they are."""

from typing import Any

import typer

from . import options as o
from .output import print_json, put, show_pairs, terminal, working

UNHEALTHY = 1


def doctor(json: o.Json = False) -> None:
    """Which paths compute on this machine and why not, whether they are right, and how fast they are.

    It compares the kernels with torch's own operations on a small batch, and times the probe beside torch.softmax. The
    exit code is 1 if a path computes wrongly, and 0 otherwise: a path that is missing is no fault.

    Examples:
        torch-boc doctor
        torch-boc doctor --json > doctor.json
    """
    with working("trying and timing"):
        from ..functional.diagnosis import diagnose

        found = diagnose()
    if json:
        print_json(found, indent=2)
    else:
        _show(found)
    if not found["healthy"]:
        raise typer.Exit(UNHEALTHY)


def _show(found: dict[str, Any]) -> None:
    console, machine = terminal(), found["machine"]
    versions = {name: version or "not installed" for name, version in found["versions"].items()}
    facts = {"Python": machine["python"], "platform": machine["platform"], "CPU": machine["cpu_capability"]}
    available, trials = {}, {}
    for path in found["paths"]:
        available[path["name"]] = _sentence(path)
        failed = f"FAILED: {path['trial']}. Please report this, with --json." if path["trial"] else "Passed."
        trials[path["name"]] = "Not tried: it is not available." if path["trial"] is None else failed
    times = {
        f"{x['rows']} × {x['classes']} on {x['device']}": (
            f"{x['ratio']:.2f}  ({x['coins_us']:,.0f} µs over {x['softmax_us']:,.0f} µs)"
        )
        for x in found["speed"]
    }
    sections = {
        "Versions": versions | facts,
        "Paths": available | {"torch": "Available everywhere."},
        "Trial beside torch's operations": trials,
        "Time of bag_of_coins over that of torch.softmax(out=)": times,
    }
    for title, lines in sections.items():
        put(console, title, "bold")
        show_pairs(((f"  {name} ", value) for name, value in lines.items()), console)


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
