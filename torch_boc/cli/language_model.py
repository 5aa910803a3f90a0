"""Language models from a folder, and text that they generate."""

import io
import re
import sys
from contextlib import redirect_stderr
from pathlib import Path
from typing import Any, NamedTuple

import torch

from .._optional import quiet_transformers, require

HUB_NAME = r"[\w.-]+/[\w.-]+"


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
    _check(name, path, gguf)
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
    device = "cuda" if torch.cuda.is_available() else "cpu"
    return LanguageModel(model.to(device).eval(), tokenizer, name)


def encoded(loaded: LanguageModel, prompt: str, *, chat: bool) -> dict[str, Any]:
    """The prompt as the input of the model; with `chat`, as the message of a user to an assistant."""
    tokenizer, device = loaded.tokenizer, loaded.model.device
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
    return {name: inputs[name].to(device) for name in ("input_ids", "attention_mask")}


def _check(name: str, path: Path, gguf: str | None) -> None:
    """Raise if there is no such folder or file."""
    if not path.exists() and (gguf is not None or not re.fullmatch(HUB_NAME, name)):
        raise ValueError(f"{name}: no such folder; give --model the folder of a model that transformers can load")
    if path.is_file():
        raise ValueError(f"{name}: expected the folder of a model or a file that ends in .gguf, got another file")
    if gguf is not None and not (path / gguf).is_file():
        raise ValueError(f"{path / gguf}: no such file; give --gguf the name of a GGUF file in the folder of --model")
