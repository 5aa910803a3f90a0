"""`torch-boc text` and `torch-boc trace`: how well a language model predicts texts, and how sure it was of a token."""

import io
import math
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stderr
from pathlib import Path
from typing import Any

from .._optional import quiet_transformers, require
from ..data.atomic import check_file, printable, replacing
from . import options as o
from .output import list_files, print_json, put, show_table, terminal, working

HUB_NAME = r"[\w.-]+/[\w.-]+"
PIECE = 2**16  # the characters of a text that are read at once
# The numbers of a text that are printed: their title, key and format.
SHOWN = (
    ("tokens", "tokens", ",d"),
    ("perplexity", "perplexity", ".4g"),
    ("bits/byte", "bits_per_byte", ".3f"),
    ("accuracy", "accuracy", ".3f"),
    ("ECE", "ece_confidence", ".3f"),
    ("lost coins", "lost_coins", ".2f"),
)
# The quantities without numbers: the few likeliest tokens give no entropy.
UNKNOWN = {"--model": (), "--response": ("entropy", "masked")}


def text(
    paths: o.Texts,
    model: o.Model,
    context: o.Context = None,
    stride: o.Stride = None,
    bos: o.Bos = None,
    dtype: o.Dtype = "auto",
    out: o.Csv = None,
    json: o.Json = False,
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
        torch-boc text --model folder/model.gguf book.txt --bos --json
    """
    names = _check_texts(paths, dtype)
    if out is not None:
        check_file(out)
    with working(f"loading {model}") as tell:
        from ..transformers import evaluate_text

        network, tokenizer = load_model(model, dtype)
        texts = {name: [_pieces(Path(path), tell)] for name, path in zip(names, paths, strict=True)}
        numbers = evaluate_text(network, tokenizer, texts, context=context, stride=stride, bos=bos)
    if out is not None:
        with replacing(out) as temporary:
            numbers.to_frame().to_csv(temporary)
    if json:
        print_json({"model": model, "classes": network.config.get_text_config().vocab_size, "texts": numbers})
        return
    console = terminal()
    put(console, f"{model}: {', '.join(names)}", "bold")
    rows = [[name, *(format(values[key], how) for _, key, how in SHOWN)] for name, values in numbers.items()]
    show_table([["text", *(title for title, _, _ in SHOWN)], *rows], console)
    list_files([out], console)


def _check_texts(paths: Sequence[str], dtype: str) -> list[str]:
    """The names of the files, or an error before the work begins."""
    if dtype not in o.DTYPES:
        raise ValueError(f"expected --dtype among {', '.join(o.DTYPES)}, got {dtype!r}")
    for path in map(Path, paths):
        if not path.is_file():
            raise ValueError(f"{path}: expected a text file, got {'a folder' if path.is_dir() else 'no such file'}")
        if path.stat().st_size == 0:
            raise ValueError(f"{path}: expected a text, got an empty file")
    return list(map(printable, paths))


def _pieces(path: Path, tell: Callable[[str], None]) -> Iterator[str]:
    """A UTF-8 file in pieces, so that it may be larger than memory.

    A piece ends after a line, or after a space in a line that is longer than a piece. The last one ends with the file.
    """
    rest, done = "", 0
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            while block := file.read(PIECE):
                rest += block
                end = len(rest) if len(block) < PIECE else rest.rfind("\n") + 1 or rest.rfind(" ") + 1 or len(rest)
                yield rest[:end]
                done, rest = done + end, rest[end:]
                tell(f"reading {path}: {done:,} characters so far")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: expected a text in UTF-8, got {error.reason} at byte {error.start:,}") from None
    if rest:
        yield rest


def trace(
    model: o.SomeModel = None,
    prompt: o.Prompt = None,
    limit: o.Limit = 200,
    sample: o.Sample = False,
    temperature: o.Temperature = None,
    seed: o.Seed = 42,
    chat: o.Chat = False,
    response: o.Response = None,
    num_classes: o.NumClasses = None,
    quantity: o.Quantity = "lost_coins",
    out: o.Page = "trace.html",
    table: o.Tokens = None,
    json: o.Json = False,
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
    import torch

    from ..data.sets import naming
    from ..language import Trace
    from ..language.trace_page import SCALES

    if (model is None) == (response is None):
        given = "both" if model is not None else "none"
        raise ValueError(f"expected --model FOLDER or --response PATH, got {given}")
    if model is not None and not prompt:
        raise ValueError("expected --prompt TEXT with --model, got none; --prompt - reads it from stdin")
    if response is not None and num_classes is None:
        raise ValueError("expected --num-classes N, the size of the vocabulary, with --response, got none")
    if temperature is not None and not (sample and 0 < temperature < math.inf):
        raise ValueError(f"expected --temperature above 0 and with --sample, got {temperature}")
    source = "--model" if response is None else "--response"
    known = [x for x in SCALES if x not in UNKNOWN[source]]
    if quantity not in known:
        raise ValueError(f"expected --quantity among {', '.join(known)} with {source}, got {quantity!r}")
    for path in (out, table):
        if path is not None:
            check_file(path)
    with working("loading libraries") as tell:
        if response is not None:
            if not Path(response).is_file():
                raise ValueError(f"{response}: no such file")
            with naming(response):
                found = Trace.from_response(Path(response).read_bytes(), num_classes=num_classes or 0)
        else:
            given = sys.stdin.read() if prompt == "-" else prompt or ""
            from ..transformers import BoCGeneration

            tell(f"loading {model}")
            network, tokenizer = load_model(model or "")
            inputs = _encoded(tokenizer, given, model or "", chat=chat).to(network.device)
            tell("generating")
            drawn = {"do_sample": True, "temperature": temperature or 1.0} if sample else {"do_sample": False}
            recorder = BoCGeneration(network, tokenizer, prompt=True)
            with torch.random.fork_rng():  # the state of torch's random numbers is as before
                torch.manual_seed(seed)
                recorder.generate(**inputs, **drawn, max_new_tokens=limit)
            found = recorder.trace
        found.save(out, quantity)
        paths = [out, *([] if table is None else [str(found.to_parquet(table))])]
    if json:
        rows = found.summary().to_dict("records")
        print_json({"classes": found.num_classes, "sequences": rows, "files": paths})
        return
    console = terminal()
    for number, headline in enumerate(found.headlines(), start=1):
        put(console, f"Sequence {number}: {headline}", "bold" if len(found) == 1 else "", soft_wrap=True)
    list_files(paths, console)


def load_model(name: str, dtype: str = "auto") -> tuple[Any, Any]:
    """A causal model of transformers, on the GPU if there is one, and its tokenizer.

    Args:
        name: a folder, a file that ends in .gguf, or a name on the Hugging Face hub. Nothing is downloaded for the
            first two.
        dtype: of the weights, such as "float32"; "auto" is that of the file.
    """
    transformers = require("transformers", purpose="language models need")
    path, gguf = Path(name), name.endswith(".gguf")
    if not path.exists() and (gguf or not re.fullmatch(HUB_NAME, name)):
        raise ValueError(f"{name}: no such folder; give --model the folder of a model that transformers can load")
    if path.is_file() != gguf and path.exists():
        raise ValueError(f"{name}: expected the folder of a model or a file that ends in .gguf, got another file")
    where = str(path.parent) if gguf else name
    options = {"local_files_only": path.exists(), **({"gguf_file": path.name} if gguf else {})}
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

    return model.to("cuda" if torch.cuda.is_available() else "cpu").eval(), tokenizer


def _encoded(tokenizer: Any, prompt: str, name: str, *, chat: bool) -> Any:
    """The prompt as the input of the model; with `chat`, as the message of a user to an assistant."""
    if chat and getattr(tokenizer, "chat_template", None) is None:
        raise ValueError(f"{name}: expected a chat template for --chat, got none; leave --chat out")
    how = {"return_tensors": "pt"}
    if chat:
        messages = [{"role": "user", "content": prompt}]
        inputs = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=True, **how)
    else:
        inputs = tokenizer(prompt, return_token_type_ids=False, **how)
    if inputs["input_ids"].numel() == 0:
        raise ValueError("expected a prompt of at least one token, got none; give --prompt some text")
    return inputs
