"""All commands together, and how their errors, warnings and interruptions are reported."""

import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer

from .. import __version__
from ..data.atomic import is_memory_error
from . import INTERRUPTED
from .compare import compare
from .console import say
from .demo import demo
from .doctor import UNHEALTHY, doctor
from .language_model import text, trace
from .monitor import ALARM, monitor
from .probe import probe
from .report import report
from .screen import screen
from .spelling import lenient_output

HELP = "Decisions, alarms and calibration from the logits of a classifier, and the Bag-of-Coins probe."
EXPECTED = (ValueError, OSError, ImportError)
FAILED, TOO_LITTLE_MEMORY = 2, 3
CODES = (
    f"Exit codes: 0 success, {UNHEALTHY} the doctor found a fault, {FAILED} the input cannot be used, "
    f"{TOO_LITTLE_MEMORY} too little memory, {ALARM} the monitor has raised an alarm, {INTERRUPTED} interrupted."
)

EXAMPLES: dict[Callable[..., None], tuple[str, ...]] = {
    demo: (
        "torch-boc demo",
        "torch-boc demo resnet20-cifar10 --out /tmp/report",
        "torch-boc demo --json | jq '.[].verdict'",
    ),
    report: (
        "torch-boc report --id test.npz",
        "torch-boc report --id test.npz --ood svhn=svhn.npz --ood noise.npy",
        "torch-boc report --id test.pt --ood svhn.pt --calibration val=val.pt",
        "torch-boc report --id test.npz --probabilities",
        "torch-boc report --id test.csv --classes cat,dog,ship --json > report.json",
    ),
    compare: (
        "torch-boc compare a/report.json b/report.json",
        "torch-boc compare small=a.npz large=b.npz --out /tmp/both",
        "torch-boc compare a.npz b.npz --ood svhn=a-svhn.npz,b-svhn.npz --json",
    ),
    probe: (
        "torch-boc probe logits.npz",
        "torch-boc probe logits.npz -o samples.parquet",
        "torch-boc probe logits.csv -o samples.csv --trials 200 --json",
    ),
    screen: (
        "torch-boc screen new.npz --calibration val.npz -o flagged.parquet",
        "torch-boc screen new.npz --calibration val.npz --alpha 0.01 --fdr 0.1",
        "torch-boc screen a.npz b.npz --calibration val.npz --save-test test.pt",
        "torch-boc screen new.csv --test test.pt --confidence 0.99 --json",
    ),
    monitor: (
        "torch-boc monitor day1.npz day2.npz --calibration val.npz",
        "torch-boc monitor day3.npz --calibration val.npz --state stream.pt",
        "torch-boc monitor --calibration val.npz --until-alarm < logits.csv",
    ),
    text: (
        "torch-boc text --model folder book.txt",
        "torch-boc text --model folder a.txt b.txt --context 1024 --out /tmp/text.csv",
        "torch-boc text --model folder --gguf model.gguf book.txt --bos --json",
    ),
    trace: (
        "torch-boc trace --model folder --prompt 'Once upon a time'",
        "torch-boc trace --model folder --chat --sample --prompt - < question.txt",
        "torch-boc trace --model m.gguf --prompt Hello -o a.html --table a.parquet",
        "torch-boc trace --response chat.json --num-classes 128256 --quantity rank",
    ),
    doctor: (
        "torch-boc doctor",
        "torch-boc doctor --json > doctor.json",
    ),
}


def run_command(args: Sequence[str]) -> int:
    """Run a command line, and return its exit code. An expected error becomes a line on stderr; others are raised."""
    command = typer.main.get_command(build_app())
    with warnings.catch_warnings(), lenient_output():
        if not sys.warnoptions:
            warnings.simplefilter("default", UserWarning)
        warnings.showwarning = _show_warning
        try:
            code = command.main(args=list(args) or ["--help"], prog_name="torch-boc", standalone_mode=False)
        except (KeyboardInterrupt, typer.Abort):
            code = INTERRUPTED
        except Exception as error:
            code = _explain(error)
        if code == INTERRUPTED:
            say("interrupted")
    return code or 0


def build_app() -> typer.Typer:
    """The commands with their help."""
    app = typer.Typer(help=HELP, add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="rich")
    overview = _examples(("torch-boc demo", "torch-boc report --help"))
    app.callback(help=f"{HELP}\n\n{CODES}", epilog=overview)(_options)
    for command, examples in EXAMPLES.items():
        app.command(help=_paragraphs(command.__doc__), epilog=_examples(examples))(command)
    return app


def _examples(commands: Sequence[str]) -> str:
    return "\n".join(["[bold]Examples[/bold]", *(f"[cyan]  {command}[/cyan]" for command in commands)])


def _paragraphs(text: str | None) -> str:
    """A docstring with each paragraph on one line, so that the help can break lines at the width of the terminal."""
    return "\n\n".join(" ".join(part.split()) for part in (text or "").split("\n\n"))


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"torch-boc {__version__}")
        raise typer.Exit()


def _options(
    version: Annotated[
        bool,
        typer.Option("--version", metavar="", callback=_version, is_eager=True, help="Print the version and exit."),
    ] = False,
) -> None:
    """Takes the options that stand before a command."""


def _explain(error: Exception) -> int:
    """Print an error that the user can correct, as one line, and return the exit code; raise any other error."""
    if hasattr(error, "format_message"):
        context = getattr(error, "ctx", None)
        more = f" (see {context.command_path} --help)" if context is not None else ""
        say(f"error: {error.format_message().rstrip('.')}{more}")
    elif is_memory_error(error):
        said = str(error)
        say(f"error: {said if 'too little memory' in said else f'too little memory: {said}'.rstrip(': ')}")
        return TOO_LITTLE_MEMORY
    elif isinstance(error, EXPECTED):
        say(f"error: {error}")
    else:
        raise error
    return FAILED


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    say(f"warning: {message}")
