"""The command line: `torch-boc demo`."""

import math
import sys

import torch

from . import functional

HELP = "Does a classifier's confidence agree with the geometry of its logits?"
# Rows of 10 logits: the odds against the top class, and how many rivals share them.
EXAMPLE = {
    "one": (0.8, 1),
    "three": (0.8, 3),
    "nine": (0.8, 9),
    "nine, sure": (1e-6, 9),
}
NOTE = """\
dominance   the mean chance that the top class beats a rival
gap         dominance - confidence: what confidence alone forces, and what geometry adds (free)
rho         concentration: 0 when the rivals share the rest evenly, 1 when it sits on as few as possible

The first three rows are equally confident, and nearly all of their gap is forced by that."""


def main() -> None:
    """The console script: the commands, or how to install what they need."""
    try:
        import typer
    except ImportError:
        sys.exit("torch-boc needs the 'cli' extra: pip install 'torch-boc[cli]'")
    app = typer.Typer(help=HELP, add_completion=False, no_args_is_help=True)
    app.callback()(lambda: None)
    app.command()(demo)
    app()


def demo() -> None:
    """Probe four example rows of logits: what confidence forces and what geometry adds."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    table = Table(title="Bag of coins: four rows of 10 logits", box=SIMPLE_HEAD, padding=(0, 0, 0, 1))
    columns = probe_example()
    table.add_column("rivals", no_wrap=True)
    for name in columns:
        table.add_column(name, justify="right", no_wrap=True)
    for row, *values in zip(EXAMPLE, *(column.tolist() for column in columns.values()), strict=True):
        table.add_row(row, *map(short, values))
    console = Console()
    console.print(table)
    console.print(NOTE, soft_wrap=True)


def short(value: float) -> str:
    """A number in at most seven characters."""
    return f"{value:.4f}" if abs(value) >= 1e-4 or abs(value) < 1e-15 else f"{value:.1e}"


def probe_example() -> dict[str, torch.Tensor]:
    """The columns of the demo's table, with a value for each example."""
    logits = torch.full((len(EXAMPLE), 10), -50.0, dtype=torch.float64)
    logits[:, 0] = 0
    for row, (odds, rivals) in zip(logits, EXAMPLE.values(), strict=True):
        row[1 : rivals + 1] = math.log(odds / rivals)
    coins = functional.bag_of_coins(logits)
    return {
        "confidence": coins.confidence,
        "dominance": coins.dominance,
        "gap": coins.gap,
        "forced": functional.forced_gap(coins.odds, 10),
        "free": functional.free_gap(coins.odds, coins.concentration, 10),
        "rho": coins.concentration,
        "log p*": functional.log_p_value(coins),
    }
