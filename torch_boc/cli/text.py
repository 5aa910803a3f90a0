"""`torch-boc text`: how well a language model predicts text files, and what its confidence is worth."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from ..data.atomic import check_folder, printable
from ..data.texts import text_pieces
from ..language.text_numbers import check_names
from .console import counting, put, screen, working
from .language_model import load_model
from .options import Json
from .output import list_files
from .render import WIDTH, box_for, bullets, cut_to_width, spelled, terminal_table, without
from .spelling import spell, spell_json

DTYPES = ("auto", "float32", "float16", "bfloat16")
FILES = ("text.html", "text.json", "text.csv")


def text(
    paths: Annotated[list[Path], typer.Argument(metavar="FILE", help="Texts in UTF-8.")],
    model: Annotated[
        str, typer.Option("--model", metavar="FOLDER", help="A causal model for transformers, or a .gguf file.")
    ],
    gguf: Annotated[str | None, typer.Option("--gguf", metavar="NAME", help="A GGUF file in the folder.")] = None,
    context: Annotated[
        int | None,
        typer.Option(
            "--context", metavar="N", help="Tokens that are read together.", show_default="the model's, up to 4096"
        ),
    ] = None,
    stride: Annotated[
        int | None,
        typer.Option("--stride", metavar="N", help="Tokens from window to window.", show_default="half of it"),
    ] = None,
    bos: Annotated[
        bool | None,
        typer.Option("--bos/--no-bos", help="A first token before each text.", show_default="as the tokenizer does"),
    ] = None,
    dtype: Annotated[str, typer.Option("--dtype", metavar="NAME", help=f"{', '.join(DTYPES)}.")] = "auto",
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FOLDER", help="Folder for the page, the numbers and the figures.")
    ] = None,
    json: Json = False,
) -> None:
    """How well a language model predicts text files, and what its confidence in the next token is worth.

    Perplexity, bits per byte, calibration (ECE and Brier score) and accuracy of next-token prediction, lost coins, what
    tells right from wrong tokens, and the coherence gap by confidence; a row for each file, and one for all together.

    Texts longer than the context are read in windows, each a stride after the one before; every token is scored once,
    with at least the context minus the stride before it where there is so much. Memory grows with the context, and
    neither with the length nor with the number of files: a file is read and tokenised in pieces of about 64 kB that end
    at the end of a line. No token crosses the end of a piece, which can split a token in about 16,000; the model reads
    on across it.
    """
    names = _check(paths, dtype, out)
    with working(f"loading {model}"):
        from ..transformers import evaluate_text

        loaded = load_model(model, gguf, dtype)
    total = sum(path.stat().st_size for path in paths)
    with counting("reading", total) as advance:
        texts = {name: [_pieces(path, advance)] for name, path in zip(names, paths, strict=True)}
        report = evaluate_text(loaded.model, loaded.tokenizer, texts, context=context, stride=stride, bos=bos)
    report.settings["title"] = printable(f"{model}: {', '.join(names)}")
    _print(report, [] if out is None else report.save(out), json=json)


def _check(paths: Sequence[Path], dtype: str, out: Path | None) -> list[str]:
    """The names of the files, or an error before the work begins."""
    if dtype not in DTYPES:
        raise ValueError(f"expected --dtype among {', '.join(DTYPES)}, got {dtype!r}")
    for path in paths:
        if not path.is_file():
            raise ValueError(f"{path}: expected a text file, got {'a folder' if path.is_dir() else 'no such file'}")
        if path.stat().st_size == 0:
            raise ValueError(f"{path}: expected a text, got an empty file")
    if out is not None:
        check_folder(out, FILES)
    names = [printable(str(path)) for path in paths]
    double = next((name for name in names if names.count(name) > 1), None)
    if double is not None:
        raise ValueError(f"{double}: expected each file once, got it {names.count(double)} times")
    check_names(names)
    return names


def _pieces(path: Path, advance: Callable[[int], None]) -> Iterator[str]:
    """The pieces of a file; each advances the bar when the model has read it."""
    for piece in text_pieces(path):
        yield piece
        advance(len(piece.encode()))


def _print(report: Any, paths: list[Path], *, json: bool) -> None:
    """Print the report: as JSON and nothing else, or as tables, the verdict and a list of the files."""
    console = screen()
    if json:
        console.file.write(spell_json(report.to_json(), console.encoding))
        return
    put(console, report.settings["title"], "bold")
    put(console, report.headline, "dim")
    for table in report.tables():
        put(console, f"\n{table.heading}", "bold")
        short = spelled(without(table, *table.pages_only), console.encoding)
        for part in cut_to_width(short, min(console.width, WIDTH)):
            console.print(terminal_table(part, console.width, box_for(console)))
    put(console, "\nWhat this says", "bold")
    console.print(bullets(spell(sentence, console.encoding) for sentence in report.verdict))
    list_files(paths, console)
