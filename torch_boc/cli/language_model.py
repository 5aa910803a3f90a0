"""`torch-boc text` and `torch-boc trace`: how well a language model predicts texts, and how sure it was of a token."""

import io
import math
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stderr
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from .._optional import quiet_transformers, require
from ..data.atomic import check_file, printable, replacing
from .options import Json, Seed
from .output import counting, list_files, print_json, put, screen, working

if TYPE_CHECKING:
    from ..language import Trace

HUB_NAME = r"[\w.-]+/[\w.-]+"
PIECE = 2**16  # the characters of a text that are read at once
DTYPES = ("auto", "float32", "float16", "bfloat16")
# The numbers of a text that are printed: their title, key and format.
SHOWN = (
    ("tokens", "tokens", ",d"),
    ("perplexity", "perplexity", ".4g"),
    ("bits/byte", "bits_per_byte", ".3f"),
    ("accuracy", "accuracy", ".3f"),
    ("ECE", "ece_confidence", ".3f"),
    ("lost coins", "lost_coins", ".2f"),
)
DEFAULT_PAGE = Path("trace.html")
# The quantities without numbers: a test gives p-values, and the few likeliest tokens give no entropy.
UNKNOWN = {"--model": ("p_in_distribution",), "--response": ("p_in_distribution", "entropy", "masked")}
Gguf = Annotated[str | None, typer.Option("--gguf", metavar="NAME", help="A GGUF file in the folder.")]


def text(
    paths: Annotated[list[Path], typer.Argument(metavar="FILE", help="Texts in UTF-8.")],
    model: Annotated[
        str, typer.Option("--model", metavar="FOLDER", help="A causal model for transformers, or a .gguf file.")
    ],
    gguf: Gguf = None,
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
    out: Annotated[Path | None, typer.Option("--out", metavar="PATH", help="All numbers as a table (.csv).")] = None,
    json: Json = False,
) -> None:
    """How well a language model predicts text files, and what its confidence in the next token is worth.

    Perplexity, bits per byte, accuracy and calibration of next-token prediction, lost coins, and the other numbers of
    the probe; a row for each file, and one for all together.

    Texts longer than the context are read in windows, each a stride after the one before; every token is scored once,
    with at least the context minus the stride before it where there is so much. Memory grows with the context, and
    neither with the length nor with the number of files: a file is read and tokenised in pieces of about 64 kB that end
    at the end of a line. No token crosses the end of a piece, which can split a token in about 16,000; the model reads
    on across it.

    Examples:
        torch-boc text --model folder book.txt
        torch-boc text --model folder a.txt b.txt --context 1024 --out /tmp/text.csv
        torch-boc text --model folder --gguf model.gguf book.txt --bos --json
    """
    names = _check_texts(paths, dtype)
    if out is not None:
        check_file(out)
    with working(f"loading {model}"):
        from ..transformers import evaluate_text

        loaded = load_model(model, gguf, dtype)
    with counting("reading", sum(path.stat().st_size for path in paths)) as advance:
        texts = {name: [_pieces(path, advance)] for name, path in zip(names, paths, strict=True)}
        numbers = evaluate_text(loaded.model, loaded.tokenizer, texts, context=context, stride=stride, bos=bos)
    if out is not None:
        with replacing(out) as temporary:
            numbers.to_frame().to_csv(temporary)
    if json:
        print_json({"model": model, "classes": loaded.model.config.get_text_config().vocab_size, "texts": numbers})
        return
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    console = screen()
    put(console, printable(f"{model}: {', '.join(names)}"), "bold")
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("text", overflow="fold")
    for title, _, _ in SHOWN:
        table.add_column(title, justify="right", no_wrap=True)
    for name, values in numbers.items():
        table.add_row(name, *(format(values[key], how) for _, key, how in SHOWN))
    console.print(table)
    list_files([] if out is None else [out], console)


def _check_texts(paths: Sequence[Path], dtype: str) -> list[str]:
    """The names of the files, or an error before the work begins."""
    if dtype not in DTYPES:
        raise ValueError(f"expected --dtype among {', '.join(DTYPES)}, got {dtype!r}")
    for path in paths:
        if not path.is_file():
            raise ValueError(f"{path}: expected a text file, got {'a folder' if path.is_dir() else 'no such file'}")
        if path.stat().st_size == 0:
            raise ValueError(f"{path}: expected a text, got an empty file")
    names = [printable(str(path)) for path in paths]
    double = next((name for name in names if names.count(name) > 1), None)
    if double is not None:
        raise ValueError(f"{double}: expected each file once, got it {names.count(double)} times")
    return names


def _pieces(path: Path, advance: Callable[[int], None]) -> Iterator[str]:
    """A UTF-8 file in pieces, so that it may be larger than memory; each advances the bar when the model has read it.

    A piece ends after a line, or after a space in a line that is longer than a piece.
    """
    rest = ""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            while block := file.read(PIECE):
                rest += block
                end = rest.rfind("\n") + 1 or rest.rfind(" ") + 1 or len(rest)
                yield rest[:end]
                advance(len(rest[:end].encode()))
                rest = rest[end:]
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: expected a text in UTF-8, got {error.reason} at byte {error.start:,}") from None
    if rest:
        yield rest
        advance(len(rest.encode()))


