"""Teacher-forced evaluation of text: how well a causal model predicts it, and what its confidence is worth."""

import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from ..functional.next_tokens import TextTally, add_predictions, empty_text_tally
from ..language.text_numbers import TextPart, check_names
from ..language.text_report import TextReport
from ..language.text_verdict import invalid_sentence
from .reading import WindowReader, check_causal, check_model, evaluation_mode, vocabulary
from .windows import USUAL_CONTEXT, Window, check_windows, token_windows

# A text, or the pieces of a text that is too long to be held at once.
Document = str | Iterable[str]
Texts = str | Iterable[Document] | Mapping[str, str | Iterable[Document]]
SINGLE = "text"


def evaluate_text(
    model: Any,
    tokenizer: Any,
    texts: Texts,
    *,
    context: int | None = None,
    stride: int | None = None,
    bos: bool | None = None,
    progress: Callable[[str], object] | None = None,
) -> TextReport:
    """How well a causal language model predicts given texts, token by token, and what its confidence is worth.

    Everything is added up on the model's device while the texts go through the model once, in slices of at most about
    2^24 logits. So memory grows neither with the length nor with the number of the texts nor, beyond a slice, with the
    vocabulary. It grows with the context, because a model keeps keys and values of each token that it reads together.

    Args:
        model: a causal language model of transformers.
        tokenizer: its tokenizer.
        texts: a text, a list of texts, or a mapping from names to either, which gets a row for each name. Among
            several, no text has the name "all", which is that of the row of all together. A text may also be an
            iterable of its pieces. Pieces are tokenised one by one, so that no token crosses the end of a piece; the
            model reads on across it.
        context: the most tokens that the model reads together; by default what its config states, but at most 4,096.
            A longer context takes more memory.
        stride: how far a window is from the one before, by default half of the context; see `logit_slices`.
        bos: whether the tokenizer's first token stands before each text; by default as the tokenizer does it. With it
            the first token of a text is predicted too. If a text is longer than the context, this token stands at the
            head of each of its windows, because models that were trained with it predict badly without it.
        progress: called with a few words now and then.

    Returns:
        A report; `functional.text_summary` documents its numbers. Predictions with NaN or +inf are left out, with a
        warning; bits per byte are then NaN.
    """
    check_model(model)
    before = first_tokens(tokenizer, bos)
    context, stride = check_windows(context, stride, model.config, before=len(before), most=USUAL_CONTEXT)
    named = _named(texts)
    settings = {
        "model": type(model).__name__,
        "num_classes": vocabulary(model.config),
        "context": context,
        "stride": stride,
        "tokens_before": list(before),
        "dtype": str(model.dtype).removeprefix("torch."),
    }
    start = partial(_Reading, model, tokenizer, before, (context, stride), progress or (lambda message: None))
    with evaluation_mode(model):
        check_causal(model)
        report = TextReport(_parts(named, start), settings)
    if report.whole["invalid"]:
        warnings.warn(invalid_sentence(report.whole), stacklevel=2)
    return report


def _named(texts: Texts) -> dict[str, Iterable[Document]]:
    """The texts of each name, or an error before the work begins."""
    named = dict(texts) if isinstance(texts, Mapping) else {SINGLE: texts}
    if not named:
        raise ValueError("expected at least one text, got an empty mapping")
    check_names(named)
    return {name: [x] if isinstance(x, str) else _iterable(x, name) for name, x in named.items()}


def _iterable(found: Any, name: str) -> Iterable[Any]:
    """A list of texts or the pieces of one, or an error for what is neither."""
    if isinstance(found, bytes | Mapping) or not isinstance(found, Iterable):
        remedy = "; read it first, with path.read_text()" if isinstance(found, os.PathLike) else ""
        raise TypeError(f"{name}: expected a text as str, or an iterable of texts, got {type(found).__name__}{remedy}")
    return found


def _parts(named: Mapping[str, Iterable[Document]], start: Callable[[], "_Reading"]) -> Iterator[tuple[str, TextPart]]:
    """What the texts of each name add up to, one after the other."""
    for name, content in named.items():
        yield name, start().read(name, content)


@dataclass
class _Reading:
    """Adds up one set of texts; `bytes` are those of the tokens that were scored, in UTF-8."""

    model: Any
    tokenizer: Any
    before: list[int]
    windows: tuple[int, int]
    progress: Callable[[str], object]
    bytes: int = 0
    seen: int = 0
    tokens: int = 0
    documents: int = 0
    total: TextTally | None = None

    def read(self, name: str, documents: Iterable[Document]) -> TextPart:
        """What the documents add up to."""
        for document in documents:
            self.documents += 1
            pieces = [document] if isinstance(document, str) else _iterable(document, name)
            for tokens, first in token_windows(self._pieces(pieces, name), *self.windows, self.before):
                self._add(tokens, first, name)
        if self.total is None:
            got = "one token" if self.seen else "an empty text"
            raise ValueError(f"{name}: expected a text of at least two tokens, got {got}")
        return TextPart(self.total, self.bytes, self.documents)

    def _add(self, tokens: list[int], first: int, name: str) -> None:
        batch = torch.tensor([tokens], device=self.model.device)
        for start, logits in WindowReader(self.model, batch).read(Window(0, first, len(tokens))):
            self.total = self.total or empty_text_tally(logits.device)
            target = batch[:, start : start + logits.shape[1]].to(logits.device)
            add_predictions(self.total, logits, target)
            self.tokens += target.numel()
            self.progress(f"{name}: {self.tokens:,} tokens")

    def _pieces(self, pieces: Iterable[str], name: str) -> Iterator[list[int]]:
        """The tokens of a document, piece by piece."""
        unpredicted = not self.before
        for piece in pieces:
            if not isinstance(piece, str):
                raise TypeError(f"{name}: expected the pieces of a text as str, got {type(piece).__name__}")
            ids = self.tokenizer(piece, add_special_tokens=False, verbose=False)["input_ids"]
            self.bytes += len(piece.encode())
            self.seen += len(ids)
            if unpredicted and ids:
                self.bytes -= len(self.tokenizer.decode(ids[:1]).encode())
                unpredicted = False
            yield ids


def first_tokens(tokenizer: Any, bos: bool | None) -> list[int]:
    """The tokens that stand before each text."""
    if bos:
        if tokenizer.bos_token_id is None:
            raise ValueError("expected a tokenizer with a first token (bos), got one without; leave out bos")
        return [tokenizer.bos_token_id]
    if bos is False:
        return []
    plain, whole = (tokenizer("a", add_special_tokens=x)["input_ids"] for x in (False, True))
    places = range(len(whole) - len(plain) + 1)
    return next((list(whole[:i]) for i in places if whole[i : i + len(plain)] == plain), [])
