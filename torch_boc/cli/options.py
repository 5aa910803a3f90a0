"""All options: one name, one meaning and one line each, in all commands."""

import pathlib
from typing import Annotated, Any

import typer

from .. import __version__

# The endings of files that can be read.
ENDINGS = ".npz, .npy, .safetensors, .pt, .pth, .parquet, .csv, .tsv or .csv.gz"
FILES = f"Logits: {ENDINGS}; a folder, pattern or URI of Parquet. NAME=PATH gives it a name."
SCORE = "gen"
FOLDER = "boc-report"

Str = str | None
Strs = list[str] | None
Int = int | None
Float = float | None


def _o(names: str, metavar: str, text: str, **options: Any) -> Any:
    return typer.Option(*names.split(), metavar=metavar, help=text, **options)


def _arg(metavar: str, text: str, **options: Any) -> Any:
    return typer.Argument(metavar=metavar, help=text, **options)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"torch-boc {__version__}")
        raise typer.Exit()


Version = Annotated[bool, _o("--version", "", "Print the version and exit.", callback=_print_version, is_eager=True)]
# Files.
Path = Annotated[str, _arg("PATH", FILES)]
Paths = Annotated[list[str], _arg("PATH...", FILES)]
Stream = Annotated[Strs, _arg("PATH...", f"{FILES} - or none is standard input.")]
Models = Annotated[list[str], _arg("PATH...", "A report.json or a file of logits, for each model.")]
Entry = Annotated[Str, _arg("NAME", "The full report on one model, such as resnet20-cifar10.")]
Texts = Annotated[list[pathlib.Path], _arg("FILE...", "Texts in UTF-8.", exists=True, dir_okay=False)]
Ood = Annotated[Strs, _o("--ood", "[NAME=]PATH", "Out-of-distribution logits; may be repeated.")]
OodFiles = Annotated[Strs, _o("--ood", "NAME=PATH,PATH...", "A file for each model; may be repeated.")]
Splits = Annotated[Strs, _o("--calibration", "[NAME=]PATH", "Held-out logits with targets; may be repeated.")]
HeldOutSet = Annotated[Str, _o("--calibration", "[NAME=]PATH", "Held-out logits that the model was not trained on.")]
Train = Annotated[Str, _o("--train", "PATH", "Training logits with targets, for Mahalanobis.")]
Probabilities = Annotated[bool, _o("--probabilities", "", "The files hold probabilities; their logarithm is taken.")]
Classes = Annotated[
    Str, _o("--classes", "NAMES", "Class names in order: a,b,c, or a file of lines or id2label; or their number.")
]
MaxRows = Annotated[int, _o("--max-rows", "N", "Maximum rows per set; larger sets are subsampled.", min=1)]
KeptTest = Annotated[Str, _o("--test", "PATH", "A test written by `screen --save-test`, instead of --calibration.")]
# Output.
Folder = Annotated[Str, _o("--out -o", "FOLDER", "Folder for the report.", show_default=f"{FOLDER}; none with --json")]
Table = Annotated[Str, _o("--out -o", "PATH", "One row per sample: .parquet or .csv; - prints CSV.")]
Csv = Annotated[Str, _o("--out -o", "PATH", "All numbers as a table (.csv).")]
Page = Annotated[str, _o("--out -o", "PATH", "The page (.html).")]
Tokens = Annotated[Str, _o("--table", "PATH", "One row per token (.parquet).")]
SaveTest = Annotated[Str, _o("--save-test", "PATH", "Save the calibrated test to this file (.pt).")]
State = Annotated[Str, _o("--state", "PATH", "Save the stream to this file, and resume it.")]
Json = Annotated[bool, _o("--json", "", "Print JSON instead of text.")]
FailIf = Annotated[Strs, _o("--fail-if", "RULE", "Exit with code 1 if it is true, as in 'ece>0.03'.")]
# Numbers.
Seed = Annotated[int, _o("--seed", "N", "Seed of everything that is random.", min=0)]
Level = Annotated[float, _o("--alpha", "A", "False-positive rate of the flags.")]
Chance = Annotated[Float, _o("--alpha", "A", "Probability of ever raising a false alarm.", show_default="0.01")]
RunLength = Annotated[Float, _o("--run-length", "N", "Instead: at most one false alarm in N samples, on average.")]
Error = Annotated[Float, _o("--error", "E", "Maximum error rate among accepted predictions.")]
Delta = Annotated[Float, _o("--delta", "D", "Guarantee --alpha and --error with probability 1 - D.")]
Fdr = Annotated[Float, _o("--fdr", "F", "Target false discovery rate of OOD samples.")]
Score = Annotated[Str, _o("--score", "NAME", "Score to compare; low means OOD.", show_default=SCORE)]
Groups = Annotated[Str, _o("--groups", "KIND", "Compare within groups: prediction or confidence.")]
UntilAlarm = Annotated[bool, _o("--until-alarm", "", "Stop at the alarm.")]
# Language models.
Model = Annotated[str, _o("--model", "FOLDER", "A causal model for transformers, or a .gguf file.")]
Context = Annotated[Int, _o("--context", "N", "Tokens that are read together.", show_default="the model's, up to 4096")]
Prompt = Annotated[str, _o("--prompt", "TEXT", "What to continue; - reads it from stdin.")]
Limit = Annotated[int, _o("--max-new-tokens", "N", "Generate at most N.", min=1)]
Drawn = Annotated[Float, _o("--temperature", "T", "Draw tokens at it instead of the likeliest.")]
Chat = Annotated[bool, _o("--chat", "", "The prompt is a message to an assistant.")]