def trace(
    model: Annotated[
        str | None, typer.Option("--model", metavar="FOLDER", help="A causal model for transformers, or a .gguf file.")
    ] = None,
    prompt: Annotated[
        str | None, typer.Option("--prompt", metavar="TEXT", help="What to continue; - reads it from stdin.")
    ] = None,
    gguf: Gguf = None,
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

    Examples:
        torch-boc trace --model folder --prompt 'Once upon a time'
        torch-boc trace --model folder --chat --sample --prompt - < question.txt
        torch-boc trace --model m.gguf --prompt Hello -o a.html --table a.parquet
        torch-boc trace --response chat.json --num-classes 128256 --quantity rank
    """
    if (model is None) == (response is None):
        given = "both" if model is not None else "none"
        raise ValueError(f"expected --model FOLDER or --response PATH, got {given}")
    if model is not None and not prompt:
        raise ValueError("expected --prompt TEXT with --model, got none; --prompt - reads it from stdin")
    if response is not None and num_classes is None:
        raise ValueError("expected --num-classes N, the size of the vocabulary, with --response, got none")
    if temperature is not None and not (sample and 0 < temperature < math.inf):
        raise ValueError(f"expected --temperature above 0 and with --sample, got {temperature}")
    _check_quantity(quantity, "--model" if response is None else "--response")
    for path in (out, table):
        if path is not None:
            check_file(path)
    with working("loading libraries") as tell:
        if response is not None:
            found = _from_response(response, num_classes or 0)
        else:
            given = sys.stdin.read() if prompt == "-" else prompt or ""
            tell(f"loading {model}")
            loaded = load_model(model or "", gguf)
            inputs = _encoded(loaded, given, chat=chat)
            tell("generating")
            drawn = {"temperature": temperature or 1.0} if sample else {}
            found = _generated(loaded, inputs, seed, {"max_new_tokens": limit, "do_sample": sample, **drawn})
        found.save(out, quantity)
        paths = [out, *([found.to_parquet(table)] if table is not None else [])]
    if json:
        rows = found.summary().to_dict("records")
        print_json({"classes": found.num_classes, "sequences": rows, "files": [str(path) for path in paths]})
        return
    console = screen()
    for number, headline in enumerate(found.headlines(), start=1):
        put(console, f"Sequence {number}: {headline}", "bold" if len(found) == 1 else "", soft_wrap=True)
    list_files(paths, console)


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


def _generated(loaded: "LanguageModel", inputs: dict[str, Any], seed: int, options: dict[str, Any]) -> "Trace":
    """The trace of what a model generates. The state of torch's random numbers is as before."""
    import torch

    from ..transformers import BoCGeneration

    recorder = BoCGeneration(loaded.model, loaded.tokenizer, prompt=True)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        recorder.generate(loaded.model, **inputs, **options)
    return recorder.trace


class LanguageModel(NamedTuple):
    """A causal model of transformers, its tokenizer, and where they are from."""

    model: Any
    tokenizer: Any
    name: str


def load_model(name: str, gguf: str | None, dtype: str = "auto") -> LanguageModel:
    """Load a model and its tokenizer, on the GPU if there is one.

    Args:
        name: a folder, a file that ends in .gguf, or a name on the Hugging Face hub. Nothing is downloaded for the
            first two.
        gguf: the name of a GGUF file in the folder.
        dtype: of the weights, such as "float32"; "auto" is that of the file.
    """
    transformers = require("transformers", purpose="language models need")
    path = Path(name)
    if path.suffix == ".gguf" and gguf is None:
        path, gguf = path.parent, path.name
    if not path.exists() and (gguf is not None or not re.fullmatch(HUB_NAME, name)):
        raise ValueError(f"{name}: no such folder; give --model the folder of a model that transformers can load")
    if path.is_file():
        raise ValueError(f"{name}: expected the folder of a model or a file that ends in .gguf, got another file")
    if gguf is not None and not (path / gguf).is_file():
        raise ValueError(f"{path / gguf}: no such file; give --gguf the name of a GGUF file in the folder of --model")
    where = str(path) if path.is_dir() else name
    options: dict[str, Any] = {"local_files_only": path.is_dir(), **({"gguf_file": gguf} if gguf else {})}
    # Its bar for GGUF files cannot be switched off.
    other = sys.stderr if sys.stderr.isatty() else io.StringIO()
    with quiet_transformers(transformers), redirect_stderr(other):
        try:
            tokenizer = transformers.AutoTokenizer.from_pretrained(where, **options)
            model = transformers.AutoModelForCausalLM.from_pretrained(where, dtype=dtype, **options)
        except (OSError, ValueError, KeyError) as error:
            said = " ".join(str(error).split())
            raise ValueError(f"{name}: transformers cannot load a causal language model: {said[:300]}") from error
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    return LanguageModel(model.to(device).eval(), tokenizer, name)


def _encoded(loaded: LanguageModel, prompt: str, *, chat: bool) -> dict[str, Any]:
    """The prompt as the input of the model; with `chat`, as the message of a user to an assistant."""
    tokenizer = loaded.tokenizer
    if not chat:
        inputs = tokenizer(prompt, return_tensors="pt")
    elif getattr(tokenizer, "chat_template", None) is None:
        raise ValueError(f"{loaded.name}: expected a chat template for --chat, got none; leave --chat out")
    else:
        messages = [{"role": "user", "content": prompt}]
        inputs = tokenizer.apply_chat_template(
            messages, add_generation_prompt=True, return_tensors="pt", return_dict=True
        )
    if inputs["input_ids"].numel() == 0:
        raise ValueError("expected a prompt of at least one token, got none; give --prompt some text")
    return {name: inputs[name].to(loaded.model.device) for name in ("input_ids", "attention_mask")}
