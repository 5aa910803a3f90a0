"""`torch-boc trace`: how sure a language model was of each token, as a page."""

import json as json_format
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import torch
import typer

from ..data.atomic import check_file
from .console import put, screen, working
from .language_model import LanguageModel, encoded, load_model
from .options import Seed
from .output import list_files
from .spelling import spell_json

if TYPE_CHECKING:
    from ..language import Trace

DEFAULT_PAGE = Path("trace.html")
# The quantities without numbers: a test gives p-values, and the few likeliest tokens give no entropy.
UNKNOWN = {"--model": ("p_in_distribution",), "--response": ("p_in_distribution", "entropy", "masked")}


def trace(
    model: Annotated[
        str | None, typer.Option("--model", metavar="FOLDER", help="A causal model for transformers, or a .gguf file.")
    ] = None,
    prompt: Annotated[
        str | None, typer.Option("--prompt", metavar="TEXT", help="What to continue; - reads it from stdin.")
    ] = None,
    gguf: Annotated[str | None, typer.Option("--gguf", metavar="NAME", help="A GGUF file in the folder.")] = None,
    limit: Annotated[int, typer.Option("--max-new-tokens", metavar="N", min=1, help="Generate at most N.")] = 200,
    sample: Annotated[bool, typer.Option("--sample", metavar="", help="Draw tokens instead of the likeliest.")] = False,
    temperature: Annotated[
        float | None, typer.Option("--temperature", metavar="T", help="Of --sample.", show_default="1")
    ] = None,
    seed: Seed = 0,
    chat: Annotated[bool, typer.Option("--chat", metavar="", help="The prompt is a message to an assistant.")] = False,
    response: Annotated[
        Path | None, typer.Option("--response", metavar="PATH", help="A saved API response (JSON) instead of --model.")
    ] = None,
    num_classes: Annotated[
        int | None, typer.Option("--num-classes", metavar="N", min=2, help="Vocabulary size, for --response.")
    ] = None,
    quantity: Annotated[
        str, typer.Option("--quantity", metavar="NAME", help="What tokens are tinted by, such as rank.")
    ] = "lost_coins",
    out: Annotated[Path, typer.Option("--out", "-o", metavar="PATH", help="The page (.html).")] = DEFAULT_PAGE,
    table: Annotated[
        Path | None, typer.Option("--table", metavar="PATH", help="A row for each token (.parquet).")
    ] = None,
    json: Annotated[bool, typer.Option("--json", metavar="", help="Print one JSON object instead of text.")] = False,
) -> None:
    """How sure a language model was of each token that it wrote, as a page.

    The page shows the text with its tokens tinted by their lost coins, confidence, entropy, rank or log-probability,
    and the likeliest tokens at each place. It is one file, which loads nothing.

    With --model it generates text, of which it knows all numbers. With --response it reads what a server returned with
    log-probabilities (OpenAI, vLLM), of which some numbers are bounds. Older files of these names are replaced.
    """
    _check(model, prompt, response, num_classes, sample=sample, temperature=temperature)
    _check_quantity(quantity, "--model" if response is None else "--response")
    for path in (out, table):
        if path is not None:
            check_file(path)
    with working("loading libraries") as tell:
        if response is not None:
            found = _from_response(response, num_classes or 0)
        else:
            text = sys.stdin.read() if prompt == "-" else prompt or ""
            tell(f"loading {model}")
            loaded = load_model(model or "", gguf)
            tell("generating")
            options: dict[str, Any] = {"max_new_tokens": limit, "do_sample": sample}
            options |= {"temperature": temperature or 1.0} if sample else {}
            found = generate(loaded, encoded(loaded, text, chat=chat), seed, options)
        found.save(out, quantity)
        paths = [out, *([found.to_parquet(table)] if table is not None else [])]
    _print(found, paths, json=json)


def generate(loaded: LanguageModel, inputs: dict[str, Any], seed: int, options: dict[str, Any]) -> "Trace":
    """The trace of what a model generates. The state of torch's random numbers is as before."""
    from ..transformers import BoCGeneration

    recorder = BoCGeneration(loaded.model, loaded.tokenizer, prompt=True)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        recorder.generate(loaded.model, **inputs, **options)
    return recorder.trace


def _check(
    model: str | None,
    prompt: str | None,
    response: Path | None,
    num_classes: int | None,
    *,
    sample: bool,
    temperature: float | None,
) -> None:
    """Raise if the options do not go together."""
    if (model is None) == (response is None):
        given = "both" if model is not None else "none"
        raise ValueError(f"expected --model FOLDER or --response PATH, got {given}")
    if model is not None and not prompt:
        raise ValueError("expected --prompt TEXT with --model, got none; --prompt - reads it from stdin")
    if response is not None and num_classes is None:
        raise ValueError("expected --num-classes N, the size of the vocabulary, with --response, got none")
    if temperature is not None and not (sample and 0 < temperature < math.inf):
        raise ValueError(f"expected --temperature above 0 and with --sample, got {temperature}")


def _check_quantity(name: str, source: str) -> None:
    """Raise before the work if there is no such quantity with this option."""
    from ..language.scales import SCALES

    known = [x for x in SCALES if x not in UNKNOWN[source]]
    if name not in known:
        raise ValueError(f"expected --quantity among {', '.join(known)} with {source}, got {name!r}")


def _from_response(path: Path, num_classes: int) -> "Trace":
    """The trace of a saved response; errors begin with its path."""
    from ..language import Trace

    if not path.is_file():
        raise ValueError(f"{path}: no such file")
    try:
        return Trace.from_response(path.read_bytes(), num_classes=num_classes)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{path}: {error}") from error


def _print(found: "Trace", paths: list[Path], *, json: bool) -> None:
    console = screen()
    if json:
        rows = [
            {name: None if isinstance(x, float) and not math.isfinite(x) else x for name, x in row.items()}
            for row in found.summary().to_dict("records")
        ]
        content = {"classes": found.num_classes, "sequences": rows, "files": [str(path) for path in paths]}
        text = json_format.dumps(content, ensure_ascii=False, allow_nan=False) + "\n"
        console.file.write(spell_json(text, console.encoding))
        return
    for number, headline in enumerate(found.headlines(), start=1):
        put(console, f"Sequence {number}: {headline}", "bold" if len(found) == 1 else "", soft_wrap=True)
    list_files(paths, console)
