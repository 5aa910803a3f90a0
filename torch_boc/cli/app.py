"""All commands together, and how their errors, warnings and interruptions are reported."""

import sys
import warnings
from collections.abc import Sequence
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from ..data.errors import is_memory_error
from . import INTERRUPTED
from . import options as o
from .doctor import doctor
from .language_model import text, trace
from .monitor import ALARM, monitor
from .output import print_error
from .probe import probe
from .report import GATE, compare, demo, report
from .screen import screen

# The commands by their use, in the order of the help.
PANELS = {
    "Evaluate a model": (report, compare, demo),
    "Decide on new inputs": (screen, monitor),
    "Inspect": (probe, text, trace, doctor),
}
COMMANDS = tuple(command for commands in PANELS.values() for command in commands)
FAILED, TOO_LITTLE_MEMORY = 2, 3
HELP = """Calibration, selective prediction, OOD detection and drift monitoring from the logits of PyTorch classifiers,
with finite-sample guarantees.

Examples:
torch-boc demo
torch-boc report test.npz --calibration val.npz --ood other.npz
torch-boc screen new.npz --calibration val.npz --error 0.01 -o queue.csv
torch-boc monitor new.npz --calibration val.npz
"""
CODES = (
    f"Exit codes: 0 success, {GATE} a rule of --fail-if holds or the doctor found a fault, {FAILED} invalid input, "
    f"{TOO_LITTLE_MEMORY} too little memory, {ALARM} the monitor has raised an alarm, {INTERRUPTED} interrupted."
)


def run_command(args: Sequence[str]) -> int:
    """Run a command line, and return its exit code. An expected error becomes a line on stderr; others are raised."""
    for stream in (sys.stdout, sys.stderr):  # no name can end a command, even if its letters cannot be printed
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    with warnings.catch_warnings():
        if not sys.warnoptions:
            warnings.simplefilter("default", UserWarning)
        warnings.showwarning = lambda message, *_, **__: print_error(f"warning: {message}")
        command = typer.main.get_command(_app())
        try:
            code = command.main(args=list(args) or ["--help"], prog_name="torch-boc", standalone_mode=False)
        except (KeyboardInterrupt, typer.Abort):
            code = INTERRUPTED
        except Exception as error:
            code = _explain(error)
        if code == INTERRUPTED:
            print_error("interrupted")
    return code or 0


def _app() -> typer.Typer:
    app = typer.Typer(cls=Group, add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="rich")
    help_text = _help(HELP)
    app.callback(**help_text | {"epilog": f"{help_text['epilog']}\n\n{CODES}"})(_options)
    for panel, commands in PANELS.items():
        for command in commands:
            app.command(cls=Command, rich_help_panel=panel, **_help(command.__doc__ or ""))(command)
    return app


class WithoutTypes:
    """A command whose help shows arguments and flags without their Python types and without braces."""

    def get_params(self, ctx: Any) -> Any:
        """The parameters."""
        params = super().get_params(ctx)  # type: ignore[misc]
        for param in params:
            argument = param.param_type_name == "argument"
            if argument or param.is_flag:
                param.display_type_rich = lambda ctx: None
            if argument:
                shown = param.metavar if param.required else f"[{param.metavar}]"
                param.get_usage_pieces = lambda ctx, shown=shown: [shown]
        return params


class Group(WithoutTypes, TyperGroup):
    """All commands."""


class Command(WithoutTypes, TyperCommand):
    """One command."""


def _help(text: str) -> dict[str, Any]:
    """The help and the examples of a docstring; paragraphs are broken at the width of the terminal."""
    paragraphs, _, examples = text.partition("Examples:\n")
    lines = [f"[cyan]  {line.strip()}[/cyan]" for line in examples.strip().splitlines()]
    help_text = "\n\n".join(" ".join(part.split()) for part in paragraphs.strip().split("\n\n"))
    return {"help": help_text, "epilog": "\n".join(["[bold]Examples[/bold]", *lines])}


def _options(version: o.Version = False) -> None:
    """Takes the options that stand before a command."""


def _explain(error: Exception) -> int:
    """Print an error that the user can correct, as one line, and return the exit code; raise any other error."""
    if hasattr(error, "format_message"):
        context = getattr(error, "ctx", None)
        more = f" (see {context.command_path} --help)" if context is not None else ""
        print_error(f"error: {error.format_message().rstrip('.')}{more}")
    elif is_memory_error(error):
        text = str(error)
        print_error(f"error: {text if 'too little memory' in text else f'too little memory: {text}'.rstrip(': ')}")
        return TOO_LITTLE_MEMORY
    elif isinstance(error, ValueError | OSError | ImportError):
        print_error(f"error: {error}")
    else:
        raise error
    return FAILED
