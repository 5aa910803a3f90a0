"""`torch-boc text` and `torch-boc trace`: how well a language model predicts texts, and traces of generated text."""

import math
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from .._optional import require
from ..data.atomic import check_file, check_parquet, replacing
from ..data.errors import is_memory_error, printable
from . import options as o
from .output import Terminal, list_files, print_json, show_table, spinner

HUB_NAME = r"[\w.-]+/[\w.-]+"
PIECE = 2**16  # the characters of a text that are read at once
# The titles of the numbers of a text that are printed, and their names.
SHOWN = {"tokens": "tokens", "perplexity": "perplexity", "bits/byte": "bits_per_byte", "accuracy": "accuracy"}
SHOWN |= {"ECE": "ece", "lost coins": "lost_coins"}


def text(
    paths: o.Texts,
    model: o.Model,
    context: o.Context = None,
    out: o.Csv = None,
    json: o.Json = False,
) -> None:
    """Perplexity and calibration of a language model on text files.

    Perplexity, bits per byte, accuracy and calibration of next-token prediction, lost coins, and the other numbers of
    the probe; one row per file, and one for all together.

    Texts longer than the context are read in windows that overlap by half; every token is scored once. Memory grows
    with the context, and neither with the length nor with the number of files: a file is read and tokenised in pieces
    of about 64 kB that end at the end of a line.

    Examples:
        torch-boc text --model folder book.txt
        torch-boc text --model folder a.txt b.txt --context 1024 --out /tmp/text.csv
        torch-boc text --model folder/model.gguf book.txt --json
    """
    if out is not None:
        check_file(out)
    with spinner(f"loading {model}") as report:
        from ..transformers import evaluate_text

        network, tokenizer = load_model(model)
        texts = {printable(str(path)): [_pieces(path, report)] for path in paths}
        numbers = evaluate_text(network, tokenizer, texts, context=context)
    if out is not None:
        with replacing(out) as temporary:
            numbers.to_frame().to_csv(temporary)
    if json:
        print_json({"model": model, "classes": network.config.get_text_config().vocab_size, "texts": numbers})
        return
    console = Terminal()
    console.print(f"{model}: {', '.join(texts)}", style="bold")
    rows = [[name, *map(values.get, SHOWN.values())] for name, values in numbers.items()]
    show_table([["text", *SHOWN], *rows], console)
    list_files([out], console)


def _pieces(path: Path, report: Callable[[str], None]) -> Iterator[str]:
    """A UTF-8 file in pieces; it may be larger than memory.

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
                report(f"reading {path}: {done:,} characters so far")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: expected a text in UTF-8, got {error.reason} at byte {error.start:,}") from None
    if rest:
        yield rest


def trace(
    model: o.Model,
    prompt: o.Prompt,
    limit: o.Limit = 200,
    temperature: o.Drawn = None,
    seed: o.Seed = 42,
    chat: o.Chat = False,
    out: o.Page = "trace.html",
    table: o.Tokens = None,
    json: o.Json = False,
) -> None:
    """Generate text, and show the model's uncertainty at each token.

    The page shows the text with its tokens tinted by their lost coins, confidence, entropy, rank or log-probability,
    and the likeliest tokens at each position. It is one file, which loads nothing. Older files of these names are
    replaced. Generation ends at the latest where the context of the model does.

    Examples:
        torch-boc trace --model folder --prompt 'Once upon a time'
        torch-boc trace --model folder --chat --temperature 1 --prompt - < a.txt
        torch-boc trace --model m.gguf --prompt Hello -o a.html --table a.parquet
    """
    import torch

    given = sys.stdin.read() if prompt == "-" else prompt
    check_file(out)
    if table is not None:
        check_parquet(table)
    with spinner(f"loading {model}") as report:
        from ..language.trace_page import headline
        from ..transformers import BoCGeneration
        from ..transformers.teacher_forcing import causal_model, stated_context

        network, tokenizer = load_model(model)
        if chat:
            message = [{"role": "user", "content": given}]
            given = tokenizer.apply_chat_template(message, add_generation_prompt=True, tokenize=False)
        encoding = {"add_special_tokens": not chat, "return_token_type_ids": False, "return_tensors": "pt"}
        inputs = tokenizer(given, **encoding)
        length, context = inputs["input_ids"].shape[1], stated_context(network.config) or math.inf
        if not 0 < length < context:
            raise ValueError(f"expected a prompt of 1 to {context - 1} tokens, below the model's context, got {length}")
        report("generating")
        drawn = {"do_sample": False} if temperature is None else {"do_sample": True, "temperature": temperature}
        recorder = BoCGeneration(network, tokenizer, prompt=True)
        with causal_model(network), torch.random.fork_rng():  # the state of torch's random numbers is as before
            torch.manual_seed(seed)
            recorder.generate(**inputs.to(network.device), **drawn, max_new_tokens=int(min(limit, context - length)))
        generated = recorder.trace
        generated.save(out)
        paths = [out, *([] if table is None else [str(generated.to_parquet(table))])]
    if json:
        rows = generated.summary().to_dict("records")
        print_json({"classes": generated.num_classes, "sequences": rows, "files": paths})
        return
    console = Terminal()
    console.print(headline(generated.sequences[0]), style="bold", soft_wrap=True)
    list_files(paths, console)


def load_model(name: str) -> tuple[Any, Any]:
    """A causal model of transformers, on the GPU if there is one, and its tokenizer.

    The name is a folder, a file that ends in .gguf, or a name on the Hugging Face hub. Nothing is downloaded for the
    first two.
    """
    transformers = require("transformers", purpose="language models need")
    path, gguf = Path(name), name.endswith(".gguf")
    if not path.exists() and (gguf or not re.fullmatch(HUB_NAME, name)):
        raise ValueError(f"{name}: no such folder; give --model the folder of a model that transformers can load")
    where = str(path.parent) if gguf else name
    options = {"local_files_only": path.exists(), **({"gguf_file": path.name} if gguf else {})}
    loading = {"dtype": "auto", "output_loading_info": True}
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(where, **options)
        model, info = transformers.AutoModelForCausalLM.from_pretrained(where, **loading, **options)
    except Exception as error:  # libraries raise all kinds of errors on damaged files
        if isinstance(error, ImportError) or is_memory_error(error):
            raise
        reason = printable(" ".join((str(error) or type(error).__name__).split()))
        raise ValueError(f"{name}: transformers cannot load a causal language model: {reason[:300]}") from error
    if len(tokenizer) <= len(tokenizer.all_special_ids):  # what transformers makes of a folder without one
        raise ValueError(f"{name}: expected the model's tokenizer there, got none; add it with save_pretrained")
    if missing := sorted(info["missing_keys"]):  # transformers gives them random values
        got = f"{missing[0]}{f' and {len(missing) - 1} more' * (len(missing) > 1)}"
        raise ValueError(f"{name}: expected all weights of a causal language model, got none for {got}")
    import torch

    return model.to("cuda" if torch.cuda.is_available() else "cpu").eval(), tokenizer
